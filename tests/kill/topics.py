# SPDX-License-Identifier: Apache-2.0
"""Who produces and consumes what in the kill rig."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from broker_core.client import DeadLetterPolicy
from tests.kill.workload import CHUNK_BYTES, CHUNKED

_NAMESPACE: Final = "persistent://public/default/"
PLAIN: Final = _NAMESPACE + "plain"
PARTED: Final = _NAMESPACE + "parted"
PARTITIONS: Final = 3

STICKY: Final = _NAMESPACE + "sticky"
"""Read by Key_Shared consumers."""
DELAYED: Final = _NAMESPACE + "delayed"
ONCE: Final = _NAMESPACE + "once"
"""With deduplication."""
LARGE: Final = _NAMESPACE + "large"
"""With messages in chunks."""
POISONED: Final = _NAMESPACE + "poisoned"
"""Some of its messages are never accepted by its consumers."""
DEAD_LETTERS: Final = POISONED + "-workers-DLQ"
RETRIED: Final = _NAMESPACE + "retried"
"""Some of its messages are asked for again later, each time, until they are dead letters."""
RETRY_LETTERS: Final = RETRIED + "-workers-RETRY"
RETRIED_DEAD: Final = RETRIED + "-workers-DLQ"
LETTER_TOPICS: Final = (DEAD_LETTERS, RETRY_LETTERS, RETRIED_DEAD)
RETRIES_MAX: Final = 3
"""More often than a broker redelivers a message in its short life, so that it is never given up for that."""

KEYS: Final = 50
"""Producers with keys use so many in turn."""

KEEPER: Final = "keeper"
"""A subscription of every topic that acknowledges nothing, so that nothing is deleted before the final look."""
WORKERS: Final = "workers"


def partitions_of(topic: str) -> list[str]:
    """The topics that hold the messages of ``topic``."""
    return [f"{PARTED}-partition-{index}" for index in range(PARTITIONS)] if topic == PARTED else [topic]


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    """One producer. ``keyed``: messages have keys, and so go to several partitions or consumers.

    ``delay_max_s``: each message is delayed by up to so much. ``resends``: when it does not know what became of a
    message it begins anew, and sends everything from there again under the same sequence ids.
    """

    name: str
    topic: str
    keyed: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    pause_s: float = 0.006
    delay_max_s: float = 0.0
    resends: bool = False

    @property
    def batches_by_key(self) -> bool:
        """Whether only the messages of one key keep their order: a batch may hold several of each key."""
        return self.options.get("batching_type") == "key_based"


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """One consumer of one topic. ``refuses``: what it does with what ``is_poison`` says, which it never accepts.

    "nack": asks for a redelivery; "later": asks for it later, by a retry letter; "": there is nothing to refuse.
    ``leaves_after``: it leaves and comes back after about so many messages; 0: it stays as long as its broker.
    """

    topic: str
    subscription: str
    type: Literal["exclusive", "failover", "shared", "key_shared"]
    options: dict[str, Any] = field(default_factory=dict)
    refuses: Literal["", "nack", "later"] = ""
    leaves_after: int = 0

    @property
    def is_alone(self) -> bool:
        """Whether one consumer at a time gets everything in order."""
        return self.type in ("exclusive", "failover")


def is_poison(number: int) -> bool:
    """Whether no worker accepts this message of POISONED or RETRIED."""
    return number % 5 == 0


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
DELIVERY_PRODUCERS: Final = (
    ProducerPlan("sticky-single", STICKY, keyed=True, options={"batching_enabled": False}, pause_s=0.05),
    ProducerPlan("sticky-batched", STICKY, keyed=True, options={"batching_type": "key_based"}, pause_s=0.05),
    ProducerPlan("delayed", DELAYED, delay_max_s=2.5, pause_s=0.05),
    ProducerPlan("once-batched", ONCE, options={"batching_max_publish_delay_s": 0.005}, pause_s=0.05),
    ProducerPlan("once-resent", ONCE, options={"batching_enabled": False}, pause_s=0.01, resends=True),
    ProducerPlan(
        CHUNKED,
        LARGE,
        options={"batching_enabled": False, "chunking_enabled": True, "chunk_max_message_size": CHUNK_BYTES},
        pause_s=0.3,
    ),
    ProducerPlan("poison", POISONED, options={"batching_enabled": False}, pause_s=0.15),
    ProducerPlan("retried", RETRIED, options={"batching_enabled": False}, pause_s=0.15),
)
CONSUMERS: Final = (
    ConsumerPlan(PLAIN, "exclusive", "exclusive"),
    ConsumerPlan(PLAIN, "shared", "shared"),
    ConsumerPlan(PLAIN, "shared", "shared"),
    *(ConsumerPlan(topic, "failover", "failover") for topic in partitions_of(PARTED)),
)
_REJECTING: Final[dict[str, Any]] = {
    "negative_ack_redelivery_delay_s": 0.02,
    "negative_ack_precision_bits": 2,
    "dead_letter_policy": DeadLetterPolicy(max_redeliver_count=1, initial_subscription_name=KEEPER),
}
_RETRYING: Final[dict[str, Any]] = {
    "retry_enabled": True,
    "dead_letter_policy": DeadLetterPolicy(max_redeliver_count=RETRIES_MAX, initial_subscription_name=KEEPER),
}
DELIVERY_CONSUMERS: Final = (
    *(ConsumerPlan(STICKY, WORKERS, "key_shared", leaves_after=leaves_after) for leaves_after in (0, 0, 60)),
    *(ConsumerPlan(DELAYED, WORKERS, "shared") for _ in range(2)),
    ConsumerPlan(ONCE, WORKERS, "exclusive"),
    *(ConsumerPlan(LARGE, WORKERS, "shared") for _ in range(2)),
    *(ConsumerPlan(POISONED, WORKERS, "shared", _REJECTING, refuses="nack") for _ in range(2)),
    *(ConsumerPlan(RETRIED, WORKERS, "shared", _RETRYING, refuses="later") for _ in range(2)),
)
