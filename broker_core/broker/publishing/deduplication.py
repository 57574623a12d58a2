# SPDX-License-Identifier: Apache-2.0
"""``Deduplication``: which sequence ids of which producer are in a topic already, and what that means for a send.

Two numbers for each producer name: ``pushed`` is the highest id that was accepted, ``persisted`` the highest that is
stored. An id at or below ``persisted`` is a duplicate; one between the two is being stored, so that its outcome is not
known yet. ``DeduplicationCursor`` keeps the numbers over a restart.

Invariants (semantics I1.5): ``persisted`` <= ``pushed`` for each name; while a name is known each of its ids is
accepted at most once, in rising order, unless storing it failed. Only names whose producer is not connected are
forgotten. A producer whose messages a replicator brings is never connected itself; it counts as having left with the
last of them.
Source: Pulsar docs, "Message deduplication"; PIP-6; semantics 1.8.
"""

from __future__ import annotations

import logging
from typing import Final

from broker_core.base.clock import Clock, TimerHandle, Timers
from broker_core.base.errors import ProtocolError, ServiceNotReadyError, StorageError
from broker_core.base.limits import PRODUCER_NAME_BYTES_MAX
from broker_core.base.positions import POSITION_EARLIEST, to_signed64
from broker_core.base.settings import Settings
from broker_core.broker.rates import Traffic
from broker_core.storage.catalogue import INTERNAL_PREFIX, SubscriptionRow
from broker_core.storage.commit import OnDurable
from broker_core.storage.cursor_state import CursorState, MarkDelete, MarkDeleteWith
from broker_core.storage.ledger import UnreadableEntryError
from broker_core.storage.store import Store
from broker_core.storage.topic_log import TopicLog
from broker_core.wire.entry import BytesLike, read_metadata, text_of
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata

REPLICATOR_PREFIX: Final = "pulsar.repl."
"""Names of producers that bring messages from another cluster begin with this."""

NEW: Final = 0
DUPLICATE: Final = 1
UNKNOWN: Final = 2
"""The three verdicts. Plain numbers, because one is given for every entry."""


class Deduplication:
    """The sequence ids of one topic. Times are monotonic seconds."""

    def __init__(self, producers_max: int, now_s: float) -> None:
        """``producers_max``: of how many names the ids are kept; those whose producer left first go first."""
        self.pushed: dict[str, int] = {}
        self.persisted: dict[str, int] = {}
        self._producers_max = producers_max
        self._here: set[str] = set()
        self._left: dict[str, float] = {}
        self._now_s = now_s

    # -- for each entry

    def verdict(self, name: str, sequence_id: int) -> int:
        """NEW, DUPLICATE or UNKNOWN. Of a batch ``sequence_id`` is the lowest id (semantics 1.8.4)."""
        pushed = self.pushed.get(name)
        if pushed is None or sequence_id > pushed:
            return NEW
        persisted = self.persisted.get(name)
        return DUPLICATE if persisted is not None and sequence_id <= persisted else UNKNOWN

    def push(self, name: str, last_id: int) -> None:
        """An entry that is NEW was appended; ``last_id`` is its highest id."""
        self.pushed[name] = last_id

    def stored(self, name: str, last_id: int) -> None:
        """The entry, which may have been sent before deduplication was last turned on, is durable."""
        self.persisted[name] = last_id
        if last_id > self.pushed.get(name, -1):
            self.pushed[name] = last_id
        if name not in self._here:
            self._note_left(name)

    def failed(self) -> None:
        """An entry could not be stored, and nothing that is in flight will be: it may all be sent again."""
        self.pushed = dict(self.persisted)

    # -- for each producer

    def is_storing(self, name: str) -> bool:
        """Whether an entry of ``name`` is accepted and not stored, so that a crash may take it back."""
        return self.pushed.get(name) != self.persisted.get(name)

    def last_sequence_id(self, name: str) -> int:
        """The highest id accepted from ``name``, -1 if none is known (semantics 1.7.3)."""
        return self.pushed.get(name, -1)

    def came(self, name: str) -> None:
        """A producer of that name has connected."""
        self._here.add(name)
        self._left.pop(name, None)

    def left(self, name: str, now_s: float) -> None:
        """The producer of that name has gone; its ids are kept for a while."""
        self._here.discard(name)
        self._now_s = now_s
        self._note_left(name)

    def _note_left(self, name: str) -> None:
        self._left.pop(name, None)
        if name in self.pushed:
            self._left[name] = self._now_s
        while len(self.pushed) > self._producers_max and self._left:
            self._forget(next(iter(self._left)))

    def forget_inactive(self, now_s: float, timeout_s: float) -> int:
        """Forget the names whose producer left longer ago; how many there were. Call it now and then."""
        self._now_s = now_s
        gone = []
        for name, left_s in self._left.items():  # in the order of leaving
            if left_s >= now_s - timeout_s:
                break
            gone.append(name)
        for name in gone:
            self._forget(name)
        return len(gone)

    def _forget(self, name: str) -> None:
        del self._left[name]
        self.pushed.pop(name, None)
        self.persisted.pop(name, None)

    # -- over a restart

    def snapshot(self) -> dict[str, int]:
        """The state to keep: ``persisted``, in the order in which the producers left, but not of more names than
        allowed."""
        persisted, left = self.persisted, self._left
        names = [name for name in left if name in persisted] + [name for name in persisted if name not in left]
        return {name: persisted[name] for name in names[-self._producers_max :]}

    def restore(self, persisted: dict[str, int], now_s: float) -> None:
        """Take a snapshot over. No producer is connected yet."""
        for name, last_id in persisted.items():
            self._restore(name, last_id, now_s)

    def replay(self, body: BytesLike, now_s: float) -> None:
        """An entry that was stored after the snapshot; what cannot be read says nothing about ids."""
        try:
            metadata = read_metadata(body)
        except ProtocolError:
            return
        if metadata.marker_type or is_unfinished_chunk(metadata.chunk_id, metadata.num_chunks_from_msg):
            return
        name, first, highest = ids_of(metadata)
        if len(name.encode()) > PRODUCER_NAME_BYTES_MAX:
            return  # No producer was let in under it, and snapshots with many such names would be huge.
        self._restore(name, max(first, highest, self.persisted.get(name, -1)), now_s)

    def _restore(self, name: str, last_id: int, now_s: float) -> None:
        self.pushed[name] = self.persisted[name] = last_id
        self.left(name, now_s)


