# SPDX-License-Identifier: Apache-2.0
"""Checks what clients saw of transactions: each takes effect as a whole and once, or leaves nothing.

Every message has a value of its own; a client notes a transaction's values and the places of its acknowledged messages
before it sends any of them, and the request for its end before that leaves. In the end every topic is read from its
beginning, several times, and every subscription is drained. Anomalies:

    aborted read         somebody got a value of a transaction that was never asked to commit, or whose commit failed
    dirty read           somebody got a value before the commit of its transaction was asked for
    torn commit          some values or acknowledgements of a transaction took effect, others did not
    lost write           a value of a committed transaction is not there in the end
    vanished read        a value that somebody got is not there in the end
    duplicate write      a value is there twice
    unknown write        a value is there that no transaction wrote
    late write           a message was accepted for a transaction whose end had been answered
    lost ack             a message came again after the commit that acknowledged it: to a consumer that subscribed when
                         the commit was answered, or in the end
    duplicate ack        two committed transactions acknowledged the same message
    phantom ack          a message was never given out in the end, and no committed transaction acknowledged it
    visible order        two reads of a topic disagree, or values of one producer are not in the order in which it sent

A commit without an answer may have happened or not: its values in the end tell. Knows nothing of brokers, processes or
time: times are numbers of one clock that all clients read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from tests.kill.history import Slot

Outcome = Literal["ok", "fail", "unknown"]
Asked = Literal["commit", "abort", "nothing"]

ANOMALIES: Final = (
    "aborted read", "dirty read", "torn commit", "lost write", "vanished read", "duplicate write", "unknown write",
    "late write", "lost ack", "duplicate ack", "phantom ack", "visible order",
)  # fmt: skip
NEVER: Final = float("inf")
_SHOWN: Final = 10


class Place(NamedTuple):
    """A subscription of a topic."""

    topic: str
    subscription: str


class Writer(NamedTuple):
    """A producer, and the number of a value among those that it sent."""

    producer: str
    number: int


class Session(NamedTuple):
    """One consumer from its subscribing on, or one reader (``subscription`` is empty)."""

    place: Place
    started_at: float


class Delivery(NamedTuple):
    """A message that an application got in a session, and when."""

    session: str
    slot: Slot
    value: str
    at: float


@dataclass(slots=True)
class Transaction:
    """What a client noted of one transaction. ``asked``: the last request for its end."""

    name: str
    writes: dict[str, list[str]] = field(default_factory=dict)
    """Values for each topic."""
    acks: dict[Place, list[Slot]] = field(default_factory=dict)
    late: dict[str, list[str]] = field(default_factory=dict)
    """Values for each topic that were accepted after the end was answered."""
    asked: Asked = "nothing"
    asked_at: float = NEVER
    """When the first request to commit left."""
    answered_at: float = NEVER
    outcome: Outcome = "unknown"

    @property
    def is_committed(self) -> bool:
        """Whether its client was told so."""
        return self.asked == "commit" and self.outcome == "ok"

    @property
    def is_never_committed(self) -> bool:
        """Whether nobody may get anything of it."""
        return self.asked != "commit" or self.outcome == "fail"

    def __str__(self) -> str:
        ended = {"nothing": "left open"}.get(self.asked, f"{self.asked} {self.outcome}")
        acked = {f"{place.topic}/{place.subscription}": slots for place, slots in self.acks.items()}
        return f"{self.name} ({ended}; wrote {self.writes}, acknowledged {acked})"


@dataclass(slots=True)
class History:
    """Everything that clients noted, and the state in the end."""

    transactions: list[Transaction] = field(default_factory=list)
    sessions: dict[str, Session] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    final: dict[str, list[list[tuple[Slot, str]]]] = field(default_factory=dict)
    """For each topic, reads from its beginning to its end."""
    drained: dict[Place, list[tuple[Slot, str]]] = field(default_factory=dict)
    """For each subscription, what it still had to give in the end."""


@dataclass(slots=True)
class Verdict:
    """``found``: how often each anomaly was seen; ``texts``: the smallest histories of each, in words."""

    transactions: dict[str, int] = field(default_factory=dict)
    """How many had each end."""
    deliveries: int = 0
    visible: int = 0
    acks: int = 0
    found: dict[str, int] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    def note(self, anomaly: str, texts: Iterable[str]) -> None:
        """Add what shows ``anomaly``; the shortest text tells the smallest history."""
        shown = sorted(texts, key=len)
        if shown:
            self.found[anomaly] = self.found.get(anomaly, 0) + len(shown)
            self.texts += [f"{anomaly}: {text}" for text in shown[:_SHOWN]]


class _Looked:
    """A history with what its rules ask for again and again."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.writers = {
            value: txn for txn in history.transactions for values in txn.writes.values() for value in values
        }

    @cached_property
    def present(self) -> dict[str, Counter[str]]:
        """For each topic, how often each value is there in the end: in the read that saw it most often."""
        counted: dict[str, Counter[str]] = {}
        for topic, reads in self.history.final.items():
            counted[topic] = Counter()
            for read in reads:
                counted[topic] |= Counter(value for _, value in read)
        return counted

    def is_present(self, topic: str, value: str) -> bool:
        return value in self.present.get(topic, ())

    @cached_property
    def drained_slots(self) -> dict[Place, set[Slot]]:
        return {place: {slot for slot, _ in got} for place, got in self.history.drained.items()}

    def missing(self, txn: Transaction) -> list[tuple[str, str]]:
        """Values of ``txn`` that are not there in the end."""
        pairs = ((topic, value) for topic, values in txn.writes.items() for value in values)
        return [pair for pair in pairs if not self.is_present(*pair)]

    def is_effective(self, txn: Transaction) -> bool:
        """Whether ``txn`` was committed, as far as anybody can tell."""
        if txn.is_committed or txn.is_never_committed:
            return txn.is_committed
        wrote = sum(map(len, txn.writes.values()))
        return len(self.missing(txn)) < wrote

    @cached_property
    def effective(self) -> list[Transaction]:
        return [txn for txn in self.history.transactions if self.is_effective(txn)]

    @cached_property
    def ackers(self) -> dict[tuple[Place, Slot], list[Transaction]]:
        """Who acknowledged each message, of the transactions that took effect."""
        found: dict[tuple[Place, Slot], list[Transaction]] = defaultdict(list)
        for txn in self.effective:
            for place, slots in txn.acks.items():
                for slot in slots:
                    found[place, slot].append(txn)
        return found


