# SPDX-License-Identifier: Apache-2.0
"""``DeduplicationCursor``: keeps the sequence ids of one topic over a restart, in the internal cursor ``pulsar.dedup``.

A snapshot is one record of the cursor log: the mark-delete position and, as its properties, the highest stored id of
each producer at that position. Recovery takes the last snapshot and replays the entries behind it. So a crash costs
nothing but a replay, which is kept short: a snapshot is due after so many entries or bytes, or some time, and when the
topic is unloaded. Retention must not delete behind ``released_through``.

A snapshot is taken only between two commit groups, when the numbers and ``last_confirmed`` belong together; one at a
time is under way. It costs as much as there are names, so with many names it is taken more rarely. Of what is written
but not synced yet (``durability=async``) none is taken: a power loss may leave the snapshot and not the entries, and
what is sent again would be confirmed as a duplicate and be stored nowhere.
Source: Pulsar docs, "Message deduplication"; semantics 1.8.
"""

from __future__ import annotations

import logging
from typing import Final

from broker_core.base.clock import Clock, TimerHandle, Timers
from broker_core.base.errors import ServiceNotReadyError, StorageError
from broker_core.base.positions import POSITION_EARLIEST
from broker_core.base.settings import Settings
from broker_core.broker.publishing.deduplication import Deduplication
from broker_core.broker.rates import Traffic
from broker_core.storage.catalogue import INTERNAL_PREFIX, SubscriptionRow
from broker_core.storage.commit import OnDurable
from broker_core.storage.cursor_state import CursorState, MarkDelete, MarkDeleteWith
from broker_core.storage.ledger import UnreadableEntryError
from broker_core.storage.store import Store
from broker_core.storage.topic_log import TopicLog

logger = logging.getLogger(__name__)

CURSOR_NAME: Final = INTERNAL_PREFIX + "dedup"

REPLAY_BYTES_MAX: Final = 64 * 1024 * 1024
"""A snapshot is due after so many bytes, too: reading them back takes about a tenth of a second."""

_LOOK_AGAIN_S: Final = 120.0
"""How often producers that are gone are looked for where the interval of snapshots is 0, which means none by time."""

_READ_ENTRIES: Final = 1000
_READ_BYTES: Final = 4 * 1024 * 1024


class DeduplicationCursor:
    """The deduplication of one topic while it is on. ``ids`` has the numbers."""

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


def forget(topic_id: int, store: Store) -> None:
    """Remove what an earlier start has kept for a topic whose deduplication is off now."""
    row = store.catalogue.subscriptions.internal_cursor(topic_id, CURSOR_NAME)
    if row is not None:
        store.catalogue.subscriptions.delete(row.id)
        store.cursors.drop(row.id)
