# SPDX-License-Identifier: Apache-2.0
"""The owner of the catalogue: its tables, the memory they are in, and the file that keeps them.

What was changed in memory goes into the file with the next group commit, before the writes of its other files
(``take_changes``). So the changes before a receipt are as durable as the receipt says; any other answer waits for them
(``GroupCommit.when_recorded``). A change that concerns several tables is made here, the others in the files of their
tables. Does not know what names mean, nor of entries.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from broker_core.base.positions import Position
from broker_core.storage import layout
from broker_core.storage.catalogue.aborted_entries import AbortedEntries
from broker_core.storage.catalogue.database import Database
from broker_core.storage.catalogue.file import CatalogueFile, read_catalogue
from broker_core.storage.catalogue.ledger_ids import LedgerIds
from broker_core.storage.catalogue.ledgers import Ledgers
from broker_core.storage.catalogue.named_values import NamedObjects, Numbers
from broker_core.storage.catalogue.pending_acks import PendingAckRows
from broker_core.storage.catalogue.schema import CONTRADICTIONS, TABLES
from broker_core.storage.catalogue.schemas import Schemas
from broker_core.storage.catalogue.subscriptions import Subscriptions
from broker_core.storage.catalogue.topics import PartitionedTopics, Topics
from broker_core.storage.catalogue.transactions import Transactions
from broker_core.storage.disk import Disk, copy_aside, fail_stop
from broker_core.storage.report import Damage


class Catalogue(Database):
    """The catalogue of one data directory: the tables in memory, and the file that keeps them.

    Attributes:
        findings: What was wrong with the files when they were read, and was mended or given up.
        file: The file and its copy, which ``Store`` has synced.
        numbers: Durable numbers by name, and counters of ids.
        tenants: Configuration of each tenant.
        namespaces: Policies of each namespace, by its name ``tenant/namespace``.
        topic_policies: What is set for a topic, by its name without its partition; topics without policies are absent.
    """

    def __init__(self, disk: Disk, directory: str, *, create: bool, incarnation: int = 0) -> None:
        """Read the catalogue of ``directory``, and change nothing there before ``begin``.

        ``create``: the directory is perhaps only being made; without its files the catalogue is empty then.
        ``incarnation``: of this opening, for ids of ledgers (``ledger_ids``); who makes no ledger needs none.

        Raises:
            DataFormatError: it is missing (unless ``create``) or damaged.
            DiskFailedError: the disk refused.
        """
        super().__init__()
        self._disk = disk
        self._directory = directory
        with fail_stop():
            recorded = read_catalogue(disk, directory, create=create)
        if recorded is not None:
            self.restore(recorded.snapshot, recorded.changes)
        self._memory.executescript(TABLES)  # one of an older version lacks some
        self.file: Final = CatalogueFile(disk, directory, 0 if recorded is None else recorded.number)
        self.findings: Final[list[Damage]] = [] if recorded is None else recorded.findings
        self._has_lost_changes = recorded is not None and recorded.has_lost_changes
        self.numbers: Final = Numbers(self)
        self.tenants: Final = NamedObjects(self, "tenants", "config")
        self.namespaces: Final = NamedObjects(self, "namespaces", "policies")
        self.topic_policies: Final = NamedObjects(self, "topic_policies", "policies")
        self.partitioned_topics: Final = PartitionedTopics(self)
        self.schemas: Final = Schemas(self, self.numbers)
        self.topics: Final = Topics(self, self.numbers)
        self.pending_acks: Final = PendingAckRows(self)
        self.subscriptions: Final = Subscriptions(self, self.numbers, self.pending_acks)
        self.transactions: Final = Transactions(self, self.numbers)
        self.aborted_entries: Final = AbortedEntries(self)
        self.ledgers: Final = Ledgers(
            self, LedgerIds(self.numbers, None if create else incarnation), self.aborted_entries
        )

    def begin(self) -> None:
        """Begin the files anew with what memory holds, at the start, before anything is built on it; files that were
        not as they should be are laid aside. DiskFailedError: the disk refused."""
        if self._has_lost_changes:
            self.schemas.changes_are_lost()
        self.take()
        with fail_stop():
            for path in {damage.path for damage in self.findings}:
                copy_aside(self._disk, path, layout.set_aside_path(path, self.file.number))
            self.file.begin(self.snapshot())

    def close(self, *, write: bool = True) -> None:
        """Close; unless ``write`` is false, what was changed is made durable first. StorageError: that failed."""
        try:
            if write:
                self.flush()
                with fail_stop():
                    self.file.sync_copy()
        finally:
            self.file.close()
            self._memory.close()

    def contradictions(self) -> list[str]:
        """Rows that contradict others, for the doctor; none but by a fault of the broker."""
        return [f"{what}: {row[0]}" for what, sql in CONTRADICTIONS.items() for row in self.rows(sql)]

    # -- what was changed, and the way into the file

    def take_changes(self) -> Callable[[], None] | None:
        """Step that makes the changes since the last call durable, all or none, on any one thread; None if none.

        The results of several calls must be run in that order. They raise StorageError, or OSError as the disk does.
        """
        changes = self.take()
        if not changes:
            return None
        if not self.file.full:
            return partial(self.file.append, changes)
        self.file.full = False
        return partial(self.file.begin, self.snapshot())

    def flush(self) -> None:
        """Make all changes durable here and now: for start and end, while no commit is in flight. StorageError."""
        apply = self.take_changes()
        if apply is not None:
            with fail_stop():
                apply()

    # -- changes of several tables

    def delete_topic(self, topic_id: int) -> None:
        """Delete a topic and its subscriptions; its ledgers become LEDGER_DELETING. Used by ``TopicLog.delete``."""
        with self.transaction():
            self.ledgers.mark_topic_deleting(topic_id)
            self.subscriptions.delete_all(topic_id)
            self.transactions.drop_all_of_topic(topic_id)
            self.topics.delete(topic_id)

    def trim_ledgers(self, topic_id: int, ledgers: list[int], trimmed: Position, next_index: int) -> None:
        """Retention deletes ``ledgers``; the topic remembers where its data begins."""
        with self.transaction():
            self.ledgers.mark_deleting(ledgers)
            self.topics.set_trimmed(topic_id, trimmed, next_index)