def check(history: History) -> Verdict:
    """Hold a history against all rules."""
    looked = _Looked(history)
    verdict = Verdict(
        transactions=dict(Counter(f"{txn.asked} {txn.outcome}" for txn in history.transactions)),
        deliveries=len(history.deliveries),
        visible=sum(sum(counted.values()) for counted in looked.present.values()),
        acks=sum(map(len, looked.ackers.values())),
    )
    verdict.note("aborted read", _aborted_reads(looked))
    verdict.note("dirty read", _dirty_reads(looked))
    verdict.note("torn commit", _torn_commits(looked))
    verdict.note("lost write", _lost_writes(looked))
    verdict.note("vanished read", _vanished_reads(looked))
    verdict.note("duplicate write", _duplicate_writes(looked))
    verdict.note("unknown write", _unknown_writes(looked))
    verdict.note("late write", _late_writes(history))
    verdict.note("lost ack", _lost_acks(looked))
    verdict.note("duplicate ack", _duplicate_acks(looked))
    verdict.note("phantom ack", _phantom_acks(looked))
    verdict.note("visible order", [*_disagreeing_reads(history), *_disordered_producers(history)])
    return verdict


def acknowledged(history: History) -> dict[Place, set[Slot]]:
    """Messages of each subscription that were acknowledged by transactions that took effect; needs the final reads."""
    found: dict[Place, set[Slot]] = defaultdict(set)
    for place, slot in _Looked(history).ackers:
        found[place].add(slot)
    return found


def _aborted_reads(looked: _Looked) -> Iterable[str]:
    for topic, counted in looked.present.items():
        for value in counted:
            if (txn := looked.writers.get(value)) is not None and txn.is_never_committed:
                yield f"{value} is in {topic} in the end, and is of {txn}"
    for got in looked.history.deliveries:
        if (txn := looked.writers.get(got.value)) is not None and txn.is_never_committed:
            yield f"{got.session} got {got.value} at {got.slot}, which is of {txn}"


def _dirty_reads(looked: _Looked) -> Iterable[str]:
    for got in looked.history.deliveries:
        txn = looked.writers.get(got.value)
        if txn is not None and not txn.is_never_committed and got.at < txn.asked_at:
            early = f"{txn.asked_at - got.at:.6f} s"
            yield f"{got.session} got {got.value} {early} before the commit was asked for of {txn}"


def _torn_commits(looked: _Looked) -> Iterable[str]:
    for txn in looked.history.transactions:
        if txn.is_never_committed:
            continue
        missing = looked.missing(txn)
        if missing and looked.is_effective(txn) and len(missing) < sum(map(len, txn.writes.values())):
            yield f"{missing} is missing of {txn}"
        elif not txn.is_committed and txn.writes:
            yield from _torn_acks(looked, txn, took_effect=not missing)


def _torn_acks(looked: _Looked, txn: Transaction, *, took_effect: bool) -> Iterable[str]:
    """Acknowledgements of a commit without an answer, of which the values are all there or all missing."""
    for place, slots in txn.acks.items():
        for slot in slots:
            comes = slot in looked.drained_slots.get(place, ())
            if took_effect and comes:
                yield f"the message at {slot} came again, and the values are there, of {txn}"
            elif not (took_effect or comes or (place, slot) in looked.ackers) and _is_there(looked, place, slot):
                yield f"the message at {slot} is acknowledged, and the values are missing, of {txn}"


