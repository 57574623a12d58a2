# SPDX-License-Identifier: Apache-2.0
"""A model of one topic with one subscription, and the random actions that every subscription type has in common.

The broker runs on a simulated disk and a virtual clock. ``commit`` and ``turn`` let parts of its work happen, so that
actions meet each other half done; a crash may come at any point and leaves one of the images the disk could leave.

Model: ``entries`` (position -> messages, what the log holds), ``open`` (position -> bits that nobody has acknowledged),
``safe`` (the same, as it was when everything was durable last). Checked after every step: invariants I3.1, I3.2, I3.9;
at every crash I3.7; at every retention I7.1. What is special to a type is in the subclasses.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_core.base.errors import ServerError
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.broker.consumer import EntryAcks, close_together
from broker_core.broker.requests import AckId, AckKind, SubscribeRequest, SubscriptionType
from broker_core.broker.sinks import Delivery
from broker_core.broker.subscription import Subscription
from broker_core.testing.sim_disk import POLICIES
from broker_core.wire.ack_sets import all_bits, bits_of_words, words_of_bits
from broker_core.wire.heads import SendHead
from tests.broker.clients import Client
from tests.broker.world import EARLIEST, TINY, TOPIC, Answers, World, ack, body

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=6)
PICK = st.integers(0, 100)
LUCK = st.integers(0, 5)
"""For what sends all consumers away: rare, as most things only happen while consumers stay."""


class SubscriptionMachine(RuleBasedStateMachine):
    """One subscription under random actions. ``kind`` is set by the subclass. It has 46 methods: an action,
    or what must hold, is one."""

    kind: SubscriptionType
    topic = TOPIC
    world_settings = TINY

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.world_settings)
        self.entries: dict[Position, int] = {}
        self.open: dict[Position, int] = {}
        self.safe: dict[Position, int] = {}
        self.clients: list[Client] = []
        self.answers = Answers()
        self.sent: list[int] = []
        self.learned = 0
        self.names = 0
        self.answered: list[ServerError | None] = []

    @initialize()
    def begin(self) -> None:
        self.prepare()
        self.world.topic(self.topic).create_subscription("s", EARLIEST)
        self.world.settle()
        self.connect_producer()

    def prepare(self) -> None:
        """What must exist before the topic is used."""

    def teardown(self) -> None:
        if not self.world.store.commits.error:
            self.settle()
        self.world.abandon()
        World.running.remove(self.world)

    # -- for subclasses

    def delivered_to(self, client: Client, delivery: Delivery) -> None:
        self.learn_receipts()
        self.on_delivery(client, delivery)

    def on_delivery(self, client: Client, delivery: Delivery) -> None:
        """Check one delivery against the model; common to all types."""
        position = delivery.entry.position
        assert position in self.entries, "not durable"
        assert delivery.entry.messages == self.entries[position]
        left = self.open[position]
        assert left, f"{position} was acknowledged (I2.1)"
        whole = left == all_bits(self.entries[position])
        assert delivery.ack_set == (None if whole else words_of_bits(left)), "3.6.6"
        assert client.permits > 0, "sent without permits (I2.6)"
        client.spent += left.bit_count()
        client.seen.append(position)

    def ended(self, client: Client) -> None:
        raise AssertionError("nobody terminates the topic")

    def on_acked(self, position: Position) -> None:
        """An entry is wholly acknowledged now."""

    def on_gone(self, leavers: list[Client]) -> None:
        """Clients have left."""

    def forget_consumers(self) -> None:
        """All clients are gone at once."""
        self.clients.clear()

    # -- helpers

    @property
    def subscription(self) -> Subscription:
        return self.world.subscription("s", self.topic)

    def connect_producer(self) -> None:
        self.producer, self.answers = self.world.produce(self.topic)
        self.sent = []
        self.learned = 0

    def settle(self) -> None:
        self.world.settle()
        self.learn_receipts()
        self.safe = dict(self.open)

    def learn_receipts(self) -> None:
        """What was confirmed is in the log from now on."""
        for number, position in self.answers.receipts[self.learned :]:
            assert number == self.learned, "receipts come in the order of sends"
            self.learned += 1
            self.learn(position, self.sent[number])

    def learn(self, position: Position, messages: int) -> None:
        assert not self.entries or position > max(self.entries), "ids rise (I1.1)"
        self.entries[position] = messages
        self.open.setdefault(position, all_bits(messages))
        self.safe.setdefault(position, all_bits(messages))

    def pick(self, number: int) -> Client:
        return self.clients[number % len(self.clients)]

    def pick_entry(self, number: int) -> Position:
        positions = list(self.entries)
        return positions[number % len(positions)]

    # -- actions

    @rule(sizes=SIZES)
    def publish(self, sizes: list[int]) -> None:
        for size in sizes:
            self.producer.send(SendHead(0, len(self.sent), size), body(messages=size))
            self.sent.append(size)

    @rule()
    def commit(self) -> None:
        """One group commit, without anything else."""
        self.world.commit_once()
        self.learn_receipts()

    @rule()
    def turn(self) -> None:
        """One callback of the loop."""
        self.world.clock.run_one()

    @rule()
    def settle_down(self) -> None:
        self.settle()

    # What most of a subscription's life is.

    @rule(sizes=SIZES)
    def publish_and_send(self, sizes: list[int]) -> None:
        """Messages come, and time for all that follows from them."""
        self.publish(sizes)
        self.settle_down()

    @precondition(lambda self: self.clients)
    @rule(who=PICK, count=st.integers(0, 8), permits=st.integers(3, 12))
    def work(self, who: int, count: int, permits: int) -> None:
        """Somebody acknowledges some of what came, and wants more."""
        if self.pick(who).seen:
            self.ack_what_was_seen(who, count)
        self.flow(who, permits)
        self.settle_down()

    @rule(ms=st.sampled_from([1, 150, 300, 1000]))
    def wait(self, ms: int) -> None:
        self.world.clock.advance(ms)

    @precondition(lambda self: len(self.clients) < 4)
    @rule(permits=st.sampled_from([0, 1, 3, 10]), priority=st.integers(0, 1), name=st.sampled_from("abc"))
    def subscribe(self, permits: int, priority: int, name: str) -> None:
        self.names += 1
        client = Client(self, f"{name}{self.names}", priority)
        client.consumer = self.world.topic(self.topic).subscribe(self.request(client), client)
        self.clients.append(client)
        self.on_joined(client)
        client.flow(permits)

    def request(self, client: Client) -> SubscribeRequest:
        return SubscribeRequest(subscription="s", kind=self.kind, consumer_name=client.name, priority=client.priority)

    def on_joined(self, client: Client) -> None:
        """A client was let in."""

    @precondition(lambda self: self.clients)
    @rule(who=PICK)
    def leave(self, who: int) -> None:
        self.let_go([self.pick(who)])

    @precondition(lambda self: len(self.clients) > 2)
    @rule(who=st.lists(PICK, min_size=2, max_size=3))
    def leave_together(self, who: list[int]) -> None:
        """The connection of several is lost."""
        self.let_go(list(dict.fromkeys(map(self.pick, who))))

    def let_go(self, leavers: list[Client]) -> None:
        for client in leavers:
            self.clients.remove(client)
            client.closed = True
        self.on_gone(leavers)
        close_together([client.consumer for client in leavers])

    @precondition(lambda self: self.clients)
    @rule(who=PICK, permits=st.sampled_from([1, 2, 5, 20]))
    def flow(self, who: int, permits: int) -> None:
        self.pick(who).flow(permits)

    @precondition(lambda self: self.clients)
    @rule(who=PICK)
    def pause_or_resume_writing(self, who: int) -> None:
        self.pick(who).pause_or_resume()

    @precondition(lambda self: self.clients and self.entries)
    @rule(who=PICK, which=st.lists(PICK, min_size=1, max_size=4), answer=st.booleans())
    def ack_entries(self, who: int, which: list[int], answer: bool) -> None:
        positions = [self.pick_entry(number) for number in which]
        for position in positions:
            self.note_ack(position, 0)
        ids = [AckId(position) for position in positions]
        self.pick(who).consumer.ack(AckKind.INDIVIDUAL, ids, self.answered.append if answer else None)

    @precondition(lambda self: self.clients and self.entries)
    @rule(who=PICK, which=PICK, bits=st.integers(0, 15))
    def ack_messages(self, who: int, which: int, bits: int) -> None:
        position = self.pick_entry(which)
        left = bits & all_bits(self.entries[position])
        self.note_ack(position, left)
        self.pick(who).consumer.ack(AckKind.INDIVIDUAL, [AckId(position, words_of_bits(left))])

    @precondition(lambda self: self.clients and self.clients[0].seen)
    @rule(who=PICK, count=st.integers(1, 5))
    def ack_what_was_seen(self, who: int, count: int) -> None:
        client = self.pick(who)
        seen, client.seen = client.seen[:count], client.seen[count:]
        seen = [position for position in seen if position in self.entries]
        for position in seen:
            self.note_ack(position, 0)
        if seen:
            ack(client.consumer, *seen)

    @precondition(lambda self: self.clients and self.entries)
    @rule(acks=st.lists(st.tuples(PICK, PICK), min_size=2, max_size=6))
    def ack_together(self, acks: list[tuple[int, int]]) -> None:
        """Several consumers at once, whole entries of one ledger: also what others hold, and the same one twice."""
        chosen = [(self.pick(who).consumer, self.pick_entry(which)) for who, which in acks]
        ledger = chosen[0][1].ledger
        together = [EntryAcks(consumer, [where.entry]) for consumer, where in chosen if where.ledger == ledger]
        for _consumer, (entry,) in together:
            self.note_ack(Position(ledger, entry), 0)
        together[0].consumer.subscription.acks.ack_entries(ledger, together, None)

    def note_ack(self, position: Position, left: int) -> None:
        before = self.open[position]
        self.open[position] = before & left
        if before and not self.open[position]:
            self.on_acked(position)

    @precondition(lambda self: self.clients and self.entries)
    @rule(who=PICK, which=PICK, bits=st.integers(0, 15), luck=LUCK)
    def seek(self, who: int, which: int, bits: int, luck: int) -> None:
        """To an entry or, with bits, into its batch; answered when it is durable."""
        if luck:
            return
        target = self.pick_entry(which)
        left = bits & all_bits(self.entries[target])
        client = self.pick(who)
        gone = list(self.clients)
        self.forget_consumers()
        for position, messages in self.entries.items():
            self.open[position] = 0 if position < target else all_bits(messages)
        if left:
            self.open[target] = left
        done: list[ServerError | None] = []
        client.consumer.seek(target, words_of_bits(left) or None, done.append)
        assert all(each.closed for each in gone)
        self.settle()
        assert done == [None]

    @rule()
    def retain(self) -> None:
        """The retention check: only a prefix that was wholly acknowledged may go (I7.1)."""
        self.world.clock.advance(TINY.retention_check_interval_in_seconds * 1000)
        self.settle()
        stored = self.stored_entries()
        gone = [position for position in self.entries if position not in stored]
        assert gone == list(self.entries)[: len(gone)]
        for position in gone:
            assert not self.open[position], f"{position} was deleted but not acknowledged"
            del self.entries[position], self.open[position], self.safe[position]
        for client in self.clients:
            client.seen = [position for position in client.seen if position in self.entries]

    @rule(luck=LUCK)
    def restart(self, luck: int) -> None:
        """An orderly stop keeps everything."""
        if luck:
            return
        self.forget_consumers()
        self.world.restart()
        self.learn_receipts()
        self.safe = dict(self.open)
        self.after_start()

    @rule(seed=st.integers(0, 1000), policy=st.sampled_from(POLICIES), luck=LUCK)
    def crash(self, seed: int, policy: str, luck: int) -> None:
        """Confirmed entries are there; acks lie between those that were durable and those asked for (I3.7)."""
        if luck:
            return
        self.forget_consumers()
        self.answered = []  # what is still unanswered will never be
        self.world.crash(seed, policy)  # type: ignore[arg-type] # one of POLICIES
        self.after_start()

    def after_start(self) -> None:
        stored = self.stored_entries()
        assert all(position in stored for position in self.entries), "a confirmed entry is lost"
        for position, messages in stored.items():
            if position not in self.entries:
                self.learn(position, messages)
        cursor = self.subscription.cursor
        for position, messages in self.entries.items():
            found = 0 if cursor.is_acked(position) else cursor.partial.get(position, all_bits(messages))
            assert self.open[position] & ~found == 0, f"{position}: acknowledgements were invented"
            assert found & ~self.safe[position] == 0, f"{position}: durable acknowledgements were lost"
            self.open[position] = self.safe[position] = found
        self.connect_producer()

    def stored_entries(self) -> dict[Position, int]:
        """The log as it is, read from the beginning."""
        found: dict[Position, int] = {}
        start = POSITION_EARLIEST
        while batch := self.world.topic(self.topic).log.read(start, 100, 1 << 20):
            found |= {entry.position: entry.messages for entry in batch}
            start = Position(batch[-1].position.ledger, batch[-1].position.entry + 1)
        return found

    # -- after every step

    @invariant()
    def the_cursor_agrees_with_the_model(self) -> None:
        """I3.1, I3.2, I3.9."""
        if not self.world.broker.registry.loaded_topics():
            return
        cursor = self.subscription.cursor
        for position, messages in self.entries.items():
            found = 0 if cursor.is_acked(position) else cursor.partial.get(position, all_bits(messages))
            assert found == self.open[position]
        unacked = [position for position, bits in self.open.items() if bits]
        assert cursor.backlog_entries() == len(unacked)
        assert self.subscription.backlog.messages() == sum(bits.bit_count() for bits in self.open.values())
        if unacked:
            assert cursor.first_unacked() == unacked[0]
            assert cursor.mark_delete < unacked[0]
        assert all(position > cursor.mark_delete for position in cursor.deleted)
        assert all(bits_of_words(words_of_bits(bits)) == bits for bits in cursor.partial.values())

    @invariant()
    def permits_are_conserved(self) -> None:
        """I4.1 at the broker: granted - spent, and never below minus (largest batch - 1) (I2.6)."""
        for client in self.clients:
            consumer = client.consumer
            assert consumer.permits + consumer.parked_permits == client.permits
            assert client.permits >= -3

    @invariant()
    def nobody_was_refused(self) -> None:
        assert all(error is None for error in self.answered)
        assert not self.answers.errors
