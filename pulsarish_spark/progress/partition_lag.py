# SPDX-License-Identifier: Apache-2.0
"""How far one partition, and all of a query together, are behind. Pure values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pulsarish_spark.places.topics import TopicPartition


class PartitionLag(NamedTuple):
    """How far the end of a query's last batch is behind the newest message. 0: nothing is; None: not known.

    ``bytes``: about how many bytes of stored entries these are; ``seconds``: how long ago the oldest message of them
    was published. ``expires_s``: in how many
    seconds the broker passes over that message unread; None also where it never does. These three are known where a
    ``LagProbe`` has asked the broker.
    """

    messages: int | None
    entries: int | None
    bytes: int | None = None
    seconds: float | None = None
    expires_s: float | None = None

    @property
    def is_behind(self) -> bool:
        """Whether there is anything that was not read, as far as is known."""
        return bool(self.messages or self.entries) or (self.messages is None and self.entries is None)


NOTHING_BEHIND: Final = PartitionLag(0, 0, 0, 0.0)
NOT_KNOWN: Final = PartitionLag(None, None)

Lag = dict[TopicPartition, PartitionLag]


def total(lag: Lag) -> PartitionLag:
    """All partitions together: sums, the longest age, and what expires first of what is known to. Else what is not
    known of one of them is not known of all; and of none, as before the first batch, nothing is known."""
    if not lag:
        return NOT_KNOWN
    found = list(lag.values())
    return PartitionLag(
        _sum(each.messages for each in found),
        _sum(each.entries for each in found),
        _sum(each.bytes for each in found),
        _longest([each.seconds for each in found]),
        _first(each.expires_s for each in found),
    )


def farther(one: PartitionLag, other: PartitionLag) -> PartitionLag:
    """The lag of a partition that a query reads twice, as in a join with itself: what is kept until both have it."""
    return PartitionLag(
        _most(one.messages, other.messages),
        _most(one.entries, other.entries),
        _most(one.bytes, other.bytes),
        _longest([one.seconds, other.seconds]),
        _first([one.expires_s, other.expires_s]),
    )


def _sum(values: Iterable[int | None]) -> int | None:
    summed = 0
    for value in values:
        if value is None:
            return None
        summed += value
    return summed


def _most(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


def _longest(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def _first(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)
