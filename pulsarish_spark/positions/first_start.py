# SPDX-License-Identifier: Apache-2.0
"""Where a query without a checkpoint begins, and what that may skip.

On a subscription that the user names and that is there, it begins where the subscription stands. A start that the user
asks for may lie behind that; then messages that are not acknowledged would be acknowledged unread, perhaps those of
another application, and the user must say so in words. Whether anything is skipped is known when the start is found,
and told only by ``check``: a restarted query whose first batch is noted already asks for its start, and ignores it.
"""

from __future__ import annotations

from broker_core.base.errors import ConfigError, SubscriptionNotFoundError
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.options import ReadOptions
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.start_spec import AtSubscription
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.positions.cursors import Cursors
from pulsarish_spark.positions.starting import resolve_start
from pulsarish_spark.viewing.broker_view import BrokerView


class FirstStart:
    """Used by one thread, or by several of which each has partitions of its own."""

    def __init__(self, view: BrokerView, cursors: Cursors, options: ReadOptions, policy: LossPolicy) -> None:
        self._view = view
        self._cursors = cursors
        self._options = options
        self._policy = policy
        self._own = (AtSubscription(), AtSubscription(options.subscription))
        self._skips: list[ConfigError] = []

    def find(self, key: TopicPartition, name: str) -> Offset:
        """Where one partition begins. A subscription that is there is in use from now on; none is made."""
        unread = self.position(name) if self._options.subscription else None
        said = self._options.starting.said_of(key)
        if unread is not None and (said is None or said.point in self._own):
            return unread
        default = self._options.initial_position or "latest"
        start = resolve_start(self._view, name, key, self._options, default, self._policy)
        if unread is not None and unread.key < start.key and not self._options.skip_unread:
            self._note_skipped(key, name, unread, start, said.option if said is not None else "startingOffsets")
        return start

    def check(self) -> None:
        """ConfigError if a start that was found would skip messages that are not acknowledged."""
        if self._skips:
            raise min(self._skips, key=str)

    def position(self, name: str) -> Offset | None:
        """The first message that the subscription has not acknowledged, or its end; None if it is not there."""
        try:
            self._cursors.open(name, must_exist=True)
        except SubscriptionNotFoundError:
            return None
        return self._view.unread(name, self._cursors.handle(name).mark_delete())

    def _note_skipped(self, key: TopicPartition, name: str, unread: Offset, start: Offset, option: str) -> None:
        if self._view.offset_at(name, unread.position) is None:
            return  # It stands at the end of the topic.
        places = unread.text(key.partition), start.text(key.partition)
        self._skips.append(
            ConfigError(
                f'subscription "{self._cursors.subscription}" of {key} has not acknowledged what comes at {places[0]}, '
                f"and {option} begins behind that, at {places[1]}",
                hint=f"leave out {option} to begin where the subscription stands, or give up what is between: "
                '.option("skipUnread", "true")',
            )
        )
