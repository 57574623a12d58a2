# SPDX-License-Identifier: Apache-2.0
"""Checks what clients saw against what the log holds in the end: nothing confirmed is lost, reordered or served again.

The workload gives every message a name, ``Message(producer, number)``; a producer counts from 0 in the order in which
it sends. A send is confirmed (there is a receipt), given up by its client, which says that its outcome is unknown, or
without any outcome. Rules, for one topic (a partition is a topic):

    R1  the log holds, at the id of each receipt, the message that the receipt is for
    R2  receipts of a producer that rise in number rise in position
    R3  whatever is in the log was sent, and is intact
    R4  a message may be there more than once, but a receipt names its last copy: nothing confirmed is sent again
    R5  a producer's messages lie in the order sent; steps back (a resend) are allowed, steps over a message only where
        it was given up: a client that resends may give up half-way, and goes on with what is sent to it later
        (R2 and R5 hold for the messages of each key where a producer batches by key)
    C1  what is delivered at an id is what the log holds there
    C2  nothing is delivered in a session that began after its acknowledgement was confirmed
    C3  everything in the log was delivered at least once, when consumers were given the time to drain it
    C4  inside a session of an exclusive consumer, positions rise

Knows nothing of brokers, processes or time: times are numbers of one clock that the workload read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from broker_core.base.positions import MessageId

_VIOLATIONS_SHOWN: Final = 20


class Message(NamedTuple):
    """The name of one message of the workload."""

    producer: str
    number: int


class Slot(NamedTuple):
    """Where one message lies in its topic; ``batch`` is -1 for a message that is an entry of its own."""

    ledger: int
    entry: int
    batch: int

    @classmethod
    def of(cls, message_id: MessageId) -> Slot:
        return cls(message_id.ledger, message_id.entry, message_id.batch_index)


class Session(NamedTuple):
    """Messages that one connection of a consumer was given, in order, and when it began."""

    started_at: float
    exclusive: bool
    delivered: list[tuple[Slot, Message]]


@dataclass(slots=True)
class TopicHistory:
    """Everything that was seen of one topic."""

    sent: dict[str, int] = field(default_factory=dict)
    """Messages that each producer sent, whatever became of them."""
    keys: dict[str, int] = field(default_factory=dict)
    """How many keys each producer that batches by key uses in turn: every message of a batch has the same key."""
    receipts: dict[Message, Slot] = field(default_factory=dict)
    given_up: set[Message] = field(default_factory=set)
    """Messages without receipt of which the client said that their outcome is unknown."""
    sessions: dict[str, list[Session]] = field(default_factory=lambda: defaultdict(list))
    """Sessions of each subscription."""
    acked_at: dict[str, dict[Slot, float]] = field(default_factory=lambda: defaultdict(dict))
    """For each subscription, when the acknowledgement of a slot was first confirmed."""
    log: dict[Slot, Message | None] = field(default_factory=dict)
    """The log at the end, in its order. None: a message that does not read as one of the workload's."""

    def lane(self, message: Message) -> tuple[str, int]:
        """The lane of ``message``: the order of messages in one lane is kept."""
        return message.producer, message.number % self.keys.get(message.producer, 1)


@dataclass(slots=True)
class Verdict:
    """The outcome. ``violations`` is empty where every rule holds."""

    receipts: int = 0
    stored: int = 0
    repeated: int = 0
    acked: int = 0
    delivered: int = 0
    broken: dict[str, int] = field(default_factory=dict)
    """How often each rule was broken; rules that hold are not in it."""
    violations: list[str] = field(default_factory=list)
    """In words; of each rule the first ones only."""

    def add(self, other: Verdict) -> None:
        """Count ``other`` in."""
        for rule, count in other.broken.items():
            self.broken[rule] = self.broken.get(rule, 0) + count
        self.receipts += other.receipts
        self.stored += other.stored
        self.repeated += other.repeated
        self.acked += other.acked
        self.delivered += other.delivered
        self.violations += other.violations

    def note(self, rule: str, where: str, found: Iterable[str]) -> None:
        """Add what breaks ``rule``."""
        texts = list(found)
        if not texts:
            return
        self.broken[rule] = self.broken.get(rule, 0) + len(texts)
        self.violations += [f"{where}: {rule}: {text}" for text in texts[:_VIOLATIONS_SHOWN]]
        if len(texts) > _VIOLATIONS_SHOWN:
            self.violations.append(f"{where}: {rule}: and {len(texts) - _VIOLATIONS_SHOWN:,} more like these")


