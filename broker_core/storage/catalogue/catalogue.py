# SPDX-License-Identifier: Apache-2.0
"""The owner of the catalogue: its tables, the memory they are in, and the file that keeps them.

What was changed in memory goes into the file with the next group commit, before the writes of its other files
(``take_changes``). So the changes before a receipt are as durable as the receipt says; any other answer waits for them
(``GroupCommit.when_recorded``). A change that concerns several tables is made here, the others in the files of their
tables. Does not know what names mean, nor of entries.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from broker_core.base.positions import Position
from broker_core.storage.catalogue.database import Database
from broker_core.storage.catalogue.file import CatalogueFile
from broker_core.storage.catalogue.ledgers import Ledgers
from broker_core.storage.catalogue.named_objects import NamedObjects
from broker_core.storage.catalogue.numbers import Numbers
from broker_core.storage.catalogue.subscriptions import Subscriptions
from broker_core.storage.catalogue.topics import PartitionedTopics, Topics
from broker_core.storage.disk import Disk


class Catalogue:
    """The catalogue of one data directory.

    Attributes:
        problems: Looks thoroughly at the file, for the doctor.
        findings: What was wrong when the file was opened, and has been mended.
        compared: Whether the directory was of a version that has what the catalogue can be compared with.
        numbers: Durable numbers by name, and counters of ids.
        tenants: Configuration of each tenant.
        namespaces: Policies of each namespace, by its name ``tenant/namespace``.
        topic_policies: What is set for a topic, by its name without its partition; topics without policies are absent.
    """

    def __init__(self, disk: Disk, path: str, *, create: bool, examine: bool = False) -> None:
        """Open the catalogue at ``path``; one of an older version is brought up to date. ``examine``: change nothing.

        Raises:
            DataFormatError: it is missing (unless ``create``), damaged, or not ours.
            DiskFailedError: the disk refused.
        """
        self._file = CatalogueFile(disk, path, create=create, examine=examine)
        self.problems: Final = self._file.problems
        self.findings: Final = self._file.findings
        self.compared: Final = self._file.compared
        try:
            self._database = database = Database(self._file.load())
        except BaseException:
            self._file.close(write=False)
            raise
        self.numbers: Final = Numbers(database)
        self.tenants: Final = NamedObjects(database, "tenants", "config")
        self.namespaces: Final = NamedObjects(database, "namespaces", "policies")
        self.topic_policies: Final = NamedObjects(database, "topic_policies", "policies")
        self.partitioned_topics: Final = PartitionedTopics(database)
        self.topics: Final = Topics(database, self.numbers)
        self.subscriptions: Final = Subscriptions(database, self.numbers)
        self.ledgers: Final = Ledgers(database, self.numbers)

    def close(self, *, write: bool = True) -> None:
        """Close; unless ``write`` is false, what was changed is made durable first. StorageError: that failed."""
        try:
            if write:
                self.flush()
        except BaseException:
            self._file.close(write=False)
            raise
        self._file.close(write=write)
        self._database.close()

    # -- what was changed, and the way into the file

    def call_on_change(self, on_change: Callable[[], None]) -> None:
        """From now on call ``on_change`` when there is a change to take."""
        self._database.on_change = on_change

    @property
    def changed(self) -> bool:
        """Whether there is a change to take."""
        return self._database.changed

    def transaction(self) -> AbstractContextManager[None]:
        """Make all changes inside one: all of them or none. May be nested; only the outermost commits."""
        return self._database.transaction()

    def take_changes(self) -> Callable[[], None] | None:
        """What makes the changes since the last call durable, all or none, on any one thread; None if there are none.

        The results of several calls must be run in that order. They raise StorageError.
        """
        changes = self._database.take()
        return partial(self._file.apply, changes) if changes else None

    @property
    def copy_unsynced(self) -> bool:
        """Whether changes that are durable are not yet durable a second time (``sync_copy``)."""
        return self._file.unsynced

    def sync_copy(self) -> None:
        """Make the second copy of the newest changes durable; called on the worker. OSError: the disk refused."""
        self._file.sync_journal()

    def flush(self) -> None:
        """Make all changes durable here and now: for start and end, while no commit is in flight. StorageError."""
        apply = self.take_changes()
        if apply is not None:
            apply()

    # -- changes of several tables

    def delete_topic(self, topic_id: int) -> None:
        """Delete a topic and its subscriptions; its ledgers become LEDGER_DELETING. Used by ``TopicLog.delete``."""
        with self.transaction():
            self.ledgers.mark_topic_deleting(topic_id)
            self.subscriptions.delete_all(topic_id)
            self.topics.delete(topic_id)

    def trim_ledgers(self, topic_id: int, ledgers: list[int], trimmed: Position, next_index: int) -> None:
        """Retention deletes ``ledgers``; the topic remembers where its data begins."""
        with self.transaction():
            self.ledgers.mark_deleting(ledgers)
            self.topics.set_trimmed(topic_id, trimmed, next_index)