def ids_of(metadata: MessageMetadata) -> tuple[str, int, int]:
    """Producer name, lowest and highest sequence id that an entry was first sent with; the highest may be 0.

    An entry that a replicator brings keeps them, whatever the replicator is called itself (semantics 1.8.2).
    """
    return (
        text_of(metadata.producer_name),
        to_signed64(metadata.sequence_id),
        to_signed64(metadata.highest_sequence_id),
    )


def is_unfinished_chunk(chunk_id: int, chunks: int) -> bool:
    """Whether a chunk is not the last one of its message. All chunks have the same id, so only the last one counts."""
    return chunks > 1 and chunk_id < chunks - 1


def is_recorded(chunk: BytesLike) -> bool:
    """Whether the entry of a chunk is checked and recorded (semantics 1.8.3): only the last one of a message is."""
    metadata = read_metadata(chunk)
    return not is_unfinished_chunk(metadata.chunk_id, metadata.num_chunks_from_msg)


logger = logging.getLogger(__name__)

CURSOR_NAME: Final = INTERNAL_PREFIX + "dedup"

REPLAY_BYTES_MAX: Final = 64 * 1024 * 1024
"""A snapshot is due after so many bytes, too: reading them back takes about a tenth of a second."""

_LOOK_AGAIN_S: Final = 120.0
"""How often producers that are gone are looked for where the interval of snapshots is 0, which means none by time."""

_READ_ENTRIES: Final = 1000
_READ_BYTES: Final = 4 * 1024 * 1024


