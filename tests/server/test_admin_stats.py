# SPDX-License-Identifier: Apache-2.0
"""Statistics over the admin REST: what one may leave out or ask for besides, and how partitions are added up."""

from __future__ import annotations

import httpx
import msgspec
import pytest

from broker_core.base.policies import quotas_under
from broker_core.base.settings import Settings
from broker_core.base.steps import drained
from broker_core.broker.stats import TopicStats, unused_topic_stats
from broker_core.client import Client
from broker_core.server.admin.statistics import merged_stats
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.testing.virtual_timers import VirtualTimers
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata
from tests.server.passing_time import later_ms


@pytest.mark.parametrize("partitions", [0, 2])
def test_what_is_left_out_and_what_is_asked_for(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str, partitions: int
) -> None:
    """7.15: Pulsar's query parameters, of topics and of all partitions together."""
    assert http.put(f"{path}/partitions" if partitions else path, json=partitions or None).status_code == 204
    what = f"{path}/{'partitioned-stats' if partitions else 'stats'}"
    with Client(broker.service_url) as client:
        client.subscribe(topic, "s", type="shared")
        with client.create_producer(topic) as producer:
            producer.send(b"x", key="k")
            found = http.get(what).json()
            assert len(found["publishers"]) == len(found["subscriptions"]["s"]["consumers"]) == max(partitions, 1)
            assert found["earliestMsgPublishTimeInBacklogs"] == 0
            assert http.get(f"{what}?excludePublishers=true").json()["publishers"] == []
            assert http.get(f"{what}?excludeConsumers=true").json()["subscriptions"]["s"]["consumers"] == []
            asked = http.get(f"{what}?getEarliestTimeInBacklog=true").json()
            earliest = asked["earliestMsgPublishTimeInBacklogs"]
            assert earliest == asked["subscriptions"]["s"]["earliestMsgPublishTimeInBacklog"] > 0


def test_times_of_partitions_are_not_added_up() -> None:
    """7.15: the latest of what happened last, the earliest of what came first, where there is any."""

    def part(last_ms: int, earliest_ms: int) -> TopicStats:
        nothing = unused_topic_stats(VirtualTimers(), Settings(), quotas_under(Settings()))
        return msgspec.structs.replace(
            nothing, last_publish_time_stamp=last_ms, earliest_msg_publish_time_in_backlogs=earliest_ms
        )

    parts = {"a": part(5, 0), "b": part(7, 300), "c": part(6, 200)}
    merged, parts_told = drained(merged_stats(parts, owner="here", keep_parts=False))
    assert (merged["lastPublishTimeStamp"], merged["earliestMsgPublishTimeInBacklogs"]) == (7, 200)
    assert parts_told == []


def test_the_subscription_that_is_furthest_behind_is_that_of_the_oldest_message() -> None:
    """7.15: the name and the age are of the same partition, not the name of the first that has a subscription."""

    def part(age_s: int, name: str) -> TopicStats:
        nothing = unused_topic_stats(VirtualTimers(), Settings(), quotas_under(Settings()))
        return msgspec.structs.replace(
            nothing, oldest_backlog_message_age_seconds=age_s, oldest_backlog_message_subscription_name=name
        )

    parts = {"a": part(5, "quick"), "b": part(-1, ""), "c": part(900, "slow"), "d": part(7, "quick")}
    merged, _ = drained(merged_stats(parts, owner="here", keep_parts=False))
    told = (merged["oldestBacklogMessageAgeSeconds"], merged["oldestBacklogMessageSubscriptionName"])
    assert told == (900, "slow")


def test_the_last_expiry_of_partitions_is_the_latest(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """7.2, 7.15: not the sum of the times at which messages expired on each."""
    assert http.put(f"{path}/partitions", json=2).status_code == 204
    assert http.put(f"{path}/subscription/s", json="earliest").status_code == 204
    old = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    with RawClient(broker.service_url) as client:
        for partition in range(2):
            must_succeed(client.open_producer(f"{topic}-partition-{partition}", producer_id=partition))
            client.send_entry(partition, 0, seal_entry(old.SerializeToString(), b"x"))
            assert client.next_command().type == BaseCommand.SEND_RECEIPT
    later_ms()
    assert http.post(f"{path}/subscription/s/expireMessages/0").status_code == 204
    found = http.get(f"{path}/partitioned-stats").json()
    parts = [part["subscriptions"]["s"]["lastExpireTimestamp"] for part in found["partitions"].values()]
    assert found["subscriptions"]["s"]["lastExpireTimestamp"] == max(parts) > 0
