# SPDX-License-Identifier: Apache-2.0
"""The bounds of a read: from options to the offset where one partition starts or ends.

Partitions that the options do not name have the default of the query's kind. A query without a checkpoint, on a
subscription that the user names and that is there, begins where the subscription stands. A start that the user asks for
may lie behind that; then messages that are not acknowledged would be acknowledged unread, perhaps those of another
application, and the user must say so in words.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from broker_core.base.errors import ConfigError, PartitionUnmadeError, SubscriptionNotFoundError
from broker_core.base.moments import Moment, time_text
from pulsarish_spark.connecting.side_by_side import side_by_side
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.options import ReadOptions
from pulsarish_spark.places.offsets import Offset, Offsets
from pulsarish_spark.places.start_spec import AtIndex, AtSubscription, LogPoint, Said, Word
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.positions.cursors import Cursors
from pulsarish_spark.positions.resuming import ResumePoint
from pulsarish_spark.viewing.broker_view import HOW_TO_GET_INDEXES, BrokerView

logger = logging.getLogger(__name__)


def resolve_start(
    view: BrokerView, name: str, key: TopicPartition, options: ReadOptions, default: Word, policy: LossPolicy
) -> Offset:
    """The offset where one partition starts."""
    option, point = options.starting.said_of(key) or Said("startingOffsets", default)
    if not isinstance(point, Moment):
        return view.find(name, _named(point, options), f"the starting offset of {key}", policy)
    time_ms = point.published_at(options.now_ms)
    found = view.at_time(name, time_ms)
    if found is None and options.no_match == "error":
        raise ConfigError(
            f"{option} is {time_text(time_ms)} and {key} has no message so young",
            hint='start such partitions at their end: .option("startingOffsetsByTimestampStrategy", "latest")',
        )
    return view.latest(name) if found is None else found


def resolve_end(
    view: BrokerView, name: str, key: TopicPartition, options: ReadOptions, policy: LossPolicy
) -> Offset | None:
    """The offset where a batch read of one partition ends; None: at its end when it is read, or at ``ending_ms``."""
    said = options.ending.said_of(key)
    if said is None or said.point == "latest":
        return None
    if isinstance(said.point, Moment):
        return view.at_time(name, said.point.published_at(options.now_ms))
    return view.find(name, _named(said.point, options), f"the ending offset of {key}", policy)


def check_order(key: TopicPartition, start: Offset, end: Offset, hint: str = "") -> None:
    """ConfigError if a read of one partition begins behind its end."""
    if start.key > end.key:
        raise ConfigError(
            f"{key} would be read from {start.text(key.partition)} back to {end.text(key.partition)}",
            hint=f"swap the starting and the ending option{hint}",
        )


def ending_ms(key: TopicPartition, options: ReadOptions) -> int | None:
    """The publish time at which a batch read of one partition ends; None: it does not end at a time."""
    said = options.ending.said_of(key)
    return said.point.published_at(options.now_ms) if said and isinstance(said.point, Moment) else None


def _named(point: LogPoint, options: ReadOptions) -> LogPoint:
    """``point``, with the name of the query's own subscription if it is that."""
    return AtSubscription(point.name or options.subscription) if isinstance(point, AtSubscription) else point


@dataclass(slots=True, eq=False)
class FirstStart:
    """The start of a query without a checkpoint.

    Whether anything is skipped is known when the start is found, and told only by ``check``: a restarted query whose
    first batch is noted already asks for its start, and ignores it. So is a start that is not to be found: an hour ago
    may have had messages when there was an hour less. Used by one thread.
    """

    _view: BrokerView
    _cursors: Cursors
    _options: ReadOptions
    _policy: LossPolicy
    _refused: list[ConfigError] = field(default_factory=list)

    def find(self, names: Mapping[TopicPartition, str]) -> dict[TopicPartition, Offset]:
        """The starts of partitions. A subscription that is there is in use from now on; none is made."""
        asked = [*names] if self._options.subscription else []
        positions = side_by_side(lambda key: self.position(names[key]), asked)
        unread = {key: at for key, at in zip(asked, positions, strict=True) if at is not None}
        said = {key: self._options.starting.said_of(key) for key in unread}
        own = (AtSubscription(), AtSubscription(self._options.subscription))
        # Without a word of the user a partition goes on where its subscription stands.
        resumed = {key: at for key, at in unread.items() if (each := said[key]) is None or each.point in own}
        others = {key: name for key, name in names.items() if key not in resumed}
        default = self._options.initial_position or "latest"
        found = resumed | self._at_edges(others, default)
        sought = [key for key in others if key not in found]
        starts = side_by_side(lambda key: self._resolved(key, names[key], default), sought)
        found |= dict(zip(sought, starts, strict=True))
        for key in unread.keys() - resumed.keys():
            self._note_skipped(key, names[key], unread[key], found[key])
        return {key: found[key] for key in names}

    def _at_edges(self, names: Mapping[TopicPartition, str], default: Word) -> dict[TopicPartition, Offset]:
        """The first offset of each partition that starts at its beginning or end. The broker is asked for all of them
        in one round."""
        said = {key: self._options.starting.said_of(key) for key in names}
        points = {key: default if each is None else each.point for key, each in said.items()}
        edges = self._view.edges_of([names[key] for key, point in points.items() if point == "earliest"])
        ends = self._view.ends_of([names[key] for key, point in points.items() if point == "latest"])
        starts = {name: both.first for name, both in edges.items()} | ends
        return {key: starts[name] for key, name in names.items() if name in starts}

    def check(self) -> None:
        """ConfigError if a start was not found, or would skip messages that are not acknowledged."""
        if self._refused:
            raise min(self._refused, key=str)

    def _resolved(self, key: TopicPartition, name: str, default: Word) -> Offset:
        try:
            return resolve_start(self._view, name, key, self._options, default, self._policy)
        except ConfigError as error:
            self._refused.append(error)
            return self._view.latest(name)

    def position(self, name: str) -> Offset | None:
        """The first message that the subscription has not acknowledged, or its end; None if it is not there."""
        try:
            self._cursors.open(name, must_exist=True)
        except (SubscriptionNotFoundError, PartitionUnmadeError):
            return None
        return self._view.unread(name, self._cursors.handle(name).mark_delete())

    def _note_skipped(self, key: TopicPartition, name: str, unread: Offset, start: Offset) -> None:
        if unread.key >= start.key or self._options.skip_unread:
            return
        if self._view.offset_at(name, unread.position) is None:
            return  # The subscription stands at the end of the topic.
        said = self._options.starting.said_of(key)
        option = said.option if said is not None else "startingOffsets"
        places = unread.text(key.partition), start.text(key.partition)
        self._refused.append(
            ConfigError(
                f'subscription "{self._cursors.subscription}" of {key} has not acknowledged what comes at {places[0]}, '
                f"and {option} begins after that, at {places[1]}",
                hint=f"leave out {option} to begin where the subscription stands, or give up what is between: "
                '.option("skipUnread", "true")',
            )
        )