def _is_there(looked: _Looked, place: Place, slot: Slot) -> bool:
    return any(slot == seen for read in looked.history.final.get(place.topic, ()) for seen, _ in read)


def _lost_writes(looked: _Looked) -> Iterable[str]:
    for txn in looked.history.transactions:
        if txn.is_committed:
            for topic, value in looked.missing(txn):
                yield f"{value} is not in {topic}, and is of {txn}"


def _vanished_reads(looked: _Looked) -> Iterable[str]:
    for got in looked.history.deliveries:
        topic = looked.history.sessions[got.session].place.topic
        if topic in looked.present and not looked.is_present(topic, got.value):
            yield f"{got.session} got {got.value} at {got.slot}, and it is not in {topic} in the end"


def _duplicate_writes(looked: _Looked) -> Iterable[str]:
    for topic, counted in looked.present.items():
        for value, count in counted.items():
            if count > 1:
                yield f"{value} is in {topic} {count} times, of {looked.writers.get(value)}"


def _unknown_writes(looked: _Looked) -> Iterable[str]:
    late = {value for txn in looked.history.transactions for values in txn.late.values() for value in values}
    for topic, counted in looked.present.items():
        for value in counted:
            if value not in looked.writers and value not in late:
                yield f"{value} is in {topic}, and nobody wrote it"


def _late_writes(history: History) -> Iterable[str]:
    for txn in history.transactions:
        for topic, values in txn.late.items():
            for value in values:
                yield f"{value} was accepted by {topic} after the end of {txn}"


def _lost_acks(looked: _Looked) -> Iterable[str]:
    for place, slots in looked.drained_slots.items():
        for slot in slots:
            for txn in looked.ackers.get((place, slot), ()):
                if txn.is_committed:
                    yield f"the message at {slot} of {place} came in the end, after {txn}"
    for got in looked.history.deliveries:
        session = looked.history.sessions[got.session]
        for txn in looked.ackers.get((session.place, got.slot), ()):
            if txn.is_committed and txn.answered_at < session.started_at:
                yield f"{got.session} got {got.slot} again, and began after the answer to {txn}"


def _duplicate_acks(looked: _Looked) -> Iterable[str]:
    for (place, slot), txns in looked.ackers.items():
        if len(txns) > 1:
            yield f"the message at {slot} of {place} was acknowledged by {' and '.join(map(str, txns))}"


def _phantom_acks(looked: _Looked) -> Iterable[str]:
    for place, drained in looked.drained_slots.items():
        reads = looked.history.final.get(place.topic, [[]])
        for slot, value in reads[0]:
            if slot not in drained and (place, slot) not in looked.ackers:
                yield f"{value} at {slot} does not come to {place}, and no committed transaction acknowledged it"


def _disagreeing_reads(history: History) -> Iterable[str]:
    """All that was got of a topic must be at the places of the first final read, and come in its order."""
    logs: dict[str, Mapping[Slot, str]] = {}
    for topic, reads in history.final.items():
        logs[topic] = dict(reads[0]) if reads else {}
        for number, read in enumerate(reads):
            if read != reads[0]:
                yield f"read {number} of {topic} differs from the first: {_first_difference(reads[0], read)}"
            yield from _steps_back(f"read {number} of {topic}", [slot for slot, _ in read])
    seen: dict[str, list[Slot]] = defaultdict(list)
    for got in history.deliveries:
        place = history.sessions[got.session].place
        log = logs.get(place.topic, {})
        if log.get(got.slot, got.value) != got.value:
            yield f"{got.session} got {got.value} at {got.slot}, where {log[got.slot]} is"
        if not place.subscription:
            seen[got.session].append(got.slot)
    for session, slots in seen.items():
        yield from _steps_back(session, slots)


def _first_difference(one: Sequence[tuple[Slot, str]], other: Sequence[tuple[Slot, str]]) -> str:
    pairs = zip(one, other, strict=False)
    different = next(((left, right) for left, right in pairs if left != right), None)
    return f"{different[0]} and {different[1]}" if different else f"{len(one)} and {len(other)} messages"


def _steps_back(who: str, slots: Sequence[Slot]) -> Iterable[str]:
    for before, after in pairwise(slots):
        if after <= before:
            yield f"{who} has {after} behind {before}"


def writer_of(value: str) -> Writer | None:
    """Producer and number of a value; None where it names none. The form is ``PRODUCER/NUMBER``, then anything."""
    producer, _, rest = value.partition("/")
    digits = rest.partition(" ")[0]
    return Writer(producer, int(digits)) if digits.isdecimal() else None


def _disordered_producers(history: History) -> Iterable[str]:
    for topic, reads in history.final.items():
        last: dict[str, int] = {}
        for _, value in reads[0] if reads else ():
            writer = writer_of(value)
            if writer is None:
                continue
            if writer.number < last.get(writer.producer, -1):
                yield f"{value} is in {topic} behind number {last[writer.producer]} of its producer"
            last[writer.producer] = writer.number
