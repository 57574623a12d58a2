# SPDX-License-Identifier: Apache-2.0
"""``EntryKeys``: the messages of one entry as compaction sees them: the key of each, and whether it is a tombstone.

Keys are compared as they are stored: the text, and whether it is base64 of bytes. A message without payload is a
tombstone, whether its client meant a null value or an empty one. An entry that cannot be read, which an encrypted batch
is too, is kept whole and removes nothing: nobody can say whose last values it holds. Source: semantics 7.4.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum
from typing import Final, NamedTuple, TypeAlias, TypeVar

from google.protobuf.message import DecodeError

from broker_core.base.errors import RemoteProtocolError
from broker_core.storage.ledger import StoredEntry
from broker_core.wire.entry import read_metadata
from broker_core.wire.entry_peek import ChunkPlace, chunk_place
from broker_core.wire.plain_batches import PlainBatch, compacted, open_batch
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata

PLAIN_BYTES_MAX: Final = 128 * 1024 * 1024
"""A batch that would be larger before compression is kept whole, rather than take so much memory."""

LARGE_BYTES: Final = 256 * 1024
"""A batch with a larger payload before compression is opened and rewritten on another thread: that takes milliseconds,
for which the loop would stand still."""

_METADATA_AT: Final = 10
_SIZE_AT: Final = 6

Wait: TypeAlias = Callable[[Callable[[], None]], None]
"""Something that a step waits for: it is called with what to call when it is over."""

Steps: TypeAlias = Generator[Wait | None, None, None]
"""Work in steps: after each others get a turn, or it waits."""

Aside: TypeAlias = Callable[[Callable[[], None], Callable[[], None]], None]
"""Runs its first argument on another thread, then the second one here."""

_T = TypeVar("_T")

_parse = MessageMetadata.FromString


class Kind(Enum):
    """Kinds of entries."""

    MARKER = "marker"
    SINGLE = "single"
    BATCH = "batch"
    CHUNK = "chunk"
    UNREADABLE = "unreadable"


class KeyOf(NamedTuple):
    """One message: its key as it is stored, None for none; ``empty``: it is a tombstone; ``left_out``: an earlier
    compaction has left it out of its batch."""

    key: bytes | None
    empty: bool
    left_out: bool = False


class EntryKeys(NamedTuple):
    """Keys of an entry. ``message`` is that of a single one or a chunk, ``batch`` the metadata of a batch, which is
    still to be opened."""

    kind: Kind
    message: KeyOf = KeyOf(None, empty=False)
    batch: MessageMetadata | None = None
    chunk: ChunkPlace | None = None
    producer: str = ""


_MARKER: Final = EntryKeys(Kind.MARKER)
_UNREADABLE: Final = EntryKeys(Kind.UNREADABLE)


def keys_of(entry: StoredEntry) -> EntryKeys:
    """The key of an entry, or the metadata of the batch that it is."""
    body = entry.body
    end = _METADATA_AT + int.from_bytes(body[_SIZE_AT:_METADATA_AT], "big")
    try:
        metadata = _parse(body[_METADATA_AT:end])
    except DecodeError:
        return _UNREADABLE
    if metadata.HasField("marker_type"):
        return _MARKER
    if metadata.HasField("num_messages_in_batch"):
        return _UNREADABLE if metadata.encryption_keys else EntryKeys(Kind.BATCH, batch=metadata)
    size = metadata.uncompressed_size if metadata.HasField("uncompressed_size") else len(body) - end
    message = KeyOf(_key(metadata), empty=metadata.null_value or size <= 0)
    chunk = chunk_place(body) if metadata.uuid else None
    if chunk is None:
        return EntryKeys(Kind.SINGLE, message)
    return EntryKeys(Kind.CHUNK, message, chunk=chunk, producer=str(metadata.producer_name))


def _key(metadata: MessageMetadata | SingleMessageMetadata) -> bytes | None:
    """The key of an entry or of a message in a batch, with what tells text from base64."""
    if not metadata.HasField("partition_key") or metadata.null_partition_key:
        return None
    key: str | bytes = metadata.partition_key
    stored = key.encode() if isinstance(key, str) else key  # it may be no UTF-8
    return b"\x01" + stored if metadata.partition_key_b64_encoded else b"\x00" + stored


def keys_in_batch(batch: PlainBatch) -> list[KeyOf]:
    """The messages of a batch in order."""
    return [
        KeyOf(_key(each), empty=each.null_value or each.payload_size <= 0, left_out=each.compacted_out)
        for each, _start, _end in batch.messages
    ]


class BatchWork:
    """Opens and rewrites batches, large ones on another thread."""

    def __init__(self, aside: Aside) -> None:
        self._aside = aside

    def keys(self, entry: StoredEntry, metadata: MessageMetadata) -> Generator[Wait | None, None, list[KeyOf] | None]:
        """The messages of a batch; None if it cannot be read."""

        def work() -> list[KeyOf] | None:
            try:
                return keys_in_batch(open_batch(entry.body, metadata, PLAIN_BYTES_MAX))
            except RemoteProtocolError:
                return None

        return (yield from self._done(work, entry, metadata))

    def rewritten(self, entry: StoredEntry, kept: list[int]) -> Generator[Wait | None, None, StoredEntry]:
        """A batch that was read before, with only the messages ``kept``: their indexes, ascending. An entry that is no
        batch stays as it is: how many messages it counts for is what its SEND said."""
        metadata = read_metadata(entry.body)
        if not metadata.HasField("num_messages_in_batch") or kept == list(metadata.compacted_batch_indexes):
            return entry

        def work() -> bytes:
            return compacted(open_batch(entry.body, metadata, PLAIN_BYTES_MAX), kept)

        body = yield from self._done(work, entry, metadata)
        return entry._replace(body=body)

    def _done(
        self, work: Callable[[], _T], entry: StoredEntry, metadata: MessageMetadata
    ) -> Generator[Wait | None, None, _T]:
        if max(metadata.uncompressed_size, len(entry.body)) <= LARGE_BYTES:
            return work()
        results: list[_T] = []
        failures: list[Exception] = []

        def attempt() -> None:
            try:
                results.append(work())
            except Exception as error:  # noqa: BLE001 - raised below: on the other thread it would stop the broker
                failures.append(error)

        yield lambda resume: self._aside(attempt, resume)
        if failures:
            raise failures[0]
        return results[0]
