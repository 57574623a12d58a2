# SPDX-License-Identifier: Apache-2.0
"""What can be seen of a Key_Shared subscription from outside, consumer by consumer. Computed when somebody asks.

Names are Pulsar's. Source: Pulsar docs, "Topic stats" of the admin REST API; PIP-379.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from broker_core.broker.consumer import Consumer
from broker_core.broker.dispatch.key_shared.dispatcher import KeySharedDispatcher
from broker_core.broker.dispatch.key_shared.selector import HashRange


class DrainingHashStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A hash that now belongs to another consumer, which waits until this one has acknowledged."""

    hash: int
    unack_msgs: int
    blocked_attempts: int


class KeyStats(NamedTuple):
    """Of one consumer: the hashes that it owns, those it must finish first, and where it joined if it waits."""

    ranges: tuple[HashRange, ...] = ()
    draining: tuple[DrainingHashStats, ...] = ()
    draining_cleared: int = 0
    joined_at: str = ""


def key_stats(dispatcher: KeySharedDispatcher) -> dict[Consumer, KeyStats]:
    """All consumers of ``dispatcher``."""
    ranges: dict[Consumer, list[HashRange]] = {consumer: [] for consumer in dispatcher.consumers}
    for each, owner in dispatcher.selector.ranges():
        ranges[owner].append(each)
    joined_at = dispatcher.recorded.items()
    return {
        consumer: KeyStats(
            tuple(owned),
            tuple(
                DrainingHashStats(
                    hash=each.hash, unack_msgs=each.unacked_entries, blocked_attempts=each.blocked_attempts
                )
                for each in dispatcher.draining.of(consumer)
            ),
            dispatcher.draining.cleared.get(consumer, 0),
            str(joined_at.get(consumer, "")),
        )
        for consumer, owned in ranges.items()
    }