@dataclass(slots=True, eq=False)
class StreamEnd:
    """The end of a stream: no row at or behind the place that ``endingOffsets`` or ``endingTimestamp`` says.

    The place may not exist yet, so it is looked for in each partition as its end moves, and remembered when it is
    found. An id needs no look: positions have an order. A time costs a question to the broker whenever something new
    has come, for any message may be as young. A partition that no option names has no end. Used by one thread.
    """

    _view: BrokerView
    _options: ReadOptions
    _found: dict[TopicPartition, Offset] = field(default_factory=dict)
    _looked: dict[TopicPartition, Offset] = field(default_factory=dict)
    _told: bool = False

    def cut(self, places: Mapping[TopicPartition, ResumePoint], ends: Offsets) -> Offsets:
        """``ends`` of partitions that are read on at ``places``, as far as the stream goes."""
        if not self._options.ending.specs:
            return ends
        return {key: self._cut(places[key], end) for key, end in ends.items()}

    def is_reached(self, keys: Iterable[TopicPartition], at: Offsets) -> bool:
        """Whether the stream has nothing behind ``at``, whatever comes."""
        if not self._found:
            return False
        return all(key in self._found and key in at and at[key].key >= self._found[key].key for key in keys)

    def check_order(self, places: Mapping[TopicPartition, ResumePoint]) -> None:
        """ConfigError if a query begins behind its end."""
        for key, place in places.items():
            end = self._found.get(key)
            if end is not None:
                check_order(key, place.at, end, "; without a starting one a stream begins at latest")

    def tell(self) -> None:
        """Say once that the stream has no more rows."""
        if not self._told:
            logger.info("the stream has reached its end partitions=%d effect=%s", len(self._found), "no more rows")
            self._told = True

    def _cut(self, place: ResumePoint, end: Offset) -> Offset:
        found = self._found.get(place.key)
        if found is None and self._looked.get(place.key) != end:
            found = self._find(place, end)
            self._looked[place.key] = end
            if found is not None:
                self._found[place.key] = found
        if found is None or found.key >= end.key:
            return end
        # The same place keeps its text, whether or not its index is known by now.
        return found if found.key > place.at.key else place.at

    def _find(self, place: ResumePoint, end: Offset) -> Offset | None:
        """The end of one partition; None if it is not there yet."""
        said = self._options.ending.said_of(place.key)
        if said is None:
            return None
        if isinstance(said.point, Moment):
            return self._view.at_time(place.name, said.point.published_at(self._options.now_ms))
        if isinstance(said.point, AtIndex):
            return self._at_index(place, said.point.message_index, end)
        assert isinstance(said.point, Offset), said.point  # Options refuse all else.
        return said.point if end.message_index < 0 else self._view.with_index(place.name, said.point)

    def _at_index(self, place: ResumePoint, index: int, end: Offset) -> Offset | None:
        first = self._view.offset_at(place.name, place.at.position)
        if first is None or first.key >= end.key:
            return None  # Nothing is there that could have an index.
        if min(first.message_index, end.message_index) < 0:
            raise ConfigError(
                f"the ending offset of {place.key} is message index {index}, but the broker does not tell indexes",
                hint=f"give an id ledger:entry or a time; {HOW_TO_GET_INDEXES}",
            )
        if index <= first.message_index + place.at.batch:
            return place.at
        return self._view.inside(place.name, index, first, end) if index < end.message_index else None
