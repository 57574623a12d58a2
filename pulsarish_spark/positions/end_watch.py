# SPDX-License-Identifier: Apache-2.0
"""The ends of the partitions of a stream, and waiting for them to move without asking again and again.

Each partition is looked at through the query's own cursor, which is one round trip. Once all ends are known and nothing
is new, every cursor expects one push, and a partition is looked at again when its push has come. So an idle query costs
the broker nothing, and its planner a few calls a second, which are Spark's. Every ``LOOK_S`` or so all are looked at
without a push, for what no push tells: a topic that was emptied, or made anew.

The broker pushes what is not acknowledged. Where something before the query's place is not, the push tells nothing of
the end, so that partition is looked at in each call until the query has moved on. Must not know what ends mean.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from queue import Empty, SimpleQueue
from typing import Final

from broker_core.base.clock import Clock
from broker_core.base.positions import Position
from broker_core.client import CursorHandle, CursorLook, CursorNews
from pulsarish_spark.places.entries import behind_last
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.positions.cursors import Cursors

LOOK_S: Final = 5.0
"""Seconds between looks at ends although no push came."""

LOOKS_A_SECOND_MAX: Final = 10
"""Looks without a push that are made in a second. Each takes the planner a third of a millisecond, so beyond 50
partitions they are made less often than every ``LOOK_S``."""


class EndWatch:
    """The ends of the partitions of ``cursors``. Used by one thread; pushes come on the client's."""

    def __init__(self, cursors: Cursors, clock: Clock, look_s: float = LOOK_S) -> None:
        self._looks: dict[str, CursorLook] = {}  # what was seen last of each partition
        self._cursors = cursors
        self._clock = clock
        self._look_s = look_s
        self._looked_at = clock.monotonic()
        self._expecting: dict[str, CursorHandle] = {}
        self._pushed_old: dict[str, Offset] = {}
        self._came: SimpleQueue[tuple[str, CursorNews]] = SimpleQueue()

    def ends(self, names: Collection[str]) -> dict[str, Offset]:
        """The places behind the last message that is durable now."""
        self._looks |= self._cursors.look(names)
        return {name: behind_last(self._looks[name].last) for name in names}

    def ends_after(self, begin: Mapping[str, Offset], wait_s: float) -> dict[str, Offset]:
        """``ends`` as soon as one of them differs from ``begin``, at the latest after ``wait_s``.

        Everything before ``begin`` should be acknowledged.
        """
        deadline = self._clock.monotonic() + wait_s
        self._take_news(begin)
        unsure = self._unsure(begin)
        while True:
            self._looks |= self._cursors.look(unsure)
            ends = {name: behind_last(self._looks[name].last) for name in begin}
            if any(ends[name].key != begin[name].key for name in begin):
                return ends
            self._expect(begin)
            came = self._take_news(begin, max(deadline - self._clock.monotonic(), 0.0))
            if not came:
                return ends
            shown = {name: news.look for name, news in came.items() if name in begin and news.look is not None}
            self._looks |= shown
            unsure = [name for name in came if name in begin and name not in shown]

    def mark_delete(self, name: str) -> Position | None:
        """The mark-delete position of the partition at the last look; None: the broker does not tell."""
        return self._looks[name].mark_delete

    def stays_quiet(self, names: Collection[str], wait_s: float) -> bool:
        """Whether no look is due and no push comes within ``wait_s``, so that the last answer still holds."""
        if self._is_look_due() or not all(map(self._is_expecting, names)):
            return False
        try:
            came = self._came.get(timeout=wait_s)
        except Empty:
            return True
        self._came.put(came)
        return False

    def _unsure(self, begin: Mapping[str, Offset]) -> list[str]:
        """The partitions of which something may be new."""
        if self._is_look_due():
            self._looked_at = self._clock.monotonic()
            return list(begin)
        return [name for name in begin if not self._is_expecting(name)]

    def _is_look_due(self) -> bool:
        period_s = max(self._look_s, len(self._looks) / LOOKS_A_SECOND_MAX)
        return self._clock.monotonic() - self._looked_at >= period_s

    def _is_expecting(self, name: str) -> bool:
        return self._expecting.get(name) is self._cursors.handle(name)

    def _expect(self, begin: Mapping[str, Offset]) -> None:
        for name, offset in begin.items():
            if not self._is_expecting(name) and self._pushed_old.get(name) != offset:
                self._expecting[name] = handle = self._cursors.handle(name)
                handle.expect(lambda news, name=name: self._came.put((name, news)))  # type: ignore[misc]

    def _take_news(self, begin: Mapping[str, Offset], wait_s: float = 0.0) -> dict[str, CursorNews]:
        """The pushes that came, or come within ``wait_s``."""
        came: dict[str, CursorNews] = {}
        with contextlib.suppress(Empty):
            while True:
                name, news = self._came.get(timeout=0.0 if came else wait_s)
                came[name] = news
                self._expecting.pop(name, None)
                if news.position is not None and name in begin and news.position < begin[name].position:
                    self._pushed_old[name] = begin[name]
        return came
