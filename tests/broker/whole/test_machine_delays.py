# SPDX-License-Identifier: Apache-2.0
"""Random histories with delayed messages: never early, never lost, never twice (I6.1, I6.3, I6.5 to I6.8, I6.11).

Delivery is strict here. Whether an entry came early is asked at every delivery; whether all that was due has come,
whenever there was time enough for it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from broker_core.base.policies import DelayedDelivery, Policies
from broker_core.base.settings import Settings
from broker_core.base.steps import drained
from broker_core.broker.delayed.bucket import last_key
from broker_core.broker.dispatch.many_consumers import ManyConsumersDispatcher
from broker_core.broker.requests import SubscriptionType
from tests.broker.whole.entry import Entry
from tests.broker.whole.machine import WHICH, WholeBrokerMachine
from tests.broker.whole.topic_machine import KEYS, PICK
from tests.broker.world import SHARED, TINY

DELAYED = msgspec.structs.replace(
    TINY,
    max_unacked_messages_per_consumer=1000,
    max_unacked_messages_per_subscription=2000,
    is_delayed_delivery_deliver_at_time_strict=True,
    delayed_delivery_tick_time_millis=1,
    delayed_delivery_min_index_count_per_bucket=3,
    delayed_delivery_max_time_step_per_bucket_snapshot_segment_seconds=2,
    delayed_delivery_max_indexes_per_bucket_snapshot_segment=2,
)
"""Everything tiny (I6.2): three indexes a bucket, two a segment, four entries a ledger. Nobody has to stop."""

SHARING = st.sampled_from([SHARED, SHARED, SubscriptionType.KEY_SHARED])
DELAY_MS = st.one_of(st.none(), st.integers(-500, 20_000), st.sampled_from([1000, 5000]))


class DelaysMachine(WholeBrokerMachine):
    """``patience_ms``: the longest sleep of a tracker, after which it has noticed whatever happened to the clock."""

    tuning: ClassVar[Settings] = DELAYED
    patience_ms: ClassVar[int] = 10_100

    @rule(entries=st.lists(st.tuples(DELAY_MS, st.sampled_from(KEYS)), min_size=1, max_size=12), wait=st.booleans())
    def publish_delayed(self, entries: list[tuple[int | None, str]], wait: bool) -> None:
        now_ms = self.world.clock.now_ms()
        for delay_ms, key in entries:
            self.send(Entry(key=key, due_ms=0 if delay_ms is None else now_ms + delay_ms))
        if wait:
            self.settle()

    @rule(name=WHICH, kind=SHARING, permits=st.sampled_from([3, 1000]))
    def sharer_comes(self, name: str, kind: SubscriptionType, permits: int) -> None:
        """Only they hold anything back (6.1.2)."""
        self.somebody_comes(name, kind, permits)

    @rule(active=st.booleans(), tick_ms=st.sampled_from([1, 1, 400]))
    def set_the_policy(self, active: bool, tick_ms: int) -> None:
        """6.1.9: it holds at once. Switched on nothing is early; nothing comes twice and nothing is lost."""
        delays = DelayedDelivery(active, tick_ms)
        for model in self.models.values():
            model.holds_back = active
        drained(self.world.broker.set_topic_policies(self.topic.name, Policies(delayed_delivery_policies=delays)))
        self.settle_down()

    @rule(ms=st.sampled_from([-7000, -1500, 1500, 7000]))
    def set_the_clock(self, ms: int) -> None:
        """6.2.2: what was given out is held back again if the clock was set back."""
        self.world.clock.step_wall_clock(ms)

    @precondition(lambda self: self.log)
    @rule(name=WHICH, which=PICK)
    def cancel(self, name: str, which: int) -> None:
        """One message, delayed or not, is not wanted any more."""
        position = self.pick_entry(which)
        self.models[name].acked(position, 0)
        self.topic.subscriptions[name].cancel(position)

    @rule(name=WHICH, who=PICK, permits=st.sampled_from([5, 1000]))
    def wait_long(self, name: str, who: int, permits: int) -> None:
        """I6.1 (I6.12): all that was due has come, as far as there is somebody who can take it."""
        self.flow(name, who, permits)
        self.settle()
        before_ms = self.world.clock.now_ms()
        self.world.clock.advance(self.patience_ms)
        self.settle()
        for each, model in self.models.items():
            overdue = model.overdue(is_blocked=self.is_held_up(each), due_by_ms=before_ms)
            assert overdue == [], f"{each}: not delivered, though it was due at {before_ms}"

    @rule(name=WHICH, who=PICK)
    def wait_almost_long_enough(self, name: str, who: int) -> None:
        """6.1.3 (I6.1): a millisecond before the next one is due somebody wants more."""
        now_ms = self.world.clock.now_ms()
        next_ms = min((entry.due_ms for entry in self.log.values() if entry.due_ms > now_ms), default=now_ms + 1)
        self.world.clock.advance(next_ms - now_ms - 1)
        self.flow(name, who, 5)
        self.settle_down()

    def finish(self) -> None:
        self.settle()
        last_ms = max((entry.due_ms for entry in self.log.values()), default=0)
        self.world.clock.advance(max(0, last_ms - self.world.clock.now_ms()) + self.patience_ms)
        super().finish()

    @invariant()
    def buckets_are_in_order_and_needed(self) -> None:
        """I6.6, I6.8, I6.3."""
        topics = self.world.broker.registry.loaded_topics()
        index = topics[0].delays.index if topics else None
        if index is None:
            return
        for bucket in index.buckets:
            segments = bucket.directory()
            assert sum(segment.count for segment in segments) == bucket.total
            for segment in segments:
                assert segment.last_ms - segment.first_ms < 2000
                assert segment.count <= 2
            assert all(a.last_ms <= b.first_ms for a, b in pairwise(segments))
            assert last_key(bucket) > index.floor
        for name in self.models:
            assert topics[0].subscriptions[name].dispatcher.stats().delayed_entries >= 0


class MergingMachine(DelaysMachine):
    """``DelaysMachine`` with as few buckets as can be."""

    tuning = msgspec.structs.replace(DELAYED, delayed_delivery_max_num_buckets=1)

    def settle_down(self) -> None:
        """6.4.5: when nothing more happens by itself, too many buckets have become one.

        Until then there may be more: one that is not durable is not merged, nor is any while others are.
        """
        super().settle_down()
        for topic in self.world.broker.registry.loaded_topics():
            index = topic.delays.index
            assert index is None or len(index.buckets) <= self.tuning.delayed_delivery_max_num_buckets


class InMemoryMachine(DelaysMachine):
    """The same without buckets. Fixed-delay detection may stop reading until the first entry is due (6.3.2)."""

    tuning = msgspec.structs.replace(
        DELAYED,
        delayed_delivery_tracker_factory_class_name=(
            "org.apache.pulsar.broker.delayed.InMemoryDelayedDeliveryTrackerFactory"
        ),
        delayed_delivery_fixed_delay_detection_lookahead=5,
    )
    patience_ms = 30_200

    def is_held_up(self, name: str) -> bool:
        dispatcher = self.world.subscription(name).dispatcher
        delayed = dispatcher.source._delayed if isinstance(dispatcher, ManyConsumersDispatcher) else None
        return super().is_held_up(name) or (delayed is not None and delayed.paused)


TestDelays = DelaysMachine.TestCase
TestMerging = MergingMachine.TestCase
TestInMemory = InMemoryMachine.TestCase
TestDelays.settings = TestMerging.settings = TestInMemory.settings = settings(
    max_examples=30, stateful_step_count=60, deadline=None, derandomize=True, print_blob=True
)
