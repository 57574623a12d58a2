# SPDX-License-Identifier: Apache-2.0
"""The error of a topic that does not exist: it names the nearest topic that does, or says why there is none."""

from __future__ import annotations

from typing import Final

from broker_core.base.errors import TopicNotFoundError
from broker_core.base.names import TopicName
from broker_core.base.suggest import did_you_mean
from broker_core.broker.directory.topic_registry import TopicRegistry

_NEAR: Final = 50
"""Names before and after a missing one in the alphabet that are compared with it; each takes some 0.1 ms."""


def topic_not_found(registry: TopicRegistry, name: TopicName, *, auto_creation: bool) -> TopicNotFoundError:
    """``auto_creation``: whether the broker makes topics that are used. A client with a misspelt name may ask again
    and again, so only near names are compared."""
    if name.partition_index >= 0:
        count = registry.partitions(name.base)
        why = f"{name.base} has {count} partitions" if count else f"{name.base} is not a partitioned topic"
        return TopicNotFoundError(f"{name} does not exist: {why}", hint="look up the number of partitions first")
    why = "" if auto_creation else " and auto-creation is off"
    hint = did_you_mean(name.local, registry.near(name, _NEAR), otherwise="create it first")
    return TopicNotFoundError(f"{name} does not exist{why}", hint=hint)
