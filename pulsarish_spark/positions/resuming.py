# SPDX-License-Identifier: Apache-2.0
"""The places where a stream reads on: facts of the broker about them are gathered and judged, and losses reported.

Three moments: when the cursor of a partition is opened, at a start of the query or after the subscription was deleted
under it; when the cursor has come back to a broker, which may have been restored from an older copy meanwhile; and when
the end of a partition lies in another ledger than the place where reading should go on. Where both are in one ledger
that ledger is there, so nothing of it is lost (``losses.holes``). A loss is told once for each place. A place in a
compacted view is not judged: what the view lacks was left out, and what the log lacks, it stands for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from broker_core.base.errors import ChecksumMismatchError, ProtocolError, SubscriptionNotFoundError
from broker_core.base.positions import POSITION_LATEST, Position
from broker_core.client import Client
from pulsarish_spark.losses.agreement import Facts, judge
from pulsarish_spark.losses.holes import follows
from pulsarish_spark.losses.loss import DataLossError, LossPolicy
from pulsarish_spark.losses.lost import moved_ahead, subscription_gone, subscription_renamed
from pulsarish_spark.places.entries import offset_of
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.positions.cursors import Cursors
from pulsarish_spark.viewing.broker_view import BrokerView
from pulsarish_spark.viewing.view_then_log import ViewThenLog

logger = logging.getLogger(__name__)


class ResumePoint(NamedTuple):
    """The place where one partition should be read on. ``name``: on the broker. ``seen``: its end as last seen.

    ``published_ms``: the publish time of the entry before ``at``, as it was read; None where that is not known.
    """

    key: TopicPartition
    name: str
    at: Offset
    seen: Offset
    published_ms: int | None = None

    @property
    def before(self) -> Position:
        """The last entry that was read, if its number is 0 or more."""
        return Position(self.at.position.ledger, self.at.position.entry - 1)


class Next(NamedTuple):
    """The next message ``at``, None if there is none yet; ``anew``: the topic is another, so read all.

    ``is_whole``: nothing before it is lost.
    """

    at: Offset | None
    anew: bool = False
    is_whole: bool = True


@dataclass(slots=True, eq=False)
class Resuming:
    """The resume points of one query. Used by one thread, or by several of which each has partitions of its own."""

    _client: Client
    _view: BrokerView
    _cursors: Cursors
    _policy: LossPolicy
    _compacted: ViewThenLog | None = None
    former: str = ""
    """The subscription that the checkpoint was made with, if that is another."""
    _told: dict[str, Offset] = field(default_factory=dict)
    _known: dict[str, tuple[Offset, Offset, Next]] = field(default_factory=dict)
    _checked: dict[str, int] = field(default_factory=dict)
    """The session of its cursor in which the log of a partition was known again."""
    _moved: dict[str, tuple[ResumePoint, ResumePoint]] = field(default_factory=dict)
    """Places in a log that is another one now, and where reading begins there."""

    def _is_in_view(self, place: ResumePoint) -> bool:
        """Whether reading goes on in the compacted view."""
        return self._compacted is not None and place.at.position < self._compacted.bound(place.name)

    def is_held(self, name: str) -> bool:
        """Whether ``hold`` has nothing to ask."""
        return self._cursors.is_open(name) and self._checked.get(name) == self._cursors.handle(name).session

    def begin(self, names: Iterable[str]) -> None:
        """Reading begins on partitions whose cursors were just opened: nothing was read of another log."""
        self._checked |= {name: self._cursors.handle(name).session for name in names}

    def hold(self, place: ResumePoint) -> ResumePoint:
        """Make sure that the subscription holds what comes at ``place``; DataLossError if something of it is lost.

        Where that is an error the subscription is not made: the next attempt must not find it and go on. Returns where
        reading goes on: at ``place``, or elsewhere if its log is another one than was read.
        """
        name = place.name
        if not self._cursors.is_open(name):
            self._known.pop(name, None)
            self._open(place)
        session = self._cursors.handle(name).session
        if self._checked.get(name) != session:
            if not self._is_known_again(place):
                self._move(place)
            self._checked[name] = session
        return self.moved(place)

    def moved(self, place: ResumePoint) -> ResumePoint:
        """``place``, or the place in another log where reading goes on instead."""
        known = self._moved.get(place.name)
        if known is None or (known[0].at, known[0].published_ms) != (place.at, place.published_ms):
            return place
        return known[1]

    def _is_known_again(self, place: ResumePoint) -> bool:
        """Whether the last entry that was read is still the one before ``place``, as far as that can be told."""
        if place.published_ms is None or place.before.entry < 0:
            return True
        found = self._published_before(place)
        if found is not None:
            return found == place.published_ms
        return not self._is_unkept(place)

    def _is_unkept(self, place: ResumePoint) -> bool:
        """Whether the entry before ``place`` is not there, though the subscription has not let go of it."""
        mark_delete = self._cursors.handle(place.name).mark_delete()
        if mark_delete is None or mark_delete >= place.before:
            return False
        self._view.forget(place.name)
        try:
            there = self._view.offset_at(place.name, place.before)
        except (ChecksumMismatchError, ProtocolError):
            return False  # The entry is there, and cannot be read.
        return there is None or there.position != place.before

    def _move(self, place: ResumePoint) -> None:
        """Tell of a log that is another one, and begin there behind what the subscription has acknowledged: the older
        copy has that, and this query has read it."""
        self._view.forget(place.name)
        if not self._find(place, self._view.latest(place.name)).anew:
            return
        mark_delete = self._cursors.handle(place.name).mark_delete()
        keeps = mark_delete is not None and mark_delete < place.before
        begin = self._view.unread(place.name, mark_delete) if keeps else self._view.earliest(place.name)
        self._moved[place.name] = place, ResumePoint(place.key, place.name, begin, begin)

    def _open(self, place: ResumePoint) -> None:
        name = place.name
        try:
            self._cursors.open(name, must_exist=True, needed_from=place.at.position)
        except SubscriptionNotFoundError:
            found = self._find(place, self._view.latest(name), is_subscribed=bool(self.former))
            wanted, subscription = place.at.text(place.key.partition), self._cursors.subscription
            if self.former:
                what = subscription_renamed(place.key, self.former, subscription, wanted)
                logger.warning("subscription renamed what=%s", what)
            elif found.is_whole:  # else the loss was told, and what was to come there is not there
                what = subscription_gone(place.key, subscription, wanted)
                logger.warning("subscription made anew what=%s", what)
            self._make(place)
            return
        mark_delete = self._cursors.handle(name).mark_delete()
        if self._is_in_view(place):
            return  # What the log has of it, nobody needs.
        if mark_delete is not None and mark_delete.entry >= 0 and mark_delete >= place.at.position:
            found = self._find(place, self._view.latest(name))
            if found.at is None or found.at.position > mark_delete:
                return  # The broker has moved it, over holes.
            wanted = place.at.text(place.key.partition)
            what = moved_ahead(place.key, self._cursors.subscription, str(mark_delete), wanted)
            logger.warning("subscription moved ahead what=%s", what)

    def _make(self, place: ResumePoint) -> None:
        """Make the subscription anew. What was deleted while it was being made, it has not kept."""
        self._cursors.open(place.name, needed_from=place.at.position)
        if self.former:
            return  # The former subscription has kept it.
        try:
            self._find(place, self._view.latest(place.name), is_subscribed=False)
        except DataLossError:
            self._cursors.unsubscribe(place.name)
            raise

    def knows(self, place: ResumePoint, end: Offset) -> bool:
        """Whether ``find`` need not ask, or nobody needs to ask it: both are in one ledger, in order."""
        known = self._known.get(place.name)
        if (known is not None and known[:2] == (place.at, end)) or self._is_in_view(place):
            return True
        return end.position.ledger == place.at.position.ledger and place.at.is_possible_before(end)

    def find(self, place: ResumePoint, end: Offset) -> Next:
        """The next message at ``place`` of a partition that ends at ``end`` now."""
        known = self._known.get(place.name)
        if known is not None and known[:2] == (place.at, end):
            return known[2]
        found = self._find(place, end)
        self._known[place.name] = (place.at, end, found)
        return found

    def start(self, place: ResumePoint) -> Offset:
        """The first offset to read, as far as it is known: the place, or the next message that was found; of another
        topic at its first message."""
        known = self._known.get(place.name)
        found = known[2] if known is not None and known[0] == place.at else Next(None)
        if found.anew:
            return self._view.earliest(place.name)
        moves = found.at is not None and found.at.position != place.at.position
        return found.at if found.at is not None and moves else place.at

    def first_to_read(self, place: ResumePoint, end: Offset) -> tuple[Offset | None, bool]:
        """The first message to read before ``end``, and whether just that one must be there."""
        if self._is_in_view(place):
            return place.at, False
        if end.position.ledger != place.at.position.ledger or not place.at.is_possible_before(end):
            found = self.find(place, end)
            if found.anew:
                return self._view.earliest(place.name), False
            if found.at is None or found.at.position != place.at.position:
                return found.at, True
        if place.at.key == end.key:
            return None, True
        return place.at if end.message_index < 0 else self._view.with_index(place.name, place.at), True

    def known_end(self, place: ResumePoint, end: Offset, mark_delete: Position | None) -> Offset:
        """``end``, or the place itself where the broker shows nothing, or nothing new, behind it. ``mark_delete``: how
        far the subscription is acknowledged. The same position keeps its text, whether or not its index is known."""
        if self._compacted is not None and self._is_in_view(place):
            bound = Offset(self._compacted.bound(place.name))  # The log may have nothing.
            return max(end, bound, key=lambda offset: offset.key)
        if end.position.ledger == place.at.position.ledger and place.at.is_possible_before(end):
            is_new = end.key != place.at.key
        else:
            found = self.find(place, end)
            is_new = found.anew or (found.at is not None and found.at.key < end.key)
        if is_new:
            return end
        if mark_delete is None or mark_delete < place.at.position:
            return place.at
        return self._behind_holes(place, mark_delete)

    def _behind_holes(self, place: ResumePoint, mark_delete: Position) -> Offset:
        """The place to go on if the broker has moved the subscription to ``mark_delete``, at or behind ``place``:
        behind it where all between is holes. Noted, that is known also when the ledger is gone. Messages of open
        transactions are to come, and are no hole, whoever has skipped them."""
        at = place.at.position
        bounds = self._client.bounds_at(place.name, at)
        comes_first = bounds.first is not None and offset_of(bounds.first).position <= mark_delete
        if comes_first or not follows(at, bounds.before):
            return place.at
        passed = self._client.passed_over(place.name, at, mark_delete)
        return Offset(Position(passed.ledger, passed.entry + 1)) if passed >= at else place.at

    def expected_end(self, name: str, at: Offset) -> Offset:
        """The end that the broker tells as long as nothing has come behind ``at``."""
        known = self._known.get(name)
        return known[1] if known is not None and known[0] == at and known[2].at is None else at

    def _published_before(self, place: ResumePoint) -> int | None:
        if place.published_ms is None or place.before.entry < 0:
            return None
        return self._client.published_at([(place.name, place.before)], from_memory=False)[0]

    def _find(self, place: ResumePoint, end: Offset, *, is_subscribed: bool = True) -> Next:
        if self._is_in_view(place):
            return Next(self._view.offset_at(place.name, place.at.position))
        bounds = self._client.bounds_at(place.name, place.at.position)
        found = None if bounds.first is None else offset_of(bounds.first)
        found_ms = self._published_before(place)
        asks = place.published_ms is not None and found_ms is None and self._cursors.is_open(place.name)
        facts = Facts(
            at=place.at,
            seen=place.seen,
            end=end,
            before=bounds.before,
            next=found,
            subscription=self._cursors.subscription,
            is_subscribed=is_subscribed,
            read_ms=place.published_ms,
            found_ms=found_ms,
            is_unkept=asks and place.before.entry >= 0 and self._is_unkept(place),
            mark_delete=self._cursors.handle(place.name).mark_delete() if self._cursors.is_open(place.name) else None,
            last=self._client.bounds_at(place.name, POSITION_LATEST).before if found is None else None,
        )
        verdict = judge(place.key, place.key.partition, facts)
        if verdict.loss is not None and not verdict.anew and self._is_compacted(place):
            return Next(self._view.offset_at(place.name, place.at.position))
        if verdict.loss is not None and self._told.get(place.name) != place.at:
            self._policy.report(verdict.loss, self._cursors.subscription)
            self._told[place.name] = place.at
        return Next(found, verdict.anew, verdict.loss is None)

    def _is_compacted(self, place: ResumePoint) -> bool:
        """Whether a newer view stands for what the log has lost at ``place``; it is read then."""
        if self._compacted is None or not self._compacted.stands_for_deleted(place.name, place.at.position):
            return False
        self._view.forget(place.name)
        logger.info("read from the compacted view topic=%s from=%s", place.name, place.at.position)
        return True
