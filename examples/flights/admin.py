# SPDX-License-Identifier: Apache-2.0
"""The broker's admin REST, as far as the job needs it: a topic with partitions, the backlog of its subscriptions.

It is Pulsar's own, so this works on any Pulsar cluster.
"""

from __future__ import annotations

from typing import Final

from broker_core.base.names import TopicName
from broker_core.client.admin import AdminApi

_TIMEOUT_S: Final = 60.0


def create_topic(http_url: str, topic: str, partitions: int) -> None:
    """Create ``topic`` with so many partitions."""
    with AdminApi(http_url, timeout_s=_TIMEOUT_S) as admin:
        admin.create_topic(TopicName.parse(topic), partitions)


def backlogs(http_url: str, topic: str) -> dict[str, int]:
    """For each subscription of a partitioned topic, how many messages it has not acknowledged yet."""
    with AdminApi(http_url, timeout_s=_TIMEOUT_S) as admin:
        name = TopicName.parse(topic)
        subscriptions = admin.topic_stats(name, admin.partitions(name))["subscriptions"]
    return {each: int(subscription["msgBacklog"]) for each, subscription in subscriptions.items()}
