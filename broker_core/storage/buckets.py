# SPDX-License-Identifier: Apache-2.0
"""``BucketStore``: the files of all buckets of delayed messages: made whole, read in parts, removed.

The name of a file is the reference to it: topic id and number. It appears only after all its bytes are durable, so
after a crash a bucket is there whole or not at all; one that is gone leaves no reference behind. Files of deleted
topics, and unfinished files, are removed at the next start. Source: semantics 6.4 (seal, delete).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Final

from broker_core.storage import layout
from broker_core.storage.bucket_snapshot import BucketSnapshot, DamagedBucketError
from broker_core.storage.context import StoreContext
from broker_core.storage.disk import disk_failed, fail_stop, no_file, write_fully
from broker_core.storage.removal import remove_files

_UNFINISHED: Final = ".new"

NEXT_BUCKET: Final = "buckets"
"""Name in the catalogue: the number above those of all buckets that are known to it."""


class BucketStore:
    """The buckets of one store.

    Attributes:
        newest_ledger: The highest ledger id in buckets that are newer than the catalogue, which then is an older copy.
            The others name only ledgers that it knows.
    """

    def __init__(self, context: StoreContext) -> None:
        """DiskFailedError: the disk refused."""
        self._context = context
        self._directory: Final = layout.delayed_dir(context.directory)
        with fail_stop():
            if not context.disk.exists(self._directory):
                context.disk.mkdir(self._directory)
            names = context.disk.list_files(self._directory)
        found = {name: parsed for name in names if (parsed := layout.parse_bucket(name)) is not None}
        known = context.catalogue.numbers.get(NEXT_BUCKET, 1)
        self._next_number = max(known, *(1 + number for _topic, number in found.values()), 1)
        named = {topic_id for topic_id, _number in found.values()}
        topics = {topic_id for topic_id in named if context.catalogue.topics.by_id(topic_id) is not None}
        self._by_topic: dict[int, list[int]] = {}
        for topic_id, number in found.values():
            if topic_id in topics:
                self._by_topic.setdefault(topic_id, []).append(number)
        newer = [(topic, number) for topic, number in found.values() if number >= known and topic in topics]
        self.newest_ledger: Final = max(map(self._newest_ledger_of, newer), default=-1)
        if newer:
            context.catalogue.numbers.set(NEXT_BUCKET, self._next_number)
        gone = [name for name, (topic_id, _number) in found.items() if topic_id not in topics]
        remove_files(context, self._directory, gone + [name for name in names if name.endswith(_UNFINISHED)])

    def _newest_ledger_of(self, bucket: tuple[int, int]) -> int:
        topic_id, number = bucket
        path = self._path(topic_id, number)
        try:
            with closing(self._context.disk.open_read_only(path)) as file:
                return max(BucketSnapshot(topic_id, number, file.size(), file.read).ledgers, default=-1)
        except DamagedBucketError:
            return -1  # opening the bucket reports that, and its ledgers are read instead
        except OSError as e:
            if no_file(e):
                return -1
            raise disk_failed(e) from e

    def new_number(self) -> int:
        """A number that no bucket has."""
        number = self._next_number
        self._next_number += 1
        self._context.catalogue.numbers.set(NEXT_BUCKET, self._next_number)
        return number

    def numbers(self, topic_id: int) -> list[int]:
        """The buckets of a topic, oldest first."""
        return sorted(self._by_topic.get(topic_id, ()))

    def write(self, topic_id: int, number: int, data: bytes, on_durable: Callable[[], None]) -> None:
        """Make a bucket, in the background; ``on_durable`` is called when it is there for good.

        Raises:
            StorageError: the store has failed. (If it fails later, ``on_durable`` is never called.)
        """
        disk, path = self._context.disk, self._path(topic_id, number)

        def write() -> None:
            with closing(disk.open(path + _UNFINISHED, create=True)) as file:
                write_fully(file, 0, [data])
                file.sync()
            disk.rename(path + _UNFINISHED, path)
            disk.sync_dir(self._directory)

        def written() -> None:
            self._by_topic.setdefault(topic_id, []).append(number)
            on_durable()

        self._context.commits.submit(write, written)

    def open(self, topic_id: int, number: int) -> BucketSnapshot:
        """DamagedBucketError: it cannot be read."""
        path = self._path(topic_id, number)
        try:
            size = self._context.handles.get(path).size()
        except OSError as e:
            raise DamagedBucketError(f"the bucket {path} cannot be opened: {e.strerror or e}") from e
        return BucketSnapshot(topic_id, number, size, self.reader(topic_id, number))

    def reader(self, topic_id: int, number: int) -> Callable[[int, int], bytes]:
        """Reader of bytes of a bucket's file; it raises DamagedBucketError."""
        path = self._path(topic_id, number)

        def read(offset: int, size: int) -> bytes:
            try:
                return self._context.handles.get(path).read(offset, size)
            except OSError as e:
                raise DamagedBucketError(f"the bucket {path} cannot be read: {e.strerror or e}") from e

        return read

    def remove(self, topic_id: int, number: int) -> None:
        """Forget a bucket; its file goes away in the background. Nothing happens if the store has failed."""
        numbers = self._by_topic.get(topic_id, [])
        if number in numbers:
            numbers.remove(number)
            remove_files(self._context, self._directory, [layout.bucket_name(topic_id, number)])

    def remove_all(self, topic_id: int) -> None:
        """Forget every bucket of a topic."""
        for number in self.numbers(topic_id):
            self.remove(topic_id, number)

    def _path(self, topic_id: int, number: int) -> str:
        return f"{self._directory}/{layout.bucket_name(topic_id, number)}"
