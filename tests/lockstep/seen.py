# SPDX-License-Identifier: Apache-2.0
"""``SeenSubscription``: what the consumers of one subscription have seen of it, in a form that can be compared.

Owns who holds what, the order of keys, and what of it must be the same on every broker (``view``). What one broker
alone breaks goes into ``faults``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.lockstep.script import SINGLE_ACTIVE, Entry, Subscribe


class Delivery(NamedTuple):
    """``bits``: the messages of the entry that are not acknowledged. ``times``: redelivered; None: not promised."""

    entry: str
    bits: int
    times: int | None


@dataclass(eq=False)
class SeenConsumer:
    """``asked``: the step by which it subscribes, also when it comes back. ``came``: since then."""

    id: int
    asked: Subscribe
    came: list[Delivery] = field(default_factory=list)


@dataclass(eq=False)
class SeenSubscription:
    """``left``: entries of which not all is acknowledged, in the order of the log, and what of them.

    ``held``: those that were delivered and not given back, and who has them. ``newest``: of each key, the number of the
    entry that came last. ``is_blurred``: one of several consumers left, or gave back all that it had. On Shared it is
    chance which entries that were, so what came says nothing any more, only what is held does.
    """

    left: dict[str, int]
    faults: list[str]
    consumers: dict[str, SeenConsumer] = field(default_factory=dict)
    held: dict[str, SeenConsumer] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    is_blurred: bool = False

    # -- what happens

    def delivered(self, consumer: SeenConsumer, entry: Entry, bits: int, times: int, keys: dict[str, str]) -> None:
        """``entry`` came to ``consumer``. ``keys``: of all entries."""
        # Apache Pulsar forgets the count when some of a batch is acknowledged, ours when all of it is (3.3.5).
        is_counted = self.left.get(entry.name, entry.all_bits) == entry.all_bits
        consumer.came.append(Delivery(entry.name, bits, times if is_counted else None))
        if consumer.asked.kind not in SINGLE_ACTIVE and entry.name in self.held:
            self.faults.append(f"I2.2: {entry.name} came to {consumer.asked.consumer} while it was held")
        if consumer.asked.kind == "Key_Shared":
            self._judge_key(consumer, entry, times, keys)
        self.held[entry.name] = consumer

    def _judge_key(self, consumer: SeenConsumer, entry: Entry, times: int, keys: dict[str, str]) -> None:
        if any(keys[each] == entry.key for each, owner in self.held.items() if owner is not consumer):
            self.faults.append(f"I2.11: {entry.name} came while another consumer held its key")
        if times == 0 and not self.is_blurred:
            number = list(keys).index(entry.name)
            if number < self.newest.get(entry.key, 0):
                self.faults.append(f"I2.12: {entry.name} came after a newer one of its key")
            self.newest[entry.key] = number

    def acked(self, entry: str, left_bits: int = 0) -> None:
        """``entry`` was acknowledged, but for the messages in ``left_bits``."""
        if left := self.left.get(entry, 0) & left_bits:
            self.left[entry] = left
        else:
            self.left.pop(entry, None)
            self.held.pop(entry, None)

    def given_back(self, consumer: SeenConsumer) -> None:
        """All that it holds."""
        self.held = {entry: owner for entry, owner in self.held.items() if owner is not consumer}
        self.is_blurred |= consumer.asked.kind == "Shared" and len(self.consumers) > 1

    def left_by(self, consumer: SeenConsumer) -> None:
        """``consumer`` is gone."""
        self.given_back(consumer)
        del self.consumers[consumer.asked.consumer]
        self.is_blurred = bool(self.consumers)
        if not self.consumers:
            self.begin_anew()

    def begin_anew(self) -> None:
        """Everybody was disconnected: what was only in the broker's memory is forgotten."""
        self.held.clear()
        self.newest.clear()
        self.is_blurred = False
        for consumer in self.consumers.values():
            consumer.came.clear()

    # -- what is compared

    def view(self) -> dict[str, Any]:
        """What must be the same everywhere when nothing more happens."""
        consumers = list(self.consumers.values())
        if not consumers or self.is_blurred:
            return {"holds": sorted(self.held)}
        if consumers[0].asked.kind in SINGLE_ACTIVE:
            return {f"to {each.asked.consumer}": list(each.came) for each in consumers}
        if consumers[0].asked.kind == "Shared":
            return {"holds": sorted(self.held), "to all": _in_any_order(consumers)}
        return {
            "holds": sorted(self.held),
            **{f"to {each.asked.consumer}": _in_any_order([each]) for each in consumers},
        }


def _in_any_order(consumers: Iterable[SeenConsumer]) -> dict[Delivery, int]:
    """What came to them, and how often."""
    return dict(Counter(delivery for each in consumers for delivery in each.came))
