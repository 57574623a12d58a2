# SPDX-License-Identifier: Apache-2.0
"""Who produces and consumes what in the kill rig."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

PLAIN: Final = "persistent://public/default/plain"
PARTED: Final = "persistent://public/default/parted"
PARTITIONS: Final = 3

KEEPER: Final = "keeper"
"""A subscription of every topic that acknowledges nothing, so that nothing is deleted before the final look."""


def partitions_of(topic: str) -> list[str]:
    """The topics that hold the messages of ``topic``."""
    return [f"{PARTED}-partition-{index}" for index in range(PARTITIONS)] if topic == PARTED else [topic]


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    """One producer. ``keyed``: messages have keys, and so go to several partitions."""

    name: str
    topic: str
    keyed: bool = False
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """One consumer of one topic."""

    topic: str
    subscription: str
    type: Literal["exclusive", "failover", "shared"]


OWN_PRODUCERS: Final = (
    ProducerPlan("single", PLAIN, options={"batching_enabled": False}),
    ProducerPlan("batched", PLAIN, options={"compression": "lz4", "batching_max_publish_delay_s": 0.005}),
    ProducerPlan("single-keyed", PARTED, keyed=True, options={"batching_enabled": False}),
    ProducerPlan("batched-keyed", PARTED, keyed=True, options={"batching_max_publish_delay_s": 0.005}),
)
OFFICIAL_PRODUCERS: Final = (
    ProducerPlan("official-single", PLAIN, options={"batching_enabled": False}),
    ProducerPlan("official-batched", PARTED, keyed=True, options={"batching_enabled": True}),
)
CONSUMERS: Final = (
    ConsumerPlan(PLAIN, "exclusive", "exclusive"),
    ConsumerPlan(PLAIN, "shared", "shared"),
    ConsumerPlan(PLAIN, "shared", "shared"),
    *(ConsumerPlan(topic, "failover", "failover") for topic in partitions_of(PARTED)),
)
