# SPDX-License-Identifier: Apache-2.0
"""From the options to the offset where one partition starts or ends: defaults, and times without a message.

Partitions that the options do not name have the default of the query's kind. A query without a checkpoint, on a
subscription that the user names and that is there, begins where the subscription stands. A start that the user asks for
may lie behind that; then messages that are not acknowledged would be acknowledged unread, perhaps those of another
application, and the user must say so in words.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.base.errors import ConfigError, PartitionUnmadeError, SubscriptionNotFoundError
from broker_core.base.moments import Moment, time_text
from pulsarish_spark.connecting.side_by_side import side_by_side
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.options import ReadOptions
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.start_spec import AtSubscription, LogPoint, Said, Word
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.positions.cursors import Cursors
from pulsarish_spark.viewing.broker_view import BrokerView


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


def ending_ms(key: TopicPartition, options: ReadOptions) -> int | None:
    """The publish time at which a batch read of one partition ends; None: it does not end at a time."""
    said = options.ending.said_of(key)
    return said.point.published_at(options.now_ms) if said and isinstance(said.point, Moment) else None


def _named(point: LogPoint, options: ReadOptions) -> LogPoint:
    """``point``, with the name of the query's own subscription if it is that."""
    return AtSubscription(point.name or options.subscription) if isinstance(point, AtSubscription) else point


class FirstStart:
    """The start of a query without a checkpoint.

    Whether anything is skipped is known when the start is found, and told only by ``check``: a restarted query whose
    first batch is noted already asks for its start, and ignores it. So is a start that is not to be found: an hour ago
    may have had messages when there was an hour less. Used by one thread.
    """

    def __init__(self, view: BrokerView, cursors: Cursors, options: ReadOptions, policy: LossPolicy) -> None:
        self._view = view
        self._cursors = cursors
        self._options = options
        self._policy = policy
        self._own = (AtSubscription(), AtSubscription(options.subscription))
        self._refused: list[ConfigError] = []

    def find(self, names: Mapping[TopicPartition, str]) -> dict[TopicPartition, Offset]:
        """The starts of partitions. A subscription that is there is in use from now on; none is made."""
        asked = [*names] if self._options.subscription else []
        positions = side_by_side(lambda key: self.position(names[key]), asked)
        unread = {key: at for key, at in zip(asked, positions, strict=True) if at is not None}
        resumed = {key: at for key, at in unread.items() if self._resumes(key)}
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

    def _resumes(self, key: TopicPartition) -> bool:
        """Whether a partition goes on where its subscription stands, if there is one."""
        said = self._options.starting.said_of(key)
        return said is None or said.point in self._own

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
