# SPDX-License-Identifier: Apache-2.0
"""``TopicDelays``: delayed delivery of one topic: which kind of tracker its dispatchers get, and the index they share.

The index is made when the first dispatcher of a Shared or Key_Shared subscription comes, for only these hold messages
back (semantics 6.1.2); a topic without them has none, and its buckets on disk are left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker_core.base.clock import Clock, Timers
from broker_core.base.errors import NotAllowedError
from broker_core.base.settings import Settings
from broker_core.broker.delayed.bucket_tracker import BucketTracker
from broker_core.broker.delayed.index import BucketLimits, DelayedIndex
from broker_core.broker.delayed.tracker import Acknowledged, DelayedTracker, DueRule, InMemoryTracker
from broker_core.storage.buckets import BucketStore
from broker_core.storage.topic_log import TopicLog
from broker_core.wire.entry_peek import deliver_at_ms


class DelaysHost(Protocol):
    """The topic, as far as delayed delivery is concerned."""

    topic_id: int
    log: TopicLog
    clock: Clock
    timers: Timers
    settings: Settings

    def start_over(self) -> None:
        """Have the topic loaded anew, not at once: something of it is lost that only reading its log can tell."""
        ...


class TopicDelays:
    """``index`` is None until a dispatcher needs it."""

    def __init__(self, host: DelaysHost, store: BucketStore, oldest_needed_ledger: Callable[[], int]) -> None:
        """``oldest_needed_ledger``: the lowest ledger that any subscription of the topic may still read."""
        self.index: DelayedIndex | None = None
        self._host = host
        self._store = store
        self._oldest_needed_ledger = oldest_needed_ledger

    def tracker(self, cursor: Acknowledged) -> DelayedTracker | None:
        """Make the tracker of a new Shared or Key_Shared dispatcher; None: delayed delivery is switched off."""
        host, settings = self._host, self._host.settings
        if not settings.delayed_delivery_enabled:
            return None
        due = DueRule.of(host.clock, settings)
        if settings.delayed_delivery_tracker_factory_class_name.endswith("InMemoryDelayedDeliveryTrackerFactory"):
            look_ahead = settings.delayed_delivery_fixed_delay_detection_lookahead
            return InMemoryTracker(due, host.timers, cursor, look_ahead)
        if self.index is None:
            limits = BucketLimits.of(settings)
            self.index = DelayedIndex(
                host.topic_id,
                self._store,
                host.log,
                host.timers,
                limits,
                self._oldest_needed_ledger,
                host.start_over,
            )
        return BucketTracker(self.index, due, host.timers, cursor)

    @property
    def limited(self) -> bool:
        """Whether there is a longest delay, so that ``refusal`` must be asked."""
        return self._host.settings.delayed_delivery_max_delay_in_millis > 0

    def refusal(self, body: bytes) -> NotAllowedError | None:
        """Why an entry may not be published: its delay is too long (semantics 6.1.6)."""
        max_ms = self._host.settings.delayed_delivery_max_delay_in_millis
        delay_ms = deliver_at_ms(body) - self._host.clock.now_ms() if max_ms else 0
        if delay_ms <= max_ms:
            return None
        return NotAllowedError(
            f"a message delayed by {delay_ms} ms was refused: the longest delay is {max_ms} ms",
            hint="send it later, or raise delayedDeliveryMaxDelayInMillis",
        )

    def trimmed(self, first_ledger: int) -> None:
        """The log begins with that ledger now."""
        if self.index is not None:
            self.index.trim(first_ledger)

    def histogram(self, step_ms: int) -> dict[int, int]:
        """Entries that fall due from now on: start of each step in milliseconds since the epoch -> how many."""
        return {} if self.index is None else self.index.histogram(self._host.clock.now_ms(), step_ms)

    def close(self) -> None:
        """The topic is unloaded. Its dispatchers are gone."""
        if self.index is not None:
            self.index.close()
            self.index = None

    def delete(self) -> None:
        """The topic is deleted."""
        if self.index is not None:
            self.index.clear()
            self.index = None
        self._store.remove_all(self._host.topic_id)
