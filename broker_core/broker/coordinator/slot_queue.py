# SPDX-License-Identifier: Apache-2.0
"""``SlotQueue``: requests for new transactions that wait because a coordinator has as many as it may have.

Apache Pulsar does not answer them at all, so that clients do not ask again at once (PIP-154). Here they wait in their
order until a transaction ends, but not for ever: a client learns why before its own patience of 30 s is over.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Final, NamedTuple

from broker_core.base.clock import TimerHandle, Timers
from broker_core.base.errors import NotAllowedError, ServerError

WAIT_S_MAX: Final = 20.0

_WAITING_MAX: Final = 1000
"""Requests that wait at one coordinator, as many as a client may have unanswered there; more are refused at once."""


class _Waiting(NamedTuple):
    begin: Callable[[], None]
    timer: TimerHandle


class SlotQueue:
    """The waiting requests of each coordinator."""

    def __init__(self, timers: Timers, has_slot: Callable[[int], bool]) -> None:
        """``has_slot`` says whether a coordinator may have one more."""
        self._timers = timers
        self._has_slot = has_slot
        self._waiting: defaultdict[int, OrderedDict[int, _Waiting]] = defaultdict(OrderedDict)
        self._numbers = count()

    def when_free(self, coordinator: int, begin: Callable[[], None], refuse: Callable[[ServerError], None]) -> None:
        """Call ``begin`` when a slot is free and it is the first one that waits for one; ``refuse`` if that takes too
        long."""
        waiting = self._waiting[coordinator]
        if not waiting and self._has_slot(coordinator):
            begin()
        elif len(waiting) >= _WAITING_MAX:
            refuse(_too_many(coordinator))
        else:
            number = next(self._numbers)
            give_up = partial(self._give_up, coordinator, number, refuse)
            waiting[number] = _Waiting(begin, self._timers.call_later(WAIT_S_MAX, give_up))

    def freed(self, coordinator: int) -> None:
        """A transaction of the coordinator is over."""
        waiting = self._waiting[coordinator]
        while waiting and self._has_slot(coordinator):
            _, first = waiting.popitem(last=False)
            first.timer.cancel()
            first.begin()

    def close(self) -> None:
        """The broker stops: nobody is answered any more."""
        for waiting in self._waiting.values():
            for each in waiting.values():
                each.timer.cancel()
        self._waiting.clear()

    def _give_up(self, coordinator: int, number: int, refuse: Callable[[ServerError], None]) -> None:
        if self._waiting[coordinator].pop(number, None) is not None:
            refuse(_too_many(coordinator))


def _too_many(coordinator: int) -> NotAllowedError:
    return NotAllowedError(
        f"transaction coordinator {coordinator} has as many open transactions as it may have",
        hint="end some of them, or raise maxActiveTransactionsPerCoordinator",
    )