class DeduplicationCursor:
    """The deduplication of one topic while it is on. ``ids`` has the numbers; the internal cursor ``pulsar.dedup``
    keeps them over a restart.

    A snapshot is one record of the cursor log: the mark-delete position and, as its properties, the highest stored id
    of each producer at that position. Recovery takes the last snapshot and replays the entries behind it. So a crash
    costs nothing but a replay, which is kept short: a snapshot is due after so many entries or bytes, or some time, and
    when the topic is unloaded. Retention must not delete behind ``released_through``.

    A snapshot is taken only between two commit groups, when the numbers and ``last_confirmed`` belong together; one at
    a time is under way. It costs as much as there are names, so with many names it is taken more rarely. While entries
    are written but not synced yet (``durability=async``) none is taken: a power loss may leave the snapshot and not the
    entries, and a message sent again would be confirmed as a duplicate and be stored nowhere.
    """

    def __init__(
        self, log: TopicLog, store: Store, clock: Clock, timers: Timers, settings: Settings, traffic: Traffic
    ) -> None:
        """Recover what is stored; a topic that had no such cursor remembers what is sent from now on.

        ``traffic`` counts what is published. Entries that wait to be written must come from producers that are still
        connected, for those of a former life of the topic would be missed.

        Raises:
            ServiceNotReadyError: the disk refuses an entry that has to be replayed, or what cursors have recorded, and
                nothing is left of the attempt.
        """
        self.ids = Deduplication(settings.broker_deduplication_max_number_of_producers, clock.monotonic())
        self._settings = settings
        """May be replaced; what is different holds from the next snapshot on."""
        self._log = log
        self._store = store
        self._clock = clock
        self._timers = timers
        self._id = self._row(clock.now_ms()).id
        state = store.cursors.recover(self._id) or CursorState(log.last_confirmed)
        self.released_through = min(state.mark_delete, log.last_confirmed)
        """Everything up to here is in the newest snapshot, which ``when_released`` waits for: after a reload
        it may not be durable."""
        self._begun = self.released_through
        self._traffic = traffic
        self._begun_bytes = traffic.bytes
        self._properties = dict(state.properties)
        self._under_way = False
        self._due = False
        self._recover()
        store.cursors.attach(self._id, self._state)
        log.add_listener(self._entries_came)
        self._timer: TimerHandle = self._arm()

    def close(self) -> None:
        """The topic is unloaded: write what is new, unless that is not synced; the next load replays it then."""
        self._stop()
        if self._begun < self._log.last_confirmed:
            self._take()
        self._store.cursors.detach(self._id)

    def apply(self, settings: Settings) -> None:
        """A setting was changed; it holds from now on."""
        self._settings = settings

    def drop(self) -> None:
        """Forget everything, for good. The row in the catalogue may be gone with its topic."""
        self._stop()
        self._store.catalogue.subscriptions.delete(self._id)
        self._store.cursors.drop(self._id)

    # -- snapshots

    def when_released(self, on_durable: OnDurable) -> None:
        """For retention: call ``on_durable`` when the snapshot is durable, which an unload may have left unwritten."""
        nothing = MarkDelete(POSITION_EARLIEST)  # changes nothing; its record is written behind the snapshot's
        try:
            self._store.cursors.record(self._id, nothing, on_durable, synced=True)
        except StorageError as error:
            on_durable(error)

    def _entries_came(self) -> None:
        """Once for each commit group, after its receipts."""
        log = self._log
        entries = log.count_entries(self._begun, log.last_confirmed)
        due = max(self._settings.broker_deduplication_entries_interval, len(self.ids.persisted))
        if self._due or entries >= due or self._traffic.bytes - self._begun_bytes >= REPLAY_BYTES_MAX:
            self._take()

    def _tick(self) -> None:
        self._timer = self._arm()
        timeout_s = self._settings.broker_deduplication_producer_inactivity_timeout_minutes * 60
        forgotten = self.ids.forget_inactive(self._clock.monotonic(), timeout_s)
        interval_s = self._settings.broker_deduplication_snapshot_interval_seconds
        if forgotten or (interval_s and self._begun < self._log.last_confirmed):
            self._take()

    def _take(self) -> None:
        self._due = not self._log.synced
        if self._due or self._under_way:
            return
        position = self._begun = self._log.last_confirmed
        self._begun_bytes = self._traffic.bytes
        self._properties = self.ids.snapshot()

        def taken(error: StorageError | None) -> None:
            self._under_way = False
            if error is None:
                self.released_through = position

        self._under_way = True
        try:
            self._store.cursors.record(self._id, MarkDeleteWith(position, self._properties), taken)
        except StorageError as error:  # the store has failed and has reported that
            logger.warning("deduplication snapshot failed topic=%s error=%s", self._log.name, error)

    def _state(self) -> CursorState:
        """The whole state of the cursor, for the compaction of the cursor log."""
        return CursorState(self._begun, properties=self._properties)

    # -- recovery

    def _row(self, now_ms: int) -> SubscriptionRow:
        if (unread := self._store.cursors.unread) is not None:
            raise ServiceNotReadyError(unread.message, hint=unread.hint)
        catalogue, topic_id = self._store.catalogue, self._log.topic_id
        row = catalogue.subscriptions.internal_cursor(topic_id, CURSOR_NAME)
        return row or catalogue.subscriptions.create(topic_id, CURSOR_NAME, self._log.last_confirmed, now_ms)

    def _recover(self) -> None:
        now_s = self._clock.monotonic()
        self.ids.restore(self._properties, now_s)
        log, at, last = self._log, self.released_through, self._log.last_confirmed
        while at < last:
            start = log.next_valid(at)
            try:
                entries = log.read(start, _READ_ENTRIES, _READ_BYTES, through=last)
            except UnreadableEntryError as error:
                if error.refused:  # it may be the last of its producer, which would then be stored twice
                    raise ServiceNotReadyError(
                        f"what was sent to {log.name} before cannot be read: {error.message}", hint="try again"
                    ) from error
                # It is never delivered either; a later entry of its producer says more than it did.
                logger.warning(
                    "deduplication passes over entries topic=%s through=%s error=%s", log.name, error.through, error
                )
                at = error.through
                continue
            for entry in entries:
                self.ids.replay(entry.body, now_s)
            at = entries[-1].position if entries else last

    # -- parts

    def _arm(self) -> TimerHandle:
        interval_s = self._settings.broker_deduplication_snapshot_interval_seconds
        return self._timers.call_later(interval_s or _LOOK_AGAIN_S, self._tick)

    def _stop(self) -> None:
        self._timer.cancel()
        self._log.remove_listener(self._entries_came)


def forget_sequence_ids(topic_id: int, store: Store) -> None:
    """Remove what an earlier start has kept for a topic whose deduplication is off now."""
    row = store.catalogue.subscriptions.internal_cursor(topic_id, CURSOR_NAME)
    if row is not None:
        store.catalogue.subscriptions.delete(row.id)
        store.cursors.drop(row.id)
