# SPDX-License-Identifier: Apache-2.0
"""What can be seen of a Key_Shared subscription from outside, consumer by consumer. Computed by each call.

Names are Pulsar's. Source: Pulsar docs, "Topic stats" of the admin REST API; PIP-379.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from broker_core.base.positions import Position
from broker_core.broker.consumer import Consumer
from broker_core.broker.dispatch.key_shared.draining import DrainingHashes
from broker_core.broker.dispatch.key_shared.selector import HashRange, Selector


class DrainingHashStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A hash that now belongs to another consumer, which waits until this one has acknowledged."""

    hash: int
    unack_msgs: int
    blocked_attempts: int


class KeyStats(NamedTuple):
    """What is shown of one consumer: the hashes that it owns, those that drain at it, and where it joined if it
    waits."""

    ranges: tuple[HashRange, ...] = ()
    draining: tuple[DrainingHashStats, ...] = ()
    draining_cleared: int = 0
    joined_at: str = ""


def key_stats(
    consumers: Iterable[Consumer],
    selector: Selector[Consumer],
    draining: DrainingHashes,
    joined_at: Mapping[Consumer, Position],
) -> dict[Consumer, KeyStats]:
    """The statistics of each of ``consumers``."""
    ranges: dict[Consumer, list[HashRange]] = {consumer: [] for consumer in consumers}
    for each, owner in selector.ranges():
        ranges[owner].append(each)
    return {
        consumer: KeyStats(
            tuple(owned),
            tuple(
                DrainingHashStats(
                    hash=each.hash, unack_msgs=each.unacked_entries, blocked_attempts=each.blocked_attempts
                )
                for each in draining.of(consumer)
            ),
            draining.cleared.get(consumer, 0),
            str(joined_at.get(consumer, "")),
        )
        for consumer, owned in ranges.items()
    }
