# SPDX-License-Identifier: Apache-2.0
"""The log of one topic ("managed ledger"): a row of ledgers, of which the last may be open (semantics 1.3).

Entry ids are given at append; everything that is asked and read (``ledger_list``) shows durable entries only. A loaded
log opens no ledger until the first append, so that restarts leave no pile of empty ones (our reading of 1.3.2).

Invariant: message indexes never repeat, also after everything was deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from broker_core.base.errors import AlreadyClosedError, StorageError
from broker_core.base.positions import Position
from broker_core.storage.catalogue import LEDGER_CLOSED, TopicRow
from broker_core.storage.commit import OnDurable
from broker_core.storage.context import StoreContext
from broker_core.storage.ledger import Ledger, remove_ledgers
from broker_core.storage.ledger_list import LedgerList
from broker_core.storage.ledger_writer import LedgerWriter


class LogTerminatedError(StorageError):
    """Nothing can be appended any more, for good."""


class TopicLog(LedgerList):
    """Append, read and find entries of one topic. Made by ``Store.open_log``.

    Attributes:
        topic_id: The topic's id in the catalogue.
        name: Its full name.
        error: Why nothing can be appended (entries are lost, and are not given up by a setting), or None.
    """

    def __init__(
        self, context: StoreContext, topic: TopicRow, ledgers: list[Ledger], on_done: Callable[[TopicLog], None]
    ) -> None:
        """``on_done`` is called when the log is closed or deleted and nothing of it waits to be written, so that
        this object is no longer needed; it may be called more than once."""
        super().__init__(ledgers, topic.trimmed, topic.trimmed_next_index)
        self._context = context
        self._on_done = on_done
        self._clock = context.clock
        self.topic_id: Final = topic.id
        self.name: Final = topic.name
        self._next_index = ledgers[-1].next_index if ledgers else topic.trimmed_next_index
        self._writer: LedgerWriter | None = None
        self._writers: list[LedgerWriter] = []
        self._sealed_entries = 0
        self._listeners: list[Callable[[], None]] = []
        self._waiting: list[Callable[[], None]] = []
        self._closed = False
        self._terminated = False
        self.error = self._refusal()

    # -- writing

    def append(self, body: bytes, messages: int, on_durable: OnDurable) -> Position:
        """Queue an entry and give it its id at once.

        Args:
            body: The entry as it travels: magic, CRC32C, metadata size, metadata, payload. Its checksum was verified.
            messages: How many messages it holds, at least 1.
            on_durable: Called once, in the order of appends: with None when the entry is durable, else with the error.

        Raises:
            DiskFailedError: the store has failed.
            LogTerminatedError: ``terminate`` was called.
            StorageError: this topic is read-only, see ``error``.
            AlreadyClosedError: the log was closed or deleted.
        """
        return self.append_all((body,), (messages,), on_durable)

    def append_all(self, bodies: Sequence[bytes], messages: Sequence[int], on_durable: OnDurable) -> Position:
        """``append`` of entries that came together; ``on_durable`` is called once for all of them.

        Returns the position of the first. The others follow it without a gap: they share a ledger, which may go beyond
        its limits by them.
        """
        now_ms = self._clock.now_ms()
        writer = self._writer
        if writer is None or (now_ms >= writer.roll_after_ms and writer.due(now_ms)):
            writer = self._next_writer()
        return writer.append_all(bodies, messages, now_ms, on_durable)

    def _next_writer(self) -> LedgerWriter:
        if self._closed:
            raise AlreadyClosedError(f"the log of {self.name} is closed")
        if self._terminated:
            raise LogTerminatedError(f"topic {self.name} was terminated")
        if self.error is not None:
            raise self.error
        if self._context.commits.error is not None:
            raise self._context.commits.error
        next_index = self.next_index
        self._seal()
        writer = self._writer = LedgerWriter(self._context, self.topic_id, next_index, self)
        self._writers = [*self._undrained(), writer]
        self._add_ledger(writer.ledger)
        return writer

    def _seal(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            self._next_index = writer.next_index
            self._sealed_entries += writer.entries
            writer.seal()

    def terminate(self) -> None:
        """Refuse every append from now on; what was appended still becomes durable. The caller remembers it."""
        self._terminated = True
        if self._context.commits.error is None:
            self._seal()

    def roll_if_due(self) -> bool:
        """Close the open ledger if it is full or old (semantics 1.3.2); whether it was. Call it now and then."""
        due = self._writer is not None and self._writer.due(self._clock.now_ms())
        if due:
            self._seal()
        return due

    def roll(self) -> None:
        """Close the open ledger, however small and young; one without entries stays open."""
        if self._writer is not None and self._writer.entries and self._context.commits.error is None:
            self._seal()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` once after each commit group that advanced ``last_confirmed``, after its callbacks."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Undo ``add_listener``."""
        self._listeners.remove(listener)

    def entries_durable(self, ledger: Ledger) -> None:
        """``LedgerWriter`` reports: more entries of ``ledger`` became durable, and their callbacks come next."""
        self._entries_added(ledger)

    def callbacks_done(self) -> None:
        """``LedgerWriter`` reports: the callbacks of these entries were called."""
        for listener in list(self._listeners):
            listener()
        self._tell_if_done()

    @property
    def next_index(self) -> int:
        """Message index that the next append begins with; also the number of messages ever appended."""
        return self._next_index if self._writer is None else self._writer.next_index

    @property
    def entries_added(self) -> int:
        """Entries appended since the log was opened, durable or not."""
        return self._sealed_entries + (0 if self._writer is None else self._writer.entries)

    @property
    def synced(self) -> bool:
        """Whether all entries up to ``last_confirmed`` will survive a power loss; with ``durability=async`` that is so
        once a second, when the listeners are called."""
        return all(writer.synced for writer in self._writers)

    def when_stored(self, then: OnDurable) -> None:
        """Call ``then`` when all that was appended so far is durable, at once if it is; else with the error."""
        undrained = self._undrained()
        if not undrained:
            then(self._context.commits.error)
            return
        queue = (self._writer or undrained[-1]).queue  # the open one comes last
        queue.callbacks.append(then)
        if not queue.waiting:
            self._context.commits.wake(queue)

    # -- deleting and closing

    def trim(self, before: Position) -> list[int]:
        """Delete the ledgers that are closed and hold nothing at or after ``before``, oldest first; their ids.

        The files go away in the background, after that is durable.
        """
        if self.error is not None and any(ledger.missing for ledger in self._ledgers):
            return []  # what was lost may be restored
        count = 0
        for ledger in self._ledgers:
            closed = ledger.row.state == LEDGER_CLOSED or ledger.missing
            if not closed or Position(ledger.id, ledger.entries - 1) >= before:
                break
            count += 1
        if count == 0:
            return []
        gone = self._ledgers[:count]
        ids = self._ids[:count]
        trimmed = max(Position(gone[-1].id, gone[-1].entries - 1), self._trimmed)
        self._context.catalogue.trim_ledgers(self.topic_id, ids, trimmed, gone[-1].next_index)
        self._remove_through(gone[-1], trimmed)
        remove_ledgers(self._context, gone)
        self.error = self._refusal()
        return ids

    def close(self) -> None:
        """Close the open ledger; what was appended still becomes durable. Harmless if closed before."""
        if not self._closed:
            self._closed = True
            if self._context.commits.error is None:
                self._seal()
            self._tell_if_done()

    @property
    def closed(self) -> bool:
        """Whether ``close`` or ``delete`` was called."""
        return self._closed

    @property
    def drained(self) -> bool:
        """Nothing of this log is waiting to be written."""
        return not self._undrained()

    def when_drained(self, then: Callable[[], None]) -> None:
        """Call ``then`` when what ``close`` has left is written, or the log is used again; at once if so.

        If the disk refuses, ``then`` is never called.
        """
        if self._closed and not self.drained:
            self._waiting.append(then)
        else:
            then()

    def reopen(self) -> None:
        """Undo ``close``, and ``terminate``, which the caller remembers; the next append begins a new ledger."""
        self._closed = False
        self._terminated = False
        self._tell_waiting()

    def delete(self) -> None:
        """Delete the topic: its entries, its row, its subscriptions, in one step. Entries not yet durable get an error.

        The caller drops the cursors of the subscriptions.
        """
        self._closed = True
        self._writer = None
        self._context.catalogue.delete_topic(self.topic_id)
        self._context.quarantine.report.topic_deleted(self.name)
        for writer in self._undrained():
            writer.abandon(StorageError(f"topic {self.name} was deleted"))
        remove_ledgers(self._context, self._remove_all())
        self._tell_if_done()

    # -- inside

    def _refusal(self) -> StorageError | None:
        lost = [ledger for ledger in self._ledgers if ledger.lost]
        if not lost or self._context.settings.auto_skip_non_recoverable_data:
            return None
        names = ", ".join(ledger.path + (" is missing" if ledger.missing else " is damaged") for ledger in lost[:3])
        return StorageError(
            f"topic {self.name} is read-only because {names}: {sum(each.lost for each in lost)} entries are lost",
            hint="restore the file from a backup, set autoSkipNonRecoverableData=true to give the entries up, or delete"
            " the topic",
        )

    def _tell_if_done(self) -> None:
        if self._closed and self.drained and self._context.commits.error is None:
            self._on_done(self)
            self._tell_waiting()

    def _tell_waiting(self) -> None:
        if not self._waiting:
            return  # no list for each of thousands that are unloaded together: Python would look at all of them at once
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def _undrained(self) -> list[LedgerWriter]:
        """Those of which something waits to be written; the open one may come and go."""
        return [writer for writer in self._writers if not writer.queue.drained]
