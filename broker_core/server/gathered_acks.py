# SPDX-License-Identifier: Apache-2.0
"""``GatheredAcks``: acknowledgements of all connections that came in one turn of the loop, applied at its end.

A subscription that is told of many at a time moves its cursor and goes through its checklist once. They are applied
sooner if they have become many, so that the end of a turn stays short, and before anything else that their connection
may have asked for behind them. Only acks without a receipt are gathered: no client can tell when they take effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from broker_core.broker.consumer import Consumer, ConsumerHost, EntryAcks

_ENTRIES_MAX: Final = 1000
"""They take some two milliseconds."""

_Gathered = dict[tuple[ConsumerHost, int], dict[Consumer, list[int]]]
"""The entries of each consumer, by subscription and ledger."""


class GatheredAcks:
    """The acks that were gathered in one turn of an event loop."""

    __slots__ = ("_call_soon", "_entries", "_gathered", "_scheduled")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._gathered: _Gathered = {}
        self._entries = 0
        self._scheduled = False

    def add(self, consumer: Consumer, ledger: int, entries: Sequence[int]) -> None:
        """``consumer`` acknowledges whole ``entries`` of one ledger, each by itself."""
        of_ledger = self._gathered.setdefault((consumer.subscription, ledger), {})
        theirs = of_ledger.get(consumer)
        if theirs is None:
            of_ledger[consumer] = list(entries)
        else:
            theirs += entries
        self._entries += len(entries)
        if self._entries >= _ENTRIES_MAX:
            self.apply()
        elif not self._scheduled:
            self._scheduled = True
            self._call_soon(self._turn_ends)

    def apply(self) -> None:
        """Tell the subscriptions. Who has left meanwhile acknowledges nothing any more."""
        if not self._entries:
            return
        gathered, self._gathered, self._entries = self._gathered, {}, 0
        for (subscription, ledger), by_consumer in gathered.items():
            acks = [EntryAcks(consumer, entries) for consumer, entries in by_consumer.items() if not consumer.closed]
            if acks:
                subscription.acks.ack_entries(ledger, acks, None)

    def _turn_ends(self) -> None:
        self._scheduled = False
        self.apply()
