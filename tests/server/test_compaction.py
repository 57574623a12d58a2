# SPDX-License-Identifier: Apache-2.0
"""Compaction over the admin REST: begun, asked for, shown in statistics and metrics; thresholds; its cursor."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker

PATIENCE_S = 30.0


def send(broker: RunningBroker, topic: str, *messages: tuple[str, str | None]) -> None:
    with Client(broker.service_url) as client, client.create_producer(topic, batching_enabled=False) as producer:
        for key, value in messages:
            producer.send_async(value, key=key)
        producer.flush()


def compacted(http: httpx.Client, path: str) -> None:
    """Compact, and wait until that has succeeded."""
    answer = http.put(f"{path}/compaction")
    assert answer.status_code == 204, answer.text
    until = time.monotonic() + PATIENCE_S
    while (status := http.get(f"{path}/compaction").json())["status"] == "RUNNING":
        assert time.monotonic() < until, status
    assert status == {"status": "SUCCESS", "lastError": ""}


def test_a_run_is_begun_and_asked_for(broker: RunningBroker, http: httpx.Client, topic: str, path: str) -> None:
    """7.4.5: the status is that of the last run since the topic was loaded."""
    send(broker, topic, ("a", "1"), ("a", "2"), ("b", "1"))
    assert http.get(f"{path}/compaction").json() == {"status": "NOT_RUN", "lastError": ""}
    compacted(http, path)
    compacted(http, path)  # nothing has come, and the status stays
    assert http.put(f"{path}/unload").status_code == 204
    assert http.get(f"{path}/compaction").json()["status"] == "NOT_RUN"


def test_statistics_show_the_cursor_and_the_view(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """7.4.10: under Pulsar's names."""
    send(broker, topic, ("a", "1"), ("a", "2"), ("b", "1"))
    compacted(http, path)
    stats = http.get(f"{path}/stats").json()
    assert stats["compaction"]["lastCompactionRemovedEventCount"] == 1
    assert stats["compaction"]["lastCompactionSucceedTimestamp"] > 0
    assert stats["compaction"]["lastCompactionFailedTimestamp"] == 0
    cursor = stats["subscriptions"]["__compaction"]
    assert (cursor["isDurable"], cursor["msgBacklog"], cursor["type"]) == (True, 0, "None")
    internal: Any = http.get(f"{path}/internalStats").json()
    assert internal["compactedLedger"]["entries"] == 2
    assert internal["compactedLedger"]["size"] > 0
    number = internal["compactedLedger"]["ledgerId"]
    assert internal["cursors"]["__compaction"]["properties"] == {"CompactedTopicLedger": number}
    assert http.get(f"{path}/subscriptions").json() == ["__compaction"]
    metrics = httpx.get(f"{broker.http_url}/metrics").text
    (line,) = [
        each for each in metrics.splitlines() if topic in each and each.startswith("pulsar_compaction_removed_event")
    ]
    assert line.split()[-1] in ("1", "1.0")


def test_the_cursor_is_deleted_like_a_subscription(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """7.4.12: and moved by nothing else."""
    send(broker, topic, ("a", "1"), ("a", "2"))
    assert http.delete(f"{path}/subscription/__compaction").status_code == 404
    compacted(http, path)
    for refused in ("skip_all", "skip/1", "resetcursor/0"):
        assert http.post(f"{path}/subscription/__compaction/{refused}").status_code == 404
    assert http.delete(f"{path}/subscription/__compaction").status_code == 204
    assert http.get(f"{path}/subscriptions").json() == []
    assert http.get(f"{path}/internalStats").json()["compactedLedger"]["entries"] == -1


def test_all_partitions_are_compacted(broker: RunningBroker, http: httpx.Client, topic: str, path: str) -> None:
    """7.4.5: each has a status of its own."""
    assert http.put(f"{path}/partitions", json=2).status_code == 204
    send(broker, topic, *[(f"k{number}", "1") for number in range(20)])
    assert http.put(f"{path}/compaction").status_code == 204
    for index in range(2):
        compacted(http, f"{path}-partition-{index}")
    assert http.get(f"{path}/compaction").status_code == 404
    stats = http.get(f"{path}/partitioned-stats").json()
    assert stats["compaction"]["lastCompactionSucceedTimestamp"] > 0


@pytest.mark.parametrize(
    ("place", "status"), [("persistent/public/default/nothing", 404), ("non-persistent/public/default/n", 404)]
)
def test_only_topics_that_are_stored(http: httpx.Client, place: str, status: int) -> None:
    """7.4.5: 404 for a topic that does not exist."""
    assert http.put(f"/{place}/compaction").status_code == status


def test_thresholds_are_kept_and_act(broker: RunningBroker, http: httpx.Client, topic: str, path: str) -> None:
    """7.4.6: of the topic, else of the namespace, else of the broker; larger than 32 bits; from then on the cursor is
    there."""
    send(broker, topic, ("a", "1"))
    namespace = "/namespaces/public/default/compactionThreshold"
    assert http.get(namespace).content == b""
    assert http.put(namespace, content=str(5 << 40)).status_code == 204
    try:
        assert http.get(namespace).json() == 5 << 40
        assert http.get(f"{path}/compactionThreshold").content == b""
        assert http.get(f"{path}/compactionThreshold?applied=true").json() == 5 << 40
        assert http.get(f"{path}/subscriptions").json() == ["__compaction"]
        assert http.post(f"{path}/compactionThreshold", content="100").status_code == 204
        assert http.get(f"{path}/compactionThreshold").json() == 100
        assert http.post(f"{path}/compactionThreshold", content="-1").status_code == 412
        assert http.delete(f"{path}/compactionThreshold").status_code == 204
        assert http.get("/namespaces/public/default").json()["compaction_threshold"] == 5 << 40
    finally:
        assert http.delete(namespace).status_code == 204
    assert http.get(namespace).content == b""


def test_truncating_drops_the_view(broker: RunningBroker, http: httpx.Client, topic: str, path: str) -> None:
    """7.4.12: a compacted reader sees an empty topic, as any other."""
    send(broker, topic, ("a", "1"), ("b", "2"))
    compacted(http, path)
    assert http.delete(f"{path}/truncate").status_code == 204
    with Client(broker.service_url) as client, client.create_reader(topic, read_compacted=True) as reader:
        assert not reader.has_message_available()
