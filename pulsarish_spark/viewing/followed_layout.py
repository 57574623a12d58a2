# SPDX-License-Identifier: Apache-2.0
"""The partitions that a stream reads: looked for again and again, for topics and partitions come and go.

A topic that is named and missing is found in the first call behind its creation, everything else within the interval
that the options say. Tells once of what the stream waits for, and of what a pattern leaves out.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from broker_core.base.clock import Clock
from broker_core.client import Client
from pulsarish_spark.places.topics import Selection, TopicPartition
from pulsarish_spark.viewing.layout import LEFT_OUT, Layout, advice_on_missing, discover

logger = logging.getLogger(__name__)


class FollowedLayout:
    """What was found last. Used by one thread."""

    def __init__(self, selection: Selection, client: Client, clock: Clock, interval_s: float) -> None:
        self._selection = selection
        self._client = client
        self._clock = clock
        self._interval_s = interval_s
        self._told_left_out: set[str] = set()
        self._found = Layout({})
        self.look()
        for topic in self._found.missing:
            advice = advice_on_missing(topic, client)
            logger.warning("the stream waits for a topic that does not exist topic=%s advice=%r", topic, advice)
        if selection.patterns and not self.names:
            logger.warning("the stream waits for topics that match pattern=%s", selection.pattern)

    @property
    def names(self) -> dict[TopicPartition, str]:
        """What the broker calls each partition, sorted by partition."""
        return self._found.names

    @property
    def partitions(self) -> list[TopicPartition]:
        return self._found.partitions

    def awaited(self, topics: Collection[str]) -> set[str]:
        """The ones of ``topics`` that do not exist and will be read once they do."""
        there = {key.topic for key in self.names}
        return {topic for topic in topics if topic not in there and self._selection.wants_some_of(topic)}

    def is_due(self) -> bool:
        """Whether it is time to look again."""
        if self._clock.monotonic() - self._looked_at >= self._interval_s:
            return True
        missing = self._found.missing
        return bool(missing) and any(count is not None for count in self._client.existing_partitions_of(missing))

    def look(self) -> None:
        """Ask what there is now."""
        self._found = discover(self._selection, self._client, missing_ok=True)
        self._looked_at = self._clock.monotonic()
        for topic in self._found.left_out:
            if topic not in self._told_left_out:
                self._told_left_out.add(topic)
                logger.warning("partition left out topic=%s reason=%s", topic, LEFT_OUT)
