# SPDX-License-Identifier: Apache-2.0
"""Random histories of a whole broker: several subscriptions of changing types, power lost at any write (I1 to I4, I7).

One topic, two subscriptions, each of whatever type its first consumer asks for. Power is lost between actions and in
the middle of them: at the k-th change of the disk during a commit, an orderly stop, a retention check or a recovery.
At the end of each history everything that is unacknowledged has to be delivered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_core.base.errors import ConsumerBusyError, ServerError
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.broker import AckId, AckKind, SubscribeRequest, SubscriptionType
from broker_core.broker.ack_sets import all_bits, words_of_bits
from broker_core.testing.sim_disk import CHANGES, POLICIES, SimDisk
from broker_core.wire.entry import read_metadata, seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata
from tests.broker.whole_model import LIMITS, SINGLE_ACTIVE, Client, Entry, SubscriptionModel
from tests.broker.world import EARLIEST, Answers, World, ack

NAMES = ("one", "two")
KEYS = "abc"
SIZES = st.lists(st.tuples(st.integers(1, 4), st.sampled_from(KEYS)), min_size=2, max_size=8)
PICK = st.integers(0, 10_000)
KIND = st.sampled_from([*SubscriptionType, SubscriptionType.KEY_SHARED, SubscriptionType.KEY_SHARED])
WHICH = st.sampled_from(NAMES)
IDLE_ROUNDS_MAX = 3
"""Of the drain at the end: after so many in which nothing came, nothing will."""

CALM_STEPS = 20
"""Between two actions that end all consumers, so that something happens in between."""

_calm = precondition(lambda self: self.steps_since_end >= CALM_STEPS)


def _body(messages: int, key: str) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, partition_key=key)
    if messages > 1:
        metadata.num_messages_in_batch = messages
    return seal_entry(metadata.SerializeToString(), b"x")


class WholeBrokerMachine(RuleBasedStateMachine):
    """``models``: what must be true of each subscription; ``sent``: what the present producer has asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(LIMITS)
        self.log: dict[Position, Entry] = {}
        self.models = {name: SubscriptionModel(name, self.log, self.world.clock, self.learn_receipts) for name in NAMES}
        self.answers = Answers()
        self.sent: list[Entry] = []
        self.learned = 0
        self.names = 0
        self.refusals: list[ServerError | None] = []
        self.steps_since_end = 0

    @initialize()
    def begin(self) -> None:
        for name in NAMES:
            self.world.topic().create_subscription(name, EARLIEST)
        self.connect_producer()

    def teardown(self) -> None:
        if not self.world.store.commits.error:
            self.drain()
        self.world.abandon()
        World.running.remove(self.world)

    # -- helpers

    def connect_producer(self) -> None:
        self.producer, self.answers = self.world.produce()
        self.sent = []
        self.learned = 0

    def learn_receipts(self) -> None:
        """What was confirmed is in the log from now on."""
        for number, position in self.answers.receipts[self.learned :]:
            assert number == self.learned, "receipts come in the order of sends (1.7.7)"
            self.learned += 1
            self.learn(position, self.sent[number])

    def learn(self, position: Position, entry: Entry) -> None:
        assert not self.log or position > max(self.log), "ids rise (I1.1)"
        self.log[position] = entry
        for model in self.models.values():
            model.learn(position, entry.messages)

    def settle(self) -> None:
        clock, commits = self.world.clock, self.world.store.commits
        clock.run_due()
        while commits.pending:
            self.commit()
            clock.run_due()
        for model in self.models.values():
            model.safe = dict(model.open)

    def pick_entry(self, number: int) -> Position:
        positions = list(self.log)
        return positions[number % len(positions)]

    def client(self, name: str, number: int) -> tuple[SubscriptionModel, Client | None]:
        model = self.models[name]
        return model, model.clients[number % len(model.clients)] if model.clients else None

    # -- producing and time

    @rule(entries=SIZES, wait=st.booleans())
    def publish(self, entries: list[tuple[int, str]], wait: bool) -> None:
        for messages, key in entries:
            self.producer.send(len(self.sent), -1, messages, _body(messages, key), False)
            self.sent.append(Entry(messages, key))
        if wait:
            self.settle()

    @rule(entries=SIZES, name=WHICH, who=PICK, permits=st.integers(3, 12))
    def publish_for_somebody(self, entries: list[tuple[int, str]], name: str, who: int, permits: int) -> None:
        """What most of a broker's life is: messages come, and somebody wants them."""
        self.publish(entries, wait=False)
        self.flow(name, who, permits)
        self.settle()

    @rule(name=WHICH, kind=KIND, permits=st.integers(3, 12))
    def somebody_comes(self, name: str, kind: SubscriptionType, permits: int) -> None:
        """With room, and let in if possible."""
        self.subscribe(name, kind, 0, permits, 0)
        self.settle()

    @rule(name=WHICH, who=PICK, count=st.integers(1, 10), permits=st.integers(3, 12))
    def work(self, name: str, who: int, count: int, permits: int) -> None:
        """Acknowledge some of what came, and want more."""
        self.ack_what_was_seen(name, who, count)
        self.flow(name, who, permits)
        self.settle()

    @rule(name=WHICH, who=PICK, count=st.integers(1, 3))
    def refuse(self, name: str, who: int, count: int) -> None:
        """4.4.1: what came last is asked for again."""
        model, client = self.client(name, who)
        if client is not None and client.seen:
            positions = client.seen[-count:]
            model.taken_back(client, list(dict.fromkeys(positions)))
            model.rewound(client)
            client.consumer.redeliver(positions)
            self.flow(name, who, 5)
            self.settle()

    @rule()
    def commit(self) -> None:
        """One group commit; what it makes durable may be delivered from then on."""
        commits = self.world.store.commits
        job = commits.take()
        if job is not None:
            job.run()
            commits.finish(job, None)
            self.learn_receipts()

    @rule()
    def turn(self) -> None:
        """One callback of the loop."""
        self.world.clock.run_one()

    @rule(ms=st.sampled_from([1, 150, 300, 1000]))
    def wait(self, ms: int) -> None:
        self.world.clock.advance(ms)

    @rule()
    def settle_down(self) -> None:
        """I2.7: when nothing more happens by itself, nothing waits that could be delivered."""
        self.settle()
        for name, model in self.models.items():
            dispatcher = self.world.subscription(name).dispatcher
            assert model.overdue(is_blocked=bool(getattr(dispatcher, "blocked", False))) == []

    # -- consumers

    @rule(
        name=WHICH,
        kind=KIND,
        insist=st.integers(0, 7),
        permits=st.sampled_from([10, 3, 1, 0]),
        priority=st.integers(0, 1),
    )
    def subscribe(self, name: str, kind: SubscriptionType, insist: int, permits: int, priority: int) -> None:
        """2.1.1, 2.2.1: who asks for another type, or is second on an exclusive one, is refused without a trace."""
        model = self.models[name]
        if len(model.clients) == 4:
            return
        if insist < 7 and model.kind is not None:
            kind = model.kind
        self.names += 1
        client = Client(model, f"c{self.names}", priority)
        request = SubscribeRequest(subscription=name, kind=kind, consumer_name=client.name, priority=priority)
        refused = False
        try:
            client.consumer = self.world.topic().subscribe(request, client)
        except ConsumerBusyError:
            refused = True
        must_be_refused = model.kind is not None and (model.kind is not kind or kind is SubscriptionType.EXCLUSIVE)
        assert refused == must_be_refused
        if not refused:
            model.joined(client, kind)
            client.granted += permits
            client.consumer.flow(permits)

    @rule(name=WHICH, who=PICK)
    def leave(self, name: str, who: int) -> None:
        model, client = self.client(name, who)
        if client is not None:
            model.left(client)
            client.consumer.close()

    @rule(name=WHICH, who=PICK, permits=st.sampled_from([1, 2, 5, 20]))
    def flow(self, name: str, who: int, permits: int) -> None:
        _, client = self.client(name, who)
        if client is not None:
            client.granted += permits
            client.consumer.flow(permits)

    @rule(name=WHICH, who=PICK)
    def pause_or_resume_writing(self, name: str, who: int) -> None:
        _, client = self.client(name, who)
        if client is not None:
            client.writable = not client.writable
            if client.writable:
                client.consumer.writable_again()

    # -- acknowledging and redelivery

    @precondition(lambda self: self.log)
    @rule(name=WHICH, who=PICK, which=st.lists(PICK, min_size=1, max_size=4), answer=st.booleans())
    def ack_any(self, name: str, who: int, which: list[int], answer: bool) -> None:
        """3.3.2, 3.4.1: also what others hold, what was never delivered, and what is acknowledged already."""
        model, client = self.client(name, who)
        if client is None:
            return
        positions = [self.pick_entry(number) for number in which]
        for position in positions:
            model.acked(position, 0)
        ids = [AckId(position) for position in positions]
        client.consumer.ack(AckKind.INDIVIDUAL, ids, self.refusals.append if answer else None)

    @rule(name=WHICH, who=PICK, count=st.integers(1, 6))
    def ack_what_was_seen(self, name: str, who: int, count: int) -> None:
        model, client = self.client(name, who)
        if client is not None and client.seen:
            seen, client.seen = client.seen[:count], client.seen[count:]
            for position in seen:
                model.acked(position, 0)
            ack(client.consumer, *seen)

    @precondition(lambda self: self.log)
    @rule(name=WHICH, who=PICK, which=PICK, bits=st.integers(0, 15))
    def ack_messages(self, name: str, who: int, which: int, bits: int) -> None:
        """3.4.3: of a batch, what is left after this is left after all (I3.3)."""
        model, client = self.client(name, who)
        if client is not None:
            position = self.pick_entry(which)
            left = bits & all_bits(self.log[position].messages)
            model.acked(position, left)
            client.consumer.ack(AckKind.INDIVIDUAL, [AckId(position, words_of_bits(left))])

    @precondition(lambda self: self.log)
    @rule(name=WHICH, who=PICK, which=PICK, bits=st.none() | st.integers(0, 15))
    def ack_through(self, name: str, who: int, which: int, bits: int | None) -> None:
        """3.5.1, 3.5.2 (I3.4): whole entries and into batches, where one consumer is served at a time."""
        model, client = self.client(name, who)
        if client is None or model.kind not in SINGLE_ACTIVE:
            return
        target = self.pick_entry(which)
        left = None if bits is None else bits & all_bits(self.log[target].messages)
        model.acked_through(target, left or 0)
        words = None if left is None else words_of_bits(left)
        client.consumer.ack(AckKind.CUMULATIVE, [AckId(target, words)], self.refusals.append)

    @rule(name=WHICH, who=PICK, which=st.none() | st.lists(PICK, max_size=5))
    def redeliver(self, name: str, who: int, which: list[int] | None) -> None:
        """4.4.1, 4.4.2, 2.3.5.2 (I4.6): any ids, or all."""
        model, client = self.client(name, who)
        if client is None:
            return
        positions = None if which is None or not self.log else [self.pick_entry(number) for number in which]
        mine = [position for position, owner in model.owner.items() if owner is client]
        model.taken_back(client, mine if positions is None else list(dict.fromkeys(positions)))
        model.rewound(client)
        client.consumer.redeliver(positions)

    @_calm
    @precondition(lambda self: self.log)
    @rule(name=WHICH, who=PICK, which=PICK, bits=st.integers(0, 15))
    def seek(self, name: str, who: int, which: int, bits: int) -> None:
        """1.4.6: to an entry or into its batch; all consumers of this subscription are disconnected."""
        model, client = self.client(name, who)
        if client is None:
            return
        target = self.pick_entry(which)
        left = bits & all_bits(self.log[target].messages)
        gone = list(model.clients)
        model.reset_to(target, left)
        self.steps_since_end = 0
        done: list[ServerError | None] = []
        client.consumer.seek(target, words_of_bits(left) or None, done.append)
        assert all(each.closed for each in gone)
        self.settle()
        assert done == [None]

    # -- retention, stops and crashes

    @rule()
    def retain(self) -> None:
        """7.1, 1.3.4 (I7.1): only a prefix that every subscription has acknowledged is deleted."""
        self.world.clock.advance(LIMITS.retention_check_interval_in_seconds * 1000)
        self.settle()
        self.compare_with_the_log()

    @_calm
    @rule()
    def restart(self) -> None:
        """3.6.2: an orderly stop keeps everything."""
        self.stop_and_start()
        self.after_start()

    def stop_and_start(self) -> None:
        for model in self.models.values():
            model.abandoned()
        self.world.restart()
        self.learn_receipts()
        for model in self.models.values():
            model.safe = dict(model.open)

    @_calm
    @rule(seed=st.integers(0, 1000), policy=st.sampled_from(POLICIES))
    def lose_power(self, seed: int, policy: Any) -> None:
        """3.6.4 (I3.7): between two actions."""
        self.start_on(self.world.disk.crash(seed, policy))
        self.after_start()

    @_calm
    @rule(
        what=st.sampled_from(["commits", "stop", "retention", "recovery"]),
        change=st.integers(1, 40),
        seed=st.integers(0, 1000),
        policy=st.sampled_from(POLICIES),
    )
    def lose_power_during(self, what: str, change: int, seed: int, policy: Any) -> None:
        """3.6.4, 3.7 (I3.7): at any change of the disk; after it if there are not so many."""
        if what == "recovery":
            self.start_on(self.world.disk.crash(seed + 1, policy), before_change=(change, seed, policy))
            self.after_start()
            return
        actions: dict[str, Callable[[], None]] = {
            "commits": self.settle,
            "stop": self.stop_and_start,
            "retention": lambda: self.world.clock.advance(LIMITS.retention_check_interval_in_seconds * 1000),
        }
        caught = self.watch(self.world.disk, change, seed, policy)
        actions[what]()
        self.world.disk.before = None
        if caught:
            image, known = caught[0]
            self.restore(known)
            self.start_on(image)
        else:
            self.start_on(self.world.disk.crash(seed, policy))
        self.after_start()

    def watch(self, disk: SimDisk, change: int, seed: int, policy: Any) -> list[tuple[SimDisk, Any]]:
        """Have an image made right before the ``change``-th change of ``disk``, with what was known then."""
        caught: list[tuple[SimDisk, Any]] = []
        left = change

        def before(kind: str, _path: str) -> None:
            nonlocal left
            if kind in CHANGES:
                left -= 1
                if left == 0:
                    self.learn_receipts()
                    caught.append((disk.crash(seed, policy), self.known()))

        disk.before = before
        return caught

    def known(self) -> Any:
        return dict(self.log), {name: (dict(each.open), dict(each.safe)) for name, each in self.models.items()}

    def restore(self, known: Any) -> None:
        """Forget what was learned after the power had gone."""
        log, of_models = known
        self.log.clear()
        self.log.update(log)
        for name, model in self.models.items():
            model.open, model.safe = of_models[name]

    def start_on(self, image: SimDisk, before_change: tuple[int, int, Any] | None = None) -> None:
        """Start on what the disk has kept; with ``before_change``, lose power once more during that."""
        for model in self.models.values():
            model.abandoned()
        self.refusals = []  # what is still unanswered will never be
        world = self.world
        world.abandon()
        world.disk, world.clock = image, world.clock.stopped()
        for model in self.models.values():
            model.clock = world.clock
        caught = self.watch(image, *before_change) if before_change else []
        world.open()
        if before_change:
            self.answers = Answers()
            self.learned = 0
            self.world.topic()
            world.settle()
            image.before = None
            self.start_on(caught[0][0] if caught else image.crash(before_change[1], before_change[2]))

    def after_start(self) -> None:
        """Confirmed entries are there; acks lie between those that were durable and those asked for."""
        self.steps_since_end = 0
        self.compare_with_the_log(is_new_start=True)
        for name, model in self.models.items():
            for position, found in self.acknowledged(name).items():
                assert model.open[position] & ~found == 0, f"{position}: acknowledgements were invented"
                assert found & ~model.safe[position] == 0, f"{position}: durable acknowledgements were lost"
                model.open[position] = model.safe[position] = found
        self.connect_producer()

    def compare_with_the_log(self, *, is_new_start: bool = False) -> None:
        """What is gone was acknowledged by everybody and is a prefix; what is new was sent before a crash."""
        stored = self.stored_entries()
        gone = [position for position in self.log if position not in stored]
        assert gone == list(self.log)[: len(gone)], "a hole in the log"
        for position in gone:
            for model in self.models.values():
                model.forget(position)
            del self.log[position]
        for position, entry in stored.items():
            if position not in self.log:
                assert is_new_start, "not confirmed, but read"
                self.learn(position, entry)

    def stored_entries(self) -> dict[Position, Entry]:
        """The log as it is, read from the beginning."""
        found: dict[Position, Entry] = {}
        start = POSITION_EARLIEST
        while batch := self.world.topic().log.read(start, 100, 1 << 20):
            found |= {each.position: Entry(each.messages, read_metadata(each.body).partition_key) for each in batch}
            start = Position(batch[-1].position.ledger, batch[-1].position.entry + 1)
        return found

    def acknowledged(self, name: str) -> dict[Position, int]:
        """What the broker holds to be unacknowledged, as bits."""
        cursor = self.world.subscription(name).cursor
        return {
            position: 0 if cursor.is_acked(position) else cursor.partial.get(position, all_bits(entry.messages))
            for position, entry in self.log.items()
        }

    def drain(self) -> None:
        """I2.7, I2.13: whoever is there gets everything that is left, if it acknowledges."""
        for name, model in self.models.items():
            if not model.clients:
                self.subscribe(name, SubscriptionType.SHARED, 7, 0, 0)
            for client in model.clients:
                client.writable = True
                client.consumer.writable_again()
        idle = 0
        while idle < IDLE_ROUNDS_MAX:
            idle = 0 if self.serve_everybody() else idle + 1
        left = {name: model.unacked() for name, model in self.models.items()}
        assert left == {name: [] for name in NAMES}, "never delivered"

    def serve_everybody(self) -> bool:
        """Let everybody take and acknowledge what can be had; whether there was anything."""
        for model in self.models.values():
            for client in model.clients:
                client.granted += 20
                client.consumer.flow(20)
        self.settle()
        self.world.clock.advance(LIMITS.active_consumer_failover_delay_time_millis)
        served = False
        for model in self.models.values():
            for client in model.clients:
                seen, client.seen = client.seen, []
                for position in seen:
                    model.acked(position, 0)
                if seen:
                    served = True
                    ack(client.consumer, *seen)
        return served

    # -- after every step

    @invariant()
    def cursors_agree_with_the_model(self) -> None:
        """3.6.8 (I3.1, I3.2, I3.9)."""
        if not self.world.broker.loaded_topics():
            return
        for name, model in self.models.items():
            subscription = self.world.subscription(name)
            assert self.acknowledged(name) == model.open
            unacked = model.unacked()
            assert subscription.cursor.backlog_entries() == len(unacked)
            assert subscription.backlog_messages() == sum(bits.bit_count() for bits in model.open.values())
            if unacked:
                assert subscription.cursor.first_unacked() == unacked[0]
            assert all(position > subscription.cursor.mark_delete for position in subscription.cursor.deleted)

    @invariant()
    def consumers_hold_what_the_model_says(self) -> None:
        """2.4.8 (I2.2, I2.6, I3.8, I4.1): permits and pending messages."""
        for model in self.models.values():
            for client in model.clients:
                consumer = client.consumer
                assert consumer.permits + consumer.parked_permits == client.permits
                assert client.permits >= -3
                if model.kind not in SINGLE_ACTIVE:
                    held = {position for position, owner in model.owner.items() if owner is client}
                    assert set(consumer.pending) == held
                    assert consumer.pending.unacked == model.unacked_of(client)

    @invariant()
    def nobody_was_refused(self) -> None:
        self.steps_since_end += 1
        assert all(error is None for error in self.refusals)
        assert not self.answers.errors


TestWholeBroker = WholeBrokerMachine.TestCase
TestWholeBroker.settings = settings(
    max_examples=250, stateful_step_count=100, deadline=None, derandomize=True, print_blob=True
)
