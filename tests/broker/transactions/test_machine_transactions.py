# SPDX-License-Identifier: Apache-2.0
"""Random histories of transactions over two topics, under stops and power loss at any change of the disk.

They check T1 to T8, T12, T13, T15 to T17, T19 and T20. The model knows what clients were told, and what may have
happened without their knowing. The log itself is read past the readable end, so what is compared is what readers get of
it. Each history ends with the end of all transactions: then everything that was committed, and nothing that was
aborted, must have come.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_core.base.errors import InvalidTxnStatusError, NotAllowedError, ServerError
from broker_core.base.names import TopicName
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.broker.requests import ANYBODY
from broker_core.testing.sim_disk import POLICIES, SimDisk
from broker_core.wire.heads import SendHead, TxnId
from tests.broker.world import TINY, Answers, Mailbox, World, ack, body, image_before

TOPICS = ("persistent://public/default/t", "persistent://public/default/u")
TOPIC = st.sampled_from(TOPICS)
PICK = st.integers(0, 100)
LONG_MS, SHORT_MS = 10**7, 400
DIGITS = 6


class Stored(NamedTuple):
    """An entry as the log has it."""

    position: Position
    text: str
    name: TxnId | None


class TransactionMachine(RuleBasedStateMachine):
    """``begun``: ids that clients were given, with their deadlines; ``asked``: the ends that they have asked for and
    not heard of; ``told``: those that they know of; ``names``: of each text the transaction that it was sent in. It has
    41 methods: each thing that clients, time and power do is one, and each thing that must be true."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(TINY)
        self.begun: dict[TxnId, int] = {}
        self.asked: dict[TxnId, bool] = {}
        self.told: dict[TxnId, bool] = {}
        self.names: dict[str, TxnId | None] = {}
        self.receipts: dict[str, tuple[str, Position]] = {}
        self.accepted: dict[TxnId, dict[str, str]] = {}
        self.seen: dict[str, set[str]] = {topic: set() for topic in TOPICS}
        self.mailboxes: dict[str, Mailbox] = {}
        self.senders: dict[str, tuple[Any, Answers, list[str]]] = {}
        self.serial = 0
        self.trimmed: dict[str, Position] = {}

    @initialize()
    def start(self) -> None:
        self.come_back()

    def teardown(self) -> None:
        if sys.exc_info()[0] is None:
            self.finish()
        self.world.abandon()
        World.running.remove(self.world)

    # -- clients

    def come_back(self) -> None:
        """Producers and consumers of a new connection, on each topic."""
        for topic in TOPICS:
            self.connect(topic)

    def connect(self, topic: str) -> None:
        producer, answers = self.world.produce(topic)
        self.senders[topic] = (producer, answers, [])
        _, mailbox = self.world.subscribe(topic=topic, permits=10_000)
        self.mailboxes[topic] = mailbox

    def listen(self) -> None:
        """Take note of receipts and messages."""
        for topic in TOPICS:
            _, answers, texts = self.senders[topic]
            for text, outcome in zip(texts[: len(answers.outcomes)], answers.outcomes, strict=False):
                if isinstance(outcome, Position):
                    self.receipts[text] = (topic, outcome)
            for delivery in self.mailboxes[topic].deliveries:
                text = delivery.entry.body[-DIGITS:].decode()
                name = self.names[text]
                assert name is None or self.may_show(name), f"T2, T3: {text} of {name} was delivered"
                self.seen[topic].add(text)

    def may_show(self, name: TxnId) -> bool:
        """Whether readers may see the transaction: somebody has asked for its commit, and nobody knows of its abort."""
        return self.told.get(name, self.asked.get(name, False))

    def an_open_one(self, pick: int) -> TxnId | None:
        found = [name for name in self.begun if name not in self.told and name not in self.asked]
        return found[pick % len(found)] if found else None

    # -- what clients do

    @rule(coordinator=st.integers(0, 1), is_short=st.booleans())
    def begin(self, coordinator: int, is_short: bool) -> None:
        """9.1.1 (T15): no id comes twice, and those of a coordinator rise."""
        if sum(name not in self.told for name in self.begun) >= 5:
            return
        ttl_ms = SHORT_MS if is_short else LONG_MS
        answers: list[TxnId | ServerError] = []
        self.world.broker.transactions.begin(coordinator, ttl_ms, ANYBODY, answers.append)
        deadline_ms = self.world.clock.now_ms() + ttl_ms
        self.settle()
        (name,) = answers
        assert isinstance(name, TxnId)
        earlier = [each.least_bits for each in self.begun if each.most_bits == coordinator]
        assert name.least_bits > max(earlier, default=-1), "T15"
        self.begun[name] = deadline_ms

    @rule(topic=TOPIC, pick=PICK, is_plain=st.booleans(), count=st.integers(1, 3), wait=st.booleans())
    def send(self, topic: str, pick: int, is_plain: bool, count: int, wait: bool) -> None:
        name = None if is_plain else self.an_open_one(pick)
        for _ in range(count):
            self.send_one(topic, name)
        if wait:
            self.settle()

    def send_one(self, topic: str, name: TxnId | None) -> str:
        self.serial += 1
        text = f"{self.serial:0{DIGITS}}"
        self.names[text] = name
        producer, _, texts = self.senders[topic]
        texts.append(text)
        log = self.world.topic(topic).log
        before = log.next_index
        producer.send(SendHead(0, self.serial, transaction=name), body(text))
        if name is not None and log.next_index > before:
            self.accepted.setdefault(name, {})[text] = topic
        return text

    @precondition(lambda self: self.told or self.asked)
    @rule(topic=TOPIC, pick=PICK)
    def send_late(self, topic: str, pick: int) -> None:
        """9.4.1 (T8): under a transaction that is over, or about to be; the log is as before."""
        over = [*self.told, *self.asked]
        name = over[pick % len(over)]
        before = self.world.topic(topic).log.next_index
        _, answers, texts = self.senders[topic]
        self.send_one(topic, name)
        assert self.world.topic(topic).log.next_index == before, "T8"
        self.settle()
        assert isinstance(answers.outcomes[len(texts) - 1], NotAllowedError), "T8"

    @rule(pick=PICK, commit=st.booleans(), wait=st.booleans())
    def end(self, pick: int, commit: bool, wait: bool) -> None:
        name = self.an_open_one(pick)
        if name is not None:
            self.ask_for_end(name, commit)
            if wait:
                self.settle()

    def ask_for_end(self, name: TxnId, commit: bool) -> None:
        self.asked.setdefault(name, commit)

        def done(error: ServerError | None) -> None:
            if error is None:
                assert self.told.setdefault(name, commit) is commit, "T1, T17"
                self.asked.pop(name, None)
            elif isinstance(error, InvalidTxnStatusError):  # the deadline was first
                assert self.world.clock.now_ms() >= self.begun[name], "5.5"
                self.told[name] = not commit
                self.asked.pop(name, None)

        self.world.broker.transactions.end(name, ANYBODY, done, commit=commit)

    @precondition(lambda self: self.told)
    @rule(pick=PICK, commit=st.booleans())
    def end_again(self, pick: int, commit: bool) -> None:
        """9.6 (T17): the same answer however late, and nothing else happens."""
        names = list(self.told)
        name = names[pick % len(names)]
        answers: list[ServerError | None] = []
        self.world.broker.transactions.end(name, ANYBODY, answers.append, commit=commit)
        self.settle()
        assert (answers[0] is None) is (self.told[name] is commit), "T17"

    @rule(topic=TOPIC, count=st.integers(1, 8))
    def acknowledge(self, topic: str, count: int) -> None:
        mailbox = self.mailboxes[topic]
        positions = [each.entry.position for each in mailbox.deliveries[:count]]
        self.listen()
        del mailbox.deliveries[:count]
        for position in positions:
            ack(mailbox.consumer, position)  # type: ignore[arg-type]

    # -- time

    def settle(self) -> None:
        self.world.settle()
        self.listen()

    @rule()
    def settle_down(self) -> None:
        self.settle()
        self.compare()

    @rule()
    def commit_group(self) -> None:
        self.world.commit_once()
        self.listen()

    @rule()
    def turn(self) -> None:
        self.world.clock.run_one()
        self.listen()

    @rule(ms=st.sampled_from([1, 150, 500]))
    def wait(self, ms: int) -> None:
        self.world.clock.advance(ms)
        self.settle()

    @rule(topic=TOPIC)
    def unload(self, topic: str) -> None:
        """Also with entries and decisions on their way."""
        self.world.broker.unload(TopicName.parse(topic))
        self.settle()
        self.connect(topic)

    @rule()
    def retain(self) -> None:
        """9.7.2 (T12): only what every subscription is done with goes, and nothing of an open transaction."""
        self.world.clock.advance(TINY.retention_check_interval_in_seconds * 1000)
        self.settle()
        self.compare()

    # -- stops

    @rule()
    def restart(self) -> None:
        self.world.restart()
        self.listen()
        self.after_start()

    @rule(seed=st.integers(0, 1000), policy=st.sampled_from(POLICIES))
    def lose_power(self, seed: int, policy: Any) -> None:
        self.start_on(self.world.disk.crash(seed, policy))

    @rule(
        what=st.sampled_from(["commits", "stop", "retention", "recovery"]),
        change=st.integers(1, 30),
        seed=st.integers(0, 1000),
        policy=st.sampled_from(POLICIES),
    )
    def lose_power_during(self, what: str, change: int, seed: int, policy: Any) -> None:
        """13.8: before the ``change``-th change of the disk."""
        if what == "recovery":
            self.start_on(self.world.disk.crash(seed + 1, policy), again=(change, seed, policy))
            return
        actions: dict[str, Callable[[], None]] = {
            "commits": self.settle,
            "stop": self.world.restart,
            "retention": lambda: self.world.clock.advance(TINY.retention_check_interval_in_seconds * 1000),
        }
        caught = self.watch(self.world.disk, change, seed, policy)
        actions[what]()
        self.listen()
        self.world.disk.before = None
        if caught:
            image, known = caught[0]
            self.restore(known)
            self.start_on(image)
        else:
            self.start_on(self.world.disk.crash(seed, policy))

    def watch(self, disk: SimDisk, change: int, seed: int, policy: Any) -> list[tuple[SimDisk, Any]]:
        """``image_before``, with what clients knew then."""
        return image_before(disk, change, seed, policy, self.known)

    def known(self) -> Any:
        self.listen()
        seen = {topic: set(texts) for topic, texts in self.seen.items()}
        return dict(self.asked), dict(self.told), dict(self.receipts), seen

    def restore(self, known: Any) -> None:
        """Clients know no more than that."""
        self.asked, self.told, self.receipts, self.seen = known

    def start_on(self, image: SimDisk, again: tuple[int, int, Any] | None = None) -> None:
        self.world.abandon()
        self.world.disk, self.world.clock = image, self.world.clock.stopped()
        caught = self.watch(image, *again) if again else []
        self.world.open()
        if again:
            for topic in TOPICS:
                self.world.topic(topic)
            self.world.settle()
            image.before = None
            self.start_on(caught[0][0] if caught else image.crash(again[1], again[2]))
            return
        self.after_start()

    def after_start(self) -> None:
        """T1, T13: what clients were told holds; what they asked for has happened everywhere or nowhere."""
        transactions = self.world.store.catalogue.transactions
        still_open = {row.id for row in transactions.all() if not row.aborted}
        for name in list(self.begun):
            committed = transactions.outcome(name)
            if name in self.told:
                assert committed is self.told[name], f"T1: {name}"
            elif committed is None:
                assert name in still_open, f"5.6: {name} is forgotten"
                self.asked.pop(name, None)
            else:
                wanted = self.asked.pop(name, None)
                timed_out = not committed and self.world.clock.now_ms() >= self.begun[name]
                assert committed is wanted or timed_out, f"{name} ended by itself"
                self.told[name] = committed
        self.come_back()
        self.forget_what_a_crash_took()
        self.settle()
        self.compare()

    def forget_what_a_crash_took(self) -> None:
        """Of transactions that are open: nobody had asked for the end of what was on its way."""
        stored = {each.text for topic in TOPICS for each in self.stored(topic)}
        for name, texts in self.accepted.items():
            if name not in self.told:
                self.accepted[name] = {text: topic for text, topic in texts.items() if text in stored}

    # -- what must be true when nothing more happens by itself

    def stored(self, topic: str) -> list[Stored]:
        """All of the log, past the readable end."""
        log = self.world.topic(topic).log
        named = dict(log.transactions(POSITION_EARLIEST))
        found: list[Stored] = []
        start = POSITION_EARLIEST
        while batch := log.read(start, 100, 1 << 20, through=log.last_confirmed):
            for each in batch:
                text = each.body[-DIGITS:].decode()
                found.append(Stored(each.position, text, named.get(each.position)))
            start = Position(batch[-1].position.ledger, batch[-1].position.entry + 1)
        return found

    def compare(self) -> None:
        for name in list(self.begun):
            self.notice_deadline(name)
        for topic in TOPICS:
            self.compare_topic(topic)
        rows = self.world.store.catalogue.transactions.all()
        assert {row.id for row in rows if not row.aborted} == self.begun.keys() - self.told.keys(), "T19"
        assert not [row for row in rows if row.aborted], "T19: all topics are loaded"
        assert self.world.store.catalogue.contradictions() == []

    def notice_deadline(self, name: TxnId) -> None:
        """The broker has aborted it, which no client was told."""
        if name not in self.told and self.world.clock.now_ms() >= self.begun[name]:
            self.told[name] = False
            self.asked.pop(name, None)

    def compare_topic(self, topic: str) -> None:
        """T2 to T7, T12, T16, T20: what a new reader gets, how far it may read, and what counts as last."""
        stored = self.stored(topic)
        self.compare_with_receipts(topic, stored)
        hidden = next((number for number, each in enumerate(stored) if self.hides(each)), len(stored))
        shown = [each for each in stored[:hidden] if each.name is None or self.told.get(each.name)]
        loaded = self.world.topic(topic)
        if stored and hidden:
            assert loaded.log.readable_end == stored[hidden - 1].position, "T4"
        elif stored:
            assert loaded.log.readable_end < stored[0].position, "T4"
        consumer, mailbox = self.world.subscribe(topic=topic, subscription="look", durable=False, permits=10_000)
        self.world.settle()
        consumer.close()
        came = [each.entry.body[-DIGITS:].decode() for each in mailbox.deliveries]
        assert came == [each.text for each in shown], "T2, T3, T7, T20"
        last = loaded.messages.last_entry()[0]
        assert last == shown[-1].position if shown else last.entry == -1, "T6"
        assert loaded.buffer.open_count == len({each.name for each in stored if self.hides(each)})
        self.compare_subscription(topic, stored)

    def compare_subscription(self, topic: str, stored: list[Stored]) -> None:
        """9.7.1 (T12): its backlog is all that is not acknowledged, dead entries left out; it acknowledges no hidden
        one."""
        cursor = self.world.subscription(topic=topic).cursor
        dead = {each.position for each in stored if each.name is not None and self.told.get(each.name) is False}
        left = [each for each in stored if not cursor.is_acked(each.position)]
        assert cursor.backlog_entries() == len(left)
        assert not dead & {each.position for each in left}
        for each in stored:
            assert not (self.hides(each) and cursor.is_acked(each.position)), "T12"

    def hides(self, stored: Stored) -> bool:
        return stored.name is not None and stored.name not in self.told

    def compare_with_receipts(self, topic: str, stored: list[Stored]) -> None:
        """T1, T13: what was confirmed is there, under its transaction, unless it was trimmed."""
        by_text = {each.text: each for each in stored}
        assert len(by_text) == len(stored), "an entry is there twice"
        trimmed = self.world.topic(topic).log.trimmed
        for text, (where, position) in self.receipts.items():
            if where == topic and position > trimmed:
                assert by_text[text] == Stored(position, text, self.names[text])
        for each in stored:
            assert each.name == self.names[each.text], "T13"
        for name, texts in self.accepted.items():
            missing = {text for text, where in texts.items() if where == topic} - by_text.keys()
            if self.told.get(name) and trimmed.entry < 0:
                assert not missing, f"T13: {missing} of {name}"

    @invariant()
    def readable_end_never_passes_an_open_entry(self) -> None:
        """9.4.2 (T3, T4): at any moment, whatever is on its way."""
        for topic in TOPICS:
            loaded = self.world.broker.registry.loaded(TopicName.parse(topic))
            if loaded is not None:
                end = loaded.log.readable_end
                for name in self.begun:
                    first = loaded.buffer.first_of(name)
                    assert first is None or first > end

    def finish(self) -> None:
        """T5: with all transactions at their ends, everything that may be delivered was."""
        self.settle()
        for name in list(self.begun):
            if name not in self.told and name not in self.asked:
                self.ask_for_end(name, commit=name.least_bits % 2 == 0)
        self.settle()
        self.world.clock.advance(SHORT_MS)
        self.settle()
        self.compare()
        for topic in TOPICS:
            stored = self.stored(topic)
            cursor = self.world.subscription(topic=topic).cursor
            for each in stored:
                if each.name is None or self.told[each.name]:
                    assert each.text in self.seen[topic] or cursor.is_acked(each.position), f"T5: {each}"


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(
    max_examples=100, stateful_step_count=60, deadline=None, derandomize=True, print_blob=True
)
