# SPDX-License-Identifier: Apache-2.0
"""What all topics and partitions of one consumer have in common, and the share that each has of the receiver queue."""

from __future__ import annotations

from typing import NamedTuple

from broker_core.client.client_stats import ConsumerCounters
from broker_core.client.connecting.network import Network
from broker_core.client.consuming.mixed_keys import MixedKeys
from broker_core.client.consuming.receiver_queue import ReceiverQueue
from broker_core.client.settings.config import ConsumerConfig


class ConsumerContext(NamedTuple):
    """One consumer's subscription, settings, queue, and sums, which outlive its parts.

    ``mixed_keys`` sees the batches of a Key_Shared subscription.
    """

    network: Network
    subscription: str
    config: ConsumerConfig
    queue: ReceiverQueue
    counters: ConsumerCounters
    durable: bool = True
    mixed_keys: MixedKeys | None = None


class QueueShare(NamedTuple):
    """What one part may have queued: messages, in about so many bytes (0: any number)."""

    messages: int
    bytes_max: int = 0
