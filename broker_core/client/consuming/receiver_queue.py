# SPDX-License-Identifier: Apache-2.0
"""Messages that were pushed and not yet taken, for all partitions and topics of one consumer together.

Thread-safe: the event loop puts, application threads take. Taking and the accounting of permits happen under one
lock, so permits are conserved whatever the threads do. A consumer whose partitions share this queue holds at most the
sum of their queue sizes, since a permit goes back to the broker only when its message is taken. ``permits`` sees to it
that this is not too much in bytes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from copy import copy
from typing import NamedTuple

from broker_core.base.errors import PulsarishError
from broker_core.base.positions import Position
from broker_core.client.messages.message import Message, Source


class Undeliverable(NamedTuple):
    """Stands for messages that cannot be shown: ``take`` raises ``failure`` there."""

    source: Source
    failure: PulsarishError


class ReceiverQueue:
    """The queue of one consumer."""

    def __init__(self) -> None:
        self._items: deque[Message | Undeliverable] = deque()
        self._waiters: dict[Callable[[], None], None] = {}
        self._end: PulsarishError | None = None
        self._paused = False
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiters)

    def put(
        self, source: Source, items: Iterable[Message | Undeliverable], charged: int, dropped: int, size_bytes: int = -1
    ) -> None:
        """Queue what came in one entry.

        ``charged``: the permits that the broker took for it; ``dropped`` of them go back without being taken.
        ``size_bytes``: of all that they were taken for, -1: unknown.
        """
        with self._lock:
            self._items.extend(items)
            source.permits.delivered(charged)
            due = source.permits.sized(charged, size_bytes) if size_bytes >= 0 and charged else 0
            if dropped:
                due += source.permits.returned(dropped)
            woken, self._waiters = self._waiters, {}
        if due:
            source.flow_later(due, source.attachments)
        for wake in woken:
            wake()

    def take(self) -> Message | None:
        """The oldest message, or None. Raises what stands in a message's place, or why there will be no more."""
        with self._lock:
            if not self._items:
                if self._end is not None:
                    raise copy(self._end)  # which would keep the trace of each time
                return None
            item = self._items.popleft()
            source = item.source
            due = source.permits.returned(1)
            attachment = source.attachments
            if isinstance(item, Message):
                source.taken(item)
        if due:
            source.flow_later(due, attachment)
        if isinstance(item, Undeliverable):
            raise item.failure
        return item

    def want(self, source: Source) -> None:
        """A consumer without prefetch waits for a message of ``source``."""
        with self._lock:
            due = source.permits.wanted()
            attachment = source.attachments
        if due:
            source.flow_later(due, attachment)

    def pause(self, sources: Iterable[Source]) -> None:
        """Send no more permits for ``sources``, nor for those that come later. What is on its way still comes."""
        with self._lock:
            self._paused = True
            for source in sources:
                source.permits.paused = True

    def resume(self, sources: Iterable[Source]) -> None:
        """Send the permits that are owed, and go on."""
        with self._lock:
            self._paused = False
            owed = [(source, source.permits.resumed(), source.attachments) for source in sources]
        for source, due, attachment in owed:
            if due:
                source.flow_later(due, attachment)
        self.wake()

    def clear(self, source: Source, message_bytes_max: int = 0) -> int:
        """Drop everything of ``source`` and begin its permits anew for the next attachment; returns these permits.

        ``message_bytes_max``: the largest message of the broker there; 0: unknown.
        """
        with self._lock:
            self._items = deque(item for item in self._items if item.source is not source)
            source.attachments += 1
            source.permits.paused = self._paused
            return source.permits.attached(message_bytes_max)

    def drop(self, source: Source) -> None:
        """Drop everything of ``source``; its permits go back to the broker, which will push it again."""
        self._keep(source, lambda item: item.source is not source)

    def drop_entries(self, source: Source, positions: Collection[Position]) -> None:
        """Drop single entries of ``source``, as ``drop``: batches of which some messages were taken already."""

        def stays(item: Message | Undeliverable) -> bool:
            return (
                item.source is not source
                or isinstance(item, Undeliverable)
                or item.message_id.position not in positions
            )

        self._keep(source, stays)

    def batch_indexes(self, source: Source, position: Position) -> set[int]:
        """The messages of one entry of ``source`` that are queued, by their numbers in their batch."""
        with self._lock:
            return {
                item.message_id.batch_index
                for item in self._items
                if isinstance(item, Message) and item.source is source and item.message_id.position == position
            }

    def resize(self, source: Source, size: int, bytes_max: int = 0) -> None:
        """Grant ``source`` another share of the queue; permits that are out already come back first."""
        with self._lock:
            due = source.permits.resize(size, bytes_max)
            attachment = source.attachments
        if due:
            source.flow_later(due, attachment)

    def _keep(self, source: Source, stays: Callable[[Message | Undeliverable], bool]) -> None:
        with self._lock:
            kept = deque(item for item in self._items if stays(item))
            due = source.permits.returned(len(self._items) - len(kept))
            self._items = kept
            attachment = source.attachments
        if due:
            source.flow_later(due, attachment)

    def end(self, failure: PulsarishError) -> None:
        """No more will come: ``take`` raises ``failure`` once the queue is empty."""
        with self._lock:
            self._end = self._end or failure
        self.wake()

    def wake(self) -> None:
        """Have all who wait look again, at once."""
        with self._lock:
            woken, self._waiters = self._waiters, {}
        for wake in woken:
            wake()

    def wake_later(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` once, on any thread, when ``take`` is worth calling; at once if it is now."""
        with self._lock:
            if not self._items and self._end is None:
                self._waiters[wake] = None
                return
        wake()

    def wake_no_more(self, wake: Callable[[], None]) -> None:
        """Take ``wake_later`` back: on a quiet topic a caller that asks again would be remembered each time."""
        with self._lock:
            self._waiters.pop(wake, None)
