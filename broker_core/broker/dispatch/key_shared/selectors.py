# SPDX-License-Identifier: Apache-2.0
"""The one place that knows which mapping serves which policy and settings (semantics 10: decisions 2, 6 and 8)."""

from __future__ import annotations

from broker_core.base.settings import Settings
from broker_core.broker.consumer import Consumer
from broker_core.broker.dispatch.key_shared.auto_split import AutoSplitRanges
from broker_core.broker.dispatch.key_shared.hash_ring import HashRing
from broker_core.broker.dispatch.key_shared.selector import HashRange, Selector
from broker_core.broker.dispatch.key_shared.sticky_ranges import StickyRanges
from broker_core.broker.requests import KeySharedMode


def make_selector(mode: KeySharedMode, settings: Settings) -> Selector[Consumer]:
    """An empty mapping."""
    if mode is KeySharedMode.STICKY:
        return StickyRanges(wanted_ranges)
    if settings.subscription_key_shared_use_consistent_hashing:
        points = settings.subscription_key_shared_consistent_hashing_replica_points
        return HashRing(settings.key_shared_hash_ring, points)
    return AutoSplitRanges(closed_upper=settings.key_shared_closed_upper_bounds)


def wanted_ranges(consumer: Consumer) -> list[HashRange]:
    """The slots that a consumer asked for."""
    return list(map(HashRange._make, consumer.request.key_shared.ranges))
