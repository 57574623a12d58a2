# SPDX-License-Identifier: Apache-2.0
"""``Script``: what clients and an administrator do to one topic, step by step, and the dice that make one up.

Owns the steps and which of them may follow each other. A script names consumers and entries by itself (``c2``, ``e7``),
so that it means the same on every broker, and knows nothing of any.

Not everything may be compared, so not everything is played:

* Which of several consumers of a Shared subscription gets a message is chance, and by how much batches overdraw permits
  is each broker's own affair (2.4.6). Permits are few only where there is one consumer and no batch.
* Apache Pulsar forgets what is left of batches when a topic is unloaded. A script has the one or the other.
* It may expire too little where single messages are acknowledged. There is no expiry until they are passed over.
* It disconnects one Failover consumer when another seeks. Only a lone one seeks.

The last three are among the differences that ``docs/semantics.md`` lists.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Kind = Literal["Exclusive", "Shared", "Failover", "Key_Shared"]
KINDS: Final[tuple[Kind, ...]] = ("Exclusive", "Shared", "Failover", "Key_Shared")
SINGLE_ACTIVE: Final = frozenset({"Exclusive", "Failover"})
SUBSCRIPTIONS: Final = ("s", "t")
KEYS: Final = ("red", "green", "blue", "white")

PLENTY: Final = 1000
HOUR_MS: Final = 3_600_000
"""A delay that no script lives to see the end of."""

CROWD_MAX: Final = 3
STEPS_DEFAULT: Final = 25
_NEWEST: Final = 8
"""Steps are about one of the newest entries, so that they meet what is on its way."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is sent at once. ``messages`` > 1: a batch."""

    name: str
    messages: int = 1
    key: str = ""
    delay_ms: int = 0

    @property
    def all_bits(self) -> int:
        return (1 << self.messages) - 1


@dataclass(frozen=True, slots=True)
class Publish:
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Subscribe:
    """From the earliest message; may have to be refused."""

    consumer: str
    subscription: str
    kind: Kind
    permits: int


@dataclass(frozen=True, slots=True)
class Flow:
    consumer: str
    permits: int


@dataclass(frozen=True, slots=True)
class Ack:
    """Whole entries, whoever has them, or nobody."""

    consumer: str
    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AckSome:
    """Acknowledge all messages of a batch but ``left_bits``."""

    consumer: str
    entry: str
    left_bits: int


@dataclass(frozen=True, slots=True)
class AckThrough:
    consumer: str
    entry: str


