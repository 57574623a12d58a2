# SPDX-License-Identifier: Apache-2.0
"""Random histories of transactions that send and acknowledge, under stops and power loss at any change of the disk.

All of ``TransactionMachine``, and besides T9, T10, T11 and T13 with acknowledgements: a transaction of two topics
takes from both and sends to both. The model knows which acknowledgements were answered, in transactions and outside.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from broker_core.base.errors import ServerError
from broker_core.base.positions import Position
from broker_core.broker.requests import AckId, AckKind
from broker_core.wire.heads import TxnId
from tests.broker.transactions.test_machine_transactions import PICK, TOPIC, TOPICS, TransactionMachine

Place = tuple[str, Position]
"""A topic, and an entry that its subscription was given."""


class JointMachine(TransactionMachine):
    """``asked_acks``: all that was acknowledged in each transaction; ``acks``: the part of it that was answered;
    ``plain``: acknowledged outside of transactions, answered or not."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_acks: defaultdict[TxnId, set[Place]] = defaultdict(set)
        self.acks: dict[TxnId, frozenset[Place]] = {}
        self.plain: set[Place] = set()

    # -- what clients do

    @rule(topic=TOPIC, pick=PICK, count=st.integers(1, 4), wait=st.booleans())
    def acknowledge_in(self, topic: str, pick: int, count: int, wait: bool) -> None:
        """9.8.1: some of the first messages that the consumer holds."""
        name = self.an_open_one(pick)
        if name is not None:
            self.take_in(topic, name, count)
            if wait:
                self.settle()

    @rule(topic=TOPIC, pick=PICK, count=st.integers(1, 4), wait=st.booleans(), commit=st.booleans())
    def process(self, topic: str, pick: int, count: int, wait: bool, commit: bool) -> None:
        """9.5.1 (T13): take from one topic, send to both, and end, all in one turn or one after the other."""
        name = self.an_open_one(pick)
        if name is None:
            return
        self.take_in(topic, name, count)
        for each in TOPICS:
            self.send_one(each, name)
        if wait:
            self.settle()
        if name in self.begun and name not in self.told:
            self.ask_for_end(name, commit)

    def take_in(self, topic: str, name: TxnId, count: int) -> None:
        places = [(topic, position) for position in self.taken(topic, count)]
        consumer = self.mailboxes[topic].consumer
        if not places or consumer is None:
            return
        self.asked_acks[name].update(places)

        def done(error: ServerError | None) -> None:
            if error is None:
                self.acks[name] = self.acks.get(name, frozenset()).union(places)

        consumer.ack_in(name, AckKind.INDIVIDUAL, [AckId(position) for _, position in places], done)

    def taken(self, topic: str, count: int) -> list[Position]:
        """The first messages that the consumer holds, which does not look at them again."""
        mailbox = self.mailboxes[topic]
        positions = [each.entry.position for each in mailbox.deliveries[:count]]
        self.listen()
        del mailbox.deliveries[:count]
        return positions

    @rule(topic=TOPIC, count=st.integers(1, 8))
    def acknowledge(self, topic: str, count: int) -> None:
        held = self.mailboxes[topic].deliveries[:count]
        self.plain.update((topic, each.entry.position) for each in held)
        super().acknowledge(topic, count)

    # -- stops

    def known(self) -> Any:
        return super().known(), dict(self.acks)

    def restore(self, known: Any) -> None:
        before, self.acks = known
        super().restore(before)

    # -- what must be true when nothing more happens by itself

    def compare(self) -> None:
        super().compare()
        held = {(topic, each.entry.position) for topic in TOPICS for each in self.mailboxes[topic].deliveries}
        for name, places in self.acks.items():
            for place in places - self.plain:
                self.compare_ack(name, place, is_held=place in held)
        committed = [self.asked_acks[name] for name, outcome in self.told.items() if outcome]
        allowed = self.plain.union(*committed)
        for topic, position in set().union(*self.asked_acks.values()) - allowed:
            if position > self.world.topic(topic).log.trimmed:
                is_acked = self.world.subscription(topic=topic).cursor.is_acked(position)
                assert not is_acked, f"T9, T13: {position} of {topic} is acknowledged by nobody"

    def compare_ack(self, name: TxnId, place: Place, *, is_held: bool) -> None:
        """One answered acknowledgement in a transaction, of a message that was not acknowledged otherwise."""
        topic, position = place
        if position <= self.world.topic(topic).log.trimmed:
            return
        subscription = self.world.subscription(topic=topic)
        outcome = self.told.get(name)
        if outcome:
            assert subscription.cursor.is_acked(position), f"T9, T13: {name} is committed without {place}"
        elif outcome is None:
            pending = subscription.transactional_acks.pending.in_transaction(name, position)
            assert pending.bits, f"T10: {place} is not pending in {name}"
            assert not is_held, f"T11: {place} is pending in {name}, and was delivered"


TestJoint = JointMachine.TestCase
TestJoint.settings = settings(max_examples=60, stateful_step_count=60, deadline=None, derandomize=True, print_blob=True)
