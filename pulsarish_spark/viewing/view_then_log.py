# SPDX-License-Identifier: Apache-2.0
"""``ViewThenLog``: partitions as a stream with ``readCompacted`` sees them: the compacted view, then the log.

A client sees compacted topics as the broker's newest view, and behind its horizon the log. A stream must not, as its
batches are far apart: a run of compaction between two of them takes out tombstones of keys whose values the first one
had. So each partition has a bound, which the checkpoint notes while it matters. Before it the newest view is read;
behind it the log, of which the subscription of the query keeps all. What a newer view lacks before the bound has a
later message behind it.

The bound is the horizon when the query began. The protocol does not tell it, the admin REST does; where that is not
known, or tells nothing, it is the end that the log had. Where the log was deleted behind the bound, because nobody kept
it for the query, the view may stand for that: the bound rises to the first entry that the log still has.
Source: semantics 7.4.14.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Protocol

from broker_core.base.clock import BlockingClock
from broker_core.base.errors import PulsarishError
from broker_core.base.names import TopicName
from broker_core.base.positions import POSITION_EARLIEST, POSITION_LATEST, MessageId, Position
from broker_core.client import Bounds, Client, Counted, Edges, LastEntry, Span
from broker_core.client.admin import AdminApi, AdminRefusedError
from broker_core.wire.entry import EntryRef
from pulsarish_spark.connecting.connection import Address, open_admin
from pulsarish_spark.connecting.side_by_side import side_by_side
from pulsarish_spark.viewing.expiry_policy import CONNECTIONS_MAX

logger = logging.getLogger(__name__)

_CURSOR: Final = "__compaction"
"""The subscription as which compaction is shown; it stands at the horizon."""

_LEFT_ALONE_S: Final = 60.0
"""Seconds for which a broker that did not answer about one topic is not asked about another."""


class Log(Protocol):
    """Answers of a client about the entries of partitions, by the names that the broker has for them."""

    def first_entry_at(self, topic: str, position: Position, *, unmade_ok: bool = False) -> EntryRef | None:
        """As ``Client.first_entry_at``, and so for the others."""
        ...

    def first_entries_at(
        self, places: Sequence[tuple[str, Position]], *, unmade_ok: bool = False
    ) -> list[EntryRef | None]: ...

    def first_position_since(self, topic: str, publish_time_ms: int) -> Position | None: ...

    def bounds_at(self, topic: str, position: Position, *, unmade_ok: bool = False) -> Bounds: ...

    def last_entries(self, topics: Sequence[str], *, unmade_ok: Collection[str] = ()) -> list[LastEntry]: ...

    def edges_of(self, topics: Sequence[str], *, unmade_ok: bool = False) -> list[Edges]: ...

    def count_entries(self, spans: Sequence[Span]) -> list[Counted]: ...


class Horizons:
    """How far partitions are compacted, as the admin REST tells. A broker that does not answer is left alone for a
    while."""

    def __init__(self, address: Address, clock: BlockingClock) -> None:
        self._address = address
        self._clock = clock
        self._failed_at = -math.inf

    def of_all(self, names: Sequence[str]) -> dict[str, Position]:
        """The horizons of partitions, as far as they are known and anything was compacted. A few connections each ask
        for a part of them."""
        if not names or self._clock.monotonic() - self._failed_at < _LEFT_ALONE_S:
            return {}
        parts = [names[number::CONNECTIONS_MAX] for number in range(min(CONNECTIONS_MAX, len(names)))]
        return {name: horizon for found in side_by_side(self._ask, parts) for name, horizon in found.items()}

    def _ask(self, names: Sequence[str]) -> dict[str, Position]:
        found: dict[str, Position] = {}
        try:
            admin = open_admin(self._address)
            if admin is None:
                return found
            with admin:
                for name in names:
                    cursors = _cursors(admin, name)
                    if _CURSOR in cursors:
                        found[name] = MessageId.parse(cursors[_CURSOR]["markDeletePosition"]).position
        except PulsarishError as error:
            self._failed_at = self._clock.monotonic()
            logger.info("it is not known how far topics are compacted topic=%s reason=%s", names[0], error)
        return {name: horizon for name, horizon in found.items() if horizon.entry >= 0}


def _cursors(admin: AdminApi, name: str) -> dict[str, Any]:
    """The cursors of a partition; none of one that is not there."""
    try:
        return dict(admin.internal_stats(TopicName.parse(name), 0)["cursors"])
    except AdminRefusedError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return {}


class ViewThenLog:
    """The ``Log`` of one query. ``view``: a client that sees compacted topics as such. A partition without a bound is
    not read yet, and all of it is asked of ``view``."""

    def __init__(self, log: Client, view: Client, horizons: Horizons) -> None:
        self._log = log
        self._view = view
        self._horizons = horizons
        self._bounds: dict[str, Position] = {}
        self._raised: dict[str, Position] = {}

    # -- bounds

    def bound(self, name: str) -> Position:
        """Before it the view is read."""
        return max(self._bounds.get(name, POSITION_LATEST), self._raised.get(name, POSITION_EARLIEST))

    def is_bound(self, name: str) -> bool:
        """Whether a partition is read already."""
        return name in self._bounds

    def set_bounds(self, bounds: Mapping[str, Position | None]) -> None:
        """Read on with the bounds of a checkpoint; None: in the log alone."""
        self._bounds |= {name: POSITION_EARLIEST if at is None else at for name, at in bounds.items()}

    def find_bounds(self, ends: Mapping[str, Position]) -> None:
        """Set the bounds of partitions of which nothing was read. ``ends``: where their logs end."""
        horizons = self._horizons.of_all([*ends])
        self._bounds |= {name: _behind(horizons[name]) if name in horizons else end for name, end in ends.items()}

    def stands_for_deleted(self, name: str, at: Position) -> bool:
        """Whether the view has what is kept of the entries from ``at`` on that the log has lost. The bound rises
        then."""
        first, horizon = self._log.first_entry_at(name, at), self._horizons.of_all([name]).get(name)
        there = POSITION_LATEST if first is None else _position(first)
        if horizon is None:
            kept = self._view.first_entry_at(name, POSITION_EARLIEST)
            stands = kept is not None and _position(kept) < there
        else:
            stands = at <= _behind(horizon)
        if stands:
            self._raised[name] = there if first is not None else self._end_of(name)
        return stands

    def _end_of(self, name: str) -> Position:
        return _behind(self._log.bounds_at(name, POSITION_LATEST).before)

    # -- questions

    def first_entry_at(self, topic: str, position: Position, *, unmade_ok: bool = False) -> EntryRef | None:
        return self.first_entries_at([(topic, position)], unmade_ok=unmade_ok)[0]

    def first_entries_at(
        self, places: Sequence[tuple[str, Position]], *, unmade_ok: bool = False
    ) -> list[EntryRef | None]:
        early = [place for place in places if place[1] < self.bound(place[0])]
        kept = dict(zip(early, self._view.first_entries_at(early, unmade_ok=unmade_ok), strict=True))
        found = {place: entry for place, entry in kept.items() if self._is_before_bound(place[0], entry)}
        rest = [place for place in dict.fromkeys(places) if place not in found]
        asked = [(name, max(at, self.bound(name))) for name, at in rest]
        found |= dict(zip(rest, self._log.first_entries_at(asked, unmade_ok=unmade_ok), strict=True))
        return [found[place] for place in places]

    def _is_before_bound(self, name: str, kept: EntryRef | None) -> bool:
        """Whether the view answers alone: the first entry that it has lies before the bound, or there is no bound."""
        bound = self.bound(name)
        return bound == POSITION_LATEST or (kept is not None and _position(kept) < bound)

    def first_position_since(self, topic: str, publish_time_ms: int) -> Position | None:
        bound = self.bound(topic)
        found = self._view.first_position_since(topic, publish_time_ms) if bound > POSITION_EARLIEST else None
        if bound == POSITION_LATEST or (found is not None and found < bound):
            return found
        later = self._log.first_position_since(topic, publish_time_ms)
        return None if later is None else max(later, bound)

    def bounds_at(self, topic: str, position: Position, *, unmade_ok: bool = False) -> Bounds:
        side = self._view if position < self.bound(topic) else self._log
        before = side.bounds_at(topic, position, unmade_ok=unmade_ok).before
        return Bounds(before, self.first_entry_at(topic, position, unmade_ok=unmade_ok))

    def last_entries(self, topics: Sequence[str], *, unmade_ok: Collection[str] = ()) -> list[LastEntry]:
        found = self._log.last_entries(topics, unmade_ok=unmade_ok)
        shown = dict(zip(topics, found, strict=True))
        early = [name for name in topics if shown[name].position.entry < 0 and self.bound(name) > POSITION_EARLIEST]
        kept = dict(zip(early, self._view.last_entries(early, unmade_ok=unmade_ok), strict=True))
        return [kept.get(name, last) for name, last in zip(topics, found, strict=True)]

    def edges_of(self, topics: Sequence[str], *, unmade_ok: bool = False) -> list[Edges]:
        last = self.last_entries(topics, unmade_ok=topics if unmade_ok else ())
        first = self.first_entries_at([(name, POSITION_EARLIEST) for name in topics], unmade_ok=unmade_ok)
        return [
            Edges(None if each is None or _position(each) > end.position else each, end)
            for each, end in zip(first, last, strict=True)
        ]

    def count_entries(self, spans: Sequence[Span]) -> list[Counted]:
        """As ``Client.count_entries``; no span lies on both sides of a bound."""
        early = [span for span in spans if span.start < self.bound(span.topic)]
        late = [span for span in spans if span.start >= self.bound(span.topic)]
        found = dict(zip(early, self._view.count_entries(early), strict=True))
        found |= dict(zip(late, self._log.count_entries(late), strict=True))
        return [found[span] for span in spans]


def _position(entry: EntryRef) -> Position:
    return Position(entry.ledger, entry.entry)


def _behind(position: Position) -> Position:
    return Position(position.ledger, position.entry + 1)