@dataclass(frozen=True, slots=True)
class Redeliver:
    """These entries, or all (None). On Shared and Key_Shared whoever holds an entry asks for it."""

    consumer: str
    entries: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Leave:
    consumer: str


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Refused while others are there."""

    consumer: str


@dataclass(frozen=True, slots=True)
class Seek:
    """Seek to an entry, or to the end (None). All consumers of the subscription are disconnected and come back."""

    consumer: str
    entry: str | None


@dataclass(frozen=True, slots=True)
class Unload:
    """An administrator unloads the topic. All clients come back."""


@dataclass(frozen=True, slots=True)
class Skip:
    """An administrator skips the next entries, or all (None)."""

    subscription: str
    count: int | None


@dataclass(frozen=True, slots=True)
class Expire:
    """An administrator expires everything up to an entry."""

    subscription: str
    entry: str


Step: TypeAlias = (
    Publish
    | Subscribe
    | Flow
    | Ack
    | AckSome
    | AckThrough
    | Redeliver
    | Leave
    | Unsubscribe
    | Seek
    | Unload
    | Skip
    | Expire
)


@dataclass(frozen=True, slots=True)
class Script:
    """``unacked_max``: how much a consumer may leave unacknowledged on Shared and Key_Shared; 0: any number."""

    seed: int
    unacked_max: int
    steps: tuple[Step, ...]


@dataclass
class _Author:
    """Makes up one script; keeps what its steps have done so far, as far as the next ones depend on it.

    ``with_gaps``: subscriptions where single messages are acknowledged.
    """

    rng: random.Random
    is_crowded: bool
    has_batches: bool
    is_unloaded: bool
    with_gaps: set[str] = field(default_factory=set)
    entries: list[Entry] = field(default_factory=list)
    consumers: dict[str, list[tuple[str, Kind]]] = field(default_factory=lambda: defaultdict(list))
    named: int = 0

    @property
    def permits(self) -> int:
        return PLENTY if self.is_crowded or self.has_batches else self.rng.randint(1, 6)

    def someone(self) -> tuple[str, str, Kind] | None:
        """A consumer, its subscription and its type."""
        there = [(name, subscription, kind) for subscription, all_ in self.consumers.items() for name, kind in all_]
        return self.rng.choice(there) if there else None

    def recent(self) -> str:
        return self.rng.choice(self.entries[-_NEWEST:]).name

    def several(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.recent() for _ in range(self.rng.randint(1, 4))))

    # -- one of each; None where it cannot be

    def publish(self) -> Step:
        made = [self._entry() for _ in range(self.rng.randint(1, 6))]
        self.entries += made
        return Publish(tuple(made))

    def _entry(self) -> Entry:
        self.named += 1
        messages = self.rng.randint(2, 4) if self.has_batches and self.rng.random() < 0.6 else 1
        delay_ms = HOUR_MS if messages == 1 and self.rng.random() < 0.1 else 0
        return Entry(f"e{self.named}", messages, self.rng.choice(KEYS), delay_ms)

    def subscribe(self) -> Step | None:
        subscription = self.rng.choice(SUBSCRIPTIONS)
        there = self.consumers[subscription]
        if len(there) >= (CROWD_MAX if self.is_crowded else 1):
            return None
        kind = self.rng.choice(KINDS)
        if there and self.rng.random() < 0.8:
            kind = there[0][1]
        self.named += 1
        name = f"c{self.named}"
        if not there or (kind == there[0][1] and kind != "Exclusive"):
            there.append((name, kind))
        return Subscribe(name, subscription, kind, self.permits)

    def flow(self) -> Step | None:
        who = self.someone()
        return Flow(who[0], self.permits) if who else None

    def ack(self) -> Step | None:
        who = self.someone()
        if who is None or not self.entries:
            return None
        self.with_gaps.add(who[1])
        return Ack(who[0], self.several())

    def ack_some(self) -> Step | None:
        who = self.someone()
        batches = [each for each in self.entries[-_NEWEST:] if each.messages > 1]
        if who is None or not batches or self.is_unloaded:
            return None
        self.with_gaps.add(who[1])
        entry = self.rng.choice(batches)
        return AckSome(who[0], entry.name, self.rng.randint(1, entry.all_bits - 1))

    def ack_through(self) -> Step | None:
        who = self.someone()
        return AckThrough(who[0], self.recent()) if who and who[2] in SINGLE_ACTIVE and self.entries else None

    def redeliver(self) -> Step | None:
        who = self.someone()
        if who is None or not self.entries:
            return None
        return Redeliver(who[0], self.several() if self.rng.random() < 0.7 else None)

    def leave(self) -> Step | None:
        who = self.someone()
        if who is None:
            return None
        self.consumers[who[1]].remove((who[0], who[2]))
        return Leave(who[0])

    def unsubscribe(self) -> Step | None:
        who = self.someone()
        if who is None:
            return None
        if len(self.consumers[who[1]]) == 1:
            self.consumers[who[1]].clear()
            self.with_gaps.discard(who[1])
        return Unsubscribe(who[0])

    def seek(self) -> Step | None:
        who = self.someone()
        if who is None or not self.entries or (who[2] == "Failover" and len(self.consumers[who[1]]) > 1):
            return None
        self.with_gaps.discard(who[1])
        return Seek(who[0], self.recent() if self.rng.random() < 0.8 else None)

    def unload(self) -> Step | None:
        return Unload() if self.is_unloaded else None

    def skip(self) -> Step | None:
        subscription = self.rng.choice(SUBSCRIPTIONS)
        return Skip(subscription, self.rng.randint(1, 5) if self.rng.random() < 0.7 else None)

    def expire(self) -> Step | None:
        subscription = self.rng.choice(SUBSCRIPTIONS)
        if not self.entries or subscription in self.with_gaps:
            return None
        return Expire(subscription, self.recent())


_WEIGHTS: Final[dict[Callable[[_Author], Step | None], int]] = {
    _Author.publish: 20,
    _Author.subscribe: 14,
    _Author.flow: 14,
    _Author.ack: 16,
    _Author.ack_some: 6,
    _Author.ack_through: 8,
    _Author.redeliver: 14,
    _Author.leave: 6,
    _Author.unsubscribe: 2,
    _Author.seek: 5,
    _Author.unload: 2,
    _Author.skip: 3,
    _Author.expire: 3,
}


def make_script(seed: int, steps: int = STEPS_DEFAULT) -> Script:
    """The script of ``seed``, always the same one."""
    rng = random.Random(seed)
    has_batches = rng.random() < 0.4
    is_unloaded = not has_batches or rng.random() < 0.3
    author = _Author(rng, is_crowded=rng.random() < 0.5, has_batches=has_batches, is_unloaded=is_unloaded)
    is_limited = not author.is_crowded and not author.has_batches and rng.random() < 0.6
    made: list[Step | None] = [author.subscribe(), author.publish()]
    ways, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    while len(made) < steps:
        if (step := rng.choices(ways, weights)[0](author)) is not None:
            made.append(step)
    return Script(seed, rng.randint(2, 5) if is_limited else 0, tuple(step for step in made if step is not None))
