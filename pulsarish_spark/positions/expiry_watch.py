# SPDX-License-Identifier: Apache-2.0
"""Warns of messages before the broker passes over them unread: a loss that can still be prevented.

Looks at partitions that are behind, once in ``LOOK_S``, while Spark asks for batches; a batch that runs long holds it
up, and then a ``LagProbe`` tells. What the broker allows is asked of its admin REST in a thread of its own: where that
takes long, a later trigger looks. One small read for each partition that is behind, and none where nothing expires.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final

from broker_core.base.clock import BlockingClock
from broker_core.client import Client
from pulsarish_spark.connecting.connection import Address
from pulsarish_spark.connecting.side_by_side import side_by_side
from pulsarish_spark.places.entries import offset_of
from pulsarish_spark.places.offsets import Offset, Offsets
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.positions.resuming import ResumePoint
from pulsarish_spark.viewing.expiry_policy import ExpiryPolicies, ExpiryPolicy

logger = logging.getLogger(__name__)

LOOK_S: Final = 60.0
"""Seconds between looks, and between warnings of one partition: brokers expire messages about as often."""

ANSWER_S: Final = 0.1
"""Seconds that a trigger waits for the admin REST, which answers at once of few topics."""

SOON: Final = 0.5
"""A warning comes when less than this share of the time is left: early enough to do something, not at every delay."""


class ExpiryWatch:
    """The warnings of one query. Used by one thread."""

    def __init__(self, client: Client, address: Address, clock: BlockingClock) -> None:
        self._client = client
        self._clock = clock
        self._policies = ExpiryPolicies(address, clock)
        self._looked_at: float | None = None
        self._asking: Future[dict[str, ExpiryPolicy | None]] | None = None

    def look(self, places: Mapping[TopicPartition, ResumePoint], ends: Offsets) -> None:
        """Warn of what is unread of partitions that are read on at ``places`` and end at ``ends``, if it goes soon."""
        now = self._clock.monotonic()
        if self._asking is None and self._looked_at is not None and now - self._looked_at < LOOK_S:
            return
        behind = [place for key, place in places.items() if place.at.key < ends[key].key]
        known = self._known({place.key.topic for place in behind})
        if known is None:
            return
        self._looked_at = now
        limited = [
            (place, expiry)
            for place in behind
            if (expiry := known.get(place.key.topic)) is not None and expiry.limit_s is not None
        ]
        for warning in side_by_side(lambda each: self._warning(*each, ends[each[0].key]), limited):
            if warning is not None:
                logger.warning("messages expire soon what=%s advice=%s", *warning)

    def _known(self, topics: set[str]) -> dict[str, ExpiryPolicy | None] | None:
        """The policies of ``topics``, or of those that were behind at the last question; None: not known yet."""
        wait_s = 0.0
        if self._asking is None:
            if not topics:
                return None
            self._asking, wait_s = _begun(lambda: self._policies.of_all(topics)), ANSWER_S
        try:
            known = self._asking.result(wait_s)
        except TimeoutError:
            return None
        self._asking = None
        return known

    def _warning(self, place: ResumePoint, expiry: ExpiryPolicy, end: Offset) -> tuple[str, str] | None:
        oldest = self._client.first_entry_at(place.name, place.at.position)
        if oldest is None or expiry.limit_s is None:
            return None  # The entry was deleted meanwhile; the tasks will tell.
        left_s = expiry.left_s(oldest, self._clock.now_ms())
        if left_s is None or left_s > SOON * expiry.limit_s:
            return None
        first = offset_of(oldest)
        at = first.text(place.key.partition)
        when = f"{expiry.why} passes the position {at} of {place.key} in about {_duration(left_s)}"
        return f"{when}: {_left(first, end)}", "give the query more resources or larger batches, or raise the limit"


def _begun(work: Callable[[], dict[str, ExpiryPolicy | None]]) -> Future[dict[str, ExpiryPolicy | None]]:
    """``work`` in a thread that the end of the process does not wait for."""
    outcome: Future[dict[str, ExpiryPolicy | None]] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as failure:  # noqa: BLE001 - raised where the outcome is asked for
            outcome.set_exception(failure)

    threading.Thread(target=run, name="pulsarish-policies", daemon=True).start()
    return outcome


def _left(at: Offset, end: Offset) -> str:
    if min(at.message_index, end.message_index) >= 0:
        return f"{end.message_index - at.message_index:,} messages are unread"
    if at.position.ledger == end.position.ledger:
        return f"{end.position.entry - at.position.entry:,} entries are unread"
    return "an unknown number of messages is unread"


def _duration(seconds: float) -> str:
    """In the largest unit of which there are two."""
    for unit, size_s in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{seconds:.0f} s"
