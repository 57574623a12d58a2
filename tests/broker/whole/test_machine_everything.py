# SPDX-License-Identifier: Apache-2.0
"""Random histories in which everything meets: delays, chunks, expiry, quotas, retention, limits that change, unloading.

Each of these has a machine of its own, which is rather sure to find what is wrong with it alone. Consumers come back
under names that others have had.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from broker_core.base.errors import ServerError
from broker_core.base.policies import Retention, settings_under
from broker_core.base.positions import POSITION_EARLIEST, POSITION_LATEST, Position
from broker_core.base.settings import Settings
from broker_core.base.steps import drained
from broker_core.broker.requests import AckId, AckKind, SubscribeRequest, SubscriptionType
from broker_core.wire.entry_peek import ChunkPlace
from tests.broker.clients import Client
from tests.broker.whole.entry import Entry
from tests.broker.whole.machine import WHICH
from tests.broker.whole.model import SubscriptionModel
from tests.broker.whole.test_machine_chunks import ChunksMachine
from tests.broker.whole.test_machine_delays import DELAYED, DelaysMachine
from tests.broker.whole.test_machine_policies import NEVER, QUOTAS, RETENTIONS, TTLS_S, PoliciesMachine
from tests.broker.whole.test_machine_readers import ReadersMachine
from tests.broker.whole.topic_machine import PICK, calm
from tests.broker.world import topic_stats

DELAY_MS = st.one_of(st.just(0), st.just(0), st.integers(1, 20_000), st.sampled_from([1000, 5000]))
SENDS = st.lists(st.tuples(st.integers(10, 12), st.sampled_from([2, 3, 5]), DELAY_MS), min_size=2, max_size=9)
UNLIMITED = 1_000_000
LIMITS = st.sampled_from([None, 0, 1, 2, 5, 8, 20])


class EverythingMachine(ReadersMachine, DelaysMachine, PoliciesMachine, ChunksMachine):
    """``due_ms``: when the message is due that a stream of chunks is of."""

    tuning = msgspec.structs.replace(
        DELAYED,
        max_unacked_messages_per_consumer=8,
        max_unacked_messages_per_subscription=14,
        message_expiry_check_interval_in_minutes=NEVER,
        backlog_quota_check_interval_in_seconds=60 * NEVER,
    )

    expires = True

    def __init__(self) -> None:
        super().__init__()
        self.due_ms: dict[str, int] = {}

    def request(self, model: SubscriptionModel, client: Client, kind: SubscriptionType) -> SubscribeRequest:
        return replace(super().request(model, client, kind), consumer_name=f"c{self.names % 3}")

    set_the_policy = None  # type: ignore[assignment] # chunks that wait already would be overtaken

    @rule(sends=SENDS, wait=st.booleans())
    def publish_delayed_chunks(self, sends: list[tuple[int, int, int]], wait: bool) -> None:
        """6.1.8: all chunks of a message have its time."""
        now_ms = self.world.clock.now_ms()
        for stream, chunks, delay_ms in sends:
            if stream not in self.streams:
                self.names += 1
                self.streams[stream] = ChunkPlace(f"message-{self.names}", 0, chunks)
                self.due_ms[f"message-{self.names}"] = now_ms + delay_ms if delay_ms else 0
            chunk = self.streams.pop(stream)
            self.send(Entry(chunk=chunk, due_ms=self.due_ms.get(chunk.uuid, 0), published_ms=now_ms))
            if chunk.chunk_id + 1 < chunk.chunks:
                self.streams[stream] = chunk._replace(chunk_id=chunk.chunk_id + 1)
        if wait:
            self.settle()

    @rule(of_consumer=LIMITS, of_subscription=LIMITS)
    def set_limits(self, of_consumer: int | None, of_subscription: int | None) -> None:
        """2.4.7: they hold at once."""
        self.policies = msgspec.structs.replace(
            self.policies,
            max_unacked_messages_per_consumer=of_consumer,
            max_unacked_messages_per_subscription=of_subscription,
        )
        name = self.topic.name
        self.go_by(settings_under(type(self).tuning, self.policies))
        drained(self.world.broker.set_topic_policies(name, self.policies))
        self.settle_down()

    @rule(ttl_s=TTLS_S, retention=RETENTIONS, quota=QUOTAS, which=PICK)
    def set_policies(self, ttl_s: int | None, retention: Retention | None, quota: str | None, which: int) -> None:
        """1.1.5: which takes limits away."""
        self.set_limits(None, None)
        super().set_policies(ttl_s, retention, quota, which)

    def go_by(self, found: Settings) -> None:
        """The model's limits are those in force; 0 is no limit."""
        self.tuning = msgspec.structs.replace(  # type: ignore[misc] # of this history
            found,
            max_unacked_messages_per_consumer=found.max_unacked_messages_per_consumer or UNLIMITED,
            max_unacked_messages_per_subscription=found.max_unacked_messages_per_subscription or UNLIMITED,
        )
        for model in self.models.values():
            model.settings = self.tuning

    @calm
    @rule(settle=st.booleans())
    def unload(self, settle: bool) -> None:
        """Also while entries are under way and consumers hold some; it is used again before upkeep visits it."""
        self.steps_since_end = 0
        topic = self.topic
        for model in self.models.values():
            model.abandoned()
        self.world.broker.unload(topic.name)
        self.sender.unanswered.clear()
        if settle:
            self.settle()
        _ = self.topic

    @rule(name=WHICH, who=PICK, what=st.sampled_from(["ack", "ack through", "again"]), ledger=st.integers(-3, 3))
    def name_what_is_not_there(self, name: str, who: int, what: str, ledger: int) -> None:
        """3.3.4"""
        model, client = self.client(name, who)
        if client is None:
            return
        last = self.topic.log.last_confirmed
        wrong = [
            POSITION_LATEST,
            Position(2**63 - 1, -1),
            Position(last.ledger, last.entry + 1),
            Position(last.ledger, 2**62),
            Position(last.ledger + 1, 0),
        ]
        nothing = [POSITION_EARLIEST, Position(-(2**63), -(2**63)), Position(0, -1), Position(last.ledger, -1)]
        if what == "ack":
            for each in wrong:
                told: list[ServerError | None] = []
                client.consumer.ack(AckKind.INDIVIDUAL, [AckId(each)], told.append)
                assert told, each
                assert told[0] is not None
            client.consumer.ack(AckKind.INDIVIDUAL, [AckId(each) for each in nothing])
            client.consumer.ack_entries(last.ledger, [last.entry + 1])
            client.consumer.ack_entries(ledger, [2**62])
            client.consumer.ack_entries(ledger, [-1])
        elif what == "again":
            model.rewound(client)
            client.consumer.redeliver([*wrong, *nothing])
        elif model.kind in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER):
            client.consumer.ack(AckKind.CUMULATIVE, [AckId(POSITION_EARLIEST)])
            client.consumer.ack(AckKind.CUMULATIVE, [AckId(POSITION_EARLIEST, (0,))])
            client.consumer.ack(AckKind.CUMULATIVE, [AckId(POSITION_LATEST)])

    @invariant()
    def statistics_add_up(self) -> None:
        """7.15: nothing is negative."""
        if not self.world.broker.registry.loaded(self._watched.name):
            return
        stats = topic_stats(self.topic)
        for name, model in self.models.items():
            of_subscription = stats.subscriptions[name]
            assert of_subscription.unacked_messages == sum(each.unacked_messages for each in of_subscription.consumers)
            assert of_subscription.msg_backlog == len(model.unacked())
            assert of_subscription.msg_in_replay >= 0
            assert of_subscription.msg_delayed >= 0
            assert of_subscription.backlog_size >= 0
            shared = model.kind in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)
            if shared:
                outside = of_subscription.msg_backlog - len(model.owner)
                assert of_subscription.msg_in_replay <= outside, (of_subscription.msg_in_replay, outside)


TestEverything = EverythingMachine.TestCase
TestEverything.settings = settings(
    max_examples=25, stateful_step_count=80, deadline=None, derandomize=True, print_blob=True
)
