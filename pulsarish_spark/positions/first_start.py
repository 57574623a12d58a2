# SPDX-License-Identifier: Apache-2.0
"""Where a query without a checkpoint begins, and what that may skip.

On a subscription that the user names and that is there, it begins where the subscription stands. A start that the user
asks for may lie behind that; then messages that are not acknowledged would be acknowledged unread, perhaps those of
another application, and the user must say so in words. Whether anything is skipped is known when the start is found,
and told only by ``check``: a restarted query whose first batch is noted already asks for its start, and ignores it. So
is a start that is not to be found: an hour ago may have had messages when there was an hour less.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.base.errors import ConfigError, PartitionUnmadeError, SubscriptionNotFoundError
from pulsarish_spark.connecting.side_by_side import side_by_side
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.options import ReadOptions
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.start_spec import AtSubscription, Word
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.positions.cursors import Cursors
from pulsarish_spark.positions.starting import resolve_start, starts_at_edges
from pulsarish_spark.viewing.broker_view import BrokerView


class FirstStart:
    """Used by one thread."""

    def __init__(self, view: BrokerView, cursors: Cursors, options: ReadOptions, policy: LossPolicy) -> None:
        self._view = view
        self._cursors = cursors
        self._options = options
        self._policy = policy
        self._own = (AtSubscription(), AtSubscription(options.subscription))
        self._refused: list[ConfigError] = []

    def find(self, names: Mapping[TopicPartition, str]) -> dict[TopicPartition, Offset]:
        """Where partitions begin. A subscription that is there is in use from now on; none is made."""
        asked = [*names] if self._options.subscription else []
        positions = side_by_side(lambda key: self.position(names[key]), asked)
        unread = {key: at for key, at in zip(asked, positions, strict=True) if at is not None}
        resumed = {key: at for key, at in unread.items() if self._resumes(key)}
        others = {key: name for key, name in names.items() if key not in resumed}
        default = self._options.initial_position or "latest"
        found = resumed | starts_at_edges(self._view, others, self._options, default)
        sought = [key for key in others if key not in found]
        starts = side_by_side(lambda key: self._resolved(key, names[key], default), sought)
        found |= dict(zip(sought, starts, strict=True))
        for key in unread.keys() - resumed.keys():
            self._note_skipped(key, names[key], unread[key], found[key])
        return {key: found[key] for key in names}

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
            return  # It stands at the end of the topic.
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