def check_topic(topic: str, history: TopicHistory, *, drained: bool) -> Verdict:
    """Hold the history of one topic against all rules. ``drained``: consumers read to the end of the log (C3)."""
    last_copy = {message: slot for slot, message in history.log.items() if message is not None}
    verdict = Verdict(
        receipts=len(history.receipts),
        stored=len(history.log),
        repeated=len(history.log) - len(last_copy),
        acked=sum(len(acked) for acked in history.acked_at.values()),
        delivered=sum(len(session.delivered) for sessions in history.sessions.values() for session in sessions),
    )
    verdict.note("R1", topic, _receipts_are_in_the_log(history))
    verdict.note("R2", topic, _receipts_rise(history))
    verdict.note("R3", topic, _stored_was_sent(history))
    verdict.note("R4", topic, _receipts_name_last_copies(history.receipts, last_copy))
    verdict.note("R5", topic, _order_is_kept(history))
    for subscription, sessions in history.sessions.items():
        where = f"{topic}, subscription {subscription}"
        verdict.note("C1", where, _deliveries_match_log(sessions, history.log))
        verdict.note("C2", where, _acked_stays_acked(sessions, history.acked_at[subscription]))
        verdict.note("C3", where, _everything_was_delivered(sessions, history.log) if drained else [])
        verdict.note("C4", where, _sessions_rise(sessions))
    return verdict


def _receipts_are_in_the_log(history: TopicHistory) -> Iterable[str]:
    log = history.log
    return (
        f"{message} was confirmed at {slot}, but there is {log.get(slot, 'nothing')}"
        for message, slot in history.receipts.items()
        if log.get(slot) != message
    )


def _receipts_rise(history: TopicHistory) -> Iterable[str]:
    found = []
    ordered = sorted(history.receipts.items(), key=lambda receipt: (history.lane(receipt[0]), receipt[0].number))
    for (earlier, at), (later, then) in pairwise(ordered):
        if history.lane(earlier) == history.lane(later) and at >= then:
            found.append(f"{earlier} is at {at}, but {later} at {then}")
    return found


def _stored_was_sent(history: TopicHistory) -> Iterable[str]:
    return (
        f"at {slot} is {message or 'a damaged message'}, which was not sent"
        for slot, message in history.log.items()
        if message is None or message.number >= history.sent.get(message.producer, 0)
    )


def _receipts_name_last_copies(receipts: Mapping[Message, Slot], last_copy: Mapping[Message, Slot]) -> Iterable[str]:
    return (
        f"{message} was confirmed at {slot}, and is again at {last_copy[message]}"
        for message, slot in receipts.items()
        if last_copy.get(message, slot) > slot
    )


def _order_is_kept(history: TopicHistory) -> Iterable[str]:
    stored: dict[tuple[str, int], list[Message]] = defaultdict(list)
    for message in history.log.values():
        if message is not None:
            stored[history.lane(message)].append(message)
    return (text for messages in stored.values() for text in _steps_over(messages, history.given_up))


def _steps_over(messages: Sequence[Message], given_up: AbstractSet[Message]) -> Iterable[str]:
    """``messages``: of one lane, as they are stored."""
    known = sorted(set(messages))
    rank = {message: place for place, message in enumerate(known)}
    previous = -1
    for message in messages:
        skipped = known[previous + 1 : rank[message]]
        if any(each not in given_up for each in skipped):
            before = known[previous].number if previous >= 0 else "nothing"
            yield f"{message.producer} {message.number} follows {before} in the log"
        previous = rank[message]


def _deliveries_match_log(sessions: Sequence[Session], log: Mapping[Slot, Message | None]) -> Iterable[str]:
    return (
        f"{message} was delivered from {slot}, where the log has {log.get(slot, 'nothing')}"
        for session in sessions
        for slot, message in session.delivered
        if log.get(slot) != message
    )


def _acked_stays_acked(sessions: Sequence[Session], acked_at: Mapping[Slot, float]) -> Iterable[str]:
    return (
        f"{message} at {slot} came again after its acknowledgement was confirmed"
        for session in sessions
        for slot, message in session.delivered
        if acked_at.get(slot, session.started_at) < session.started_at
    )


def _everything_was_delivered(sessions: Sequence[Session], log: Mapping[Slot, Message | None]) -> Iterable[str]:
    delivered = {slot for session in sessions for slot, _ in session.delivered}
    return (f"{message} at {slot} was never delivered" for slot, message in log.items() if slot not in delivered)


def _sessions_rise(sessions: Sequence[Session]) -> Iterable[str]:
    found = []
    for session in sessions:
        if session.exclusive:
            slots = [slot for slot, _ in session.delivered]
            backward = (pair for pair in pairwise(slots) if pair[1] <= pair[0])
            found += [f"{later} was delivered after {earlier}" for earlier, later in backward]
    return found
