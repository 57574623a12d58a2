# SPDX-License-Identifier: Apache-2.0
"""``broker-stats``: the figures of the broker, of namespaces and of topics, as older tools ask for them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest

from broker_core import __version__
from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker

S: Final = "/broker-stats"
B: Final = "0x00000000_0xffffffff"


@pytest.fixture
def used(broker: RunningBroker, http: httpx.Client) -> Iterator[str]:
    """A namespace with a topic that has three messages, a producer and a consumer, and one that is not stored."""
    name = f"public/n{uuid.uuid4().hex[:8]}"
    assert http.put(f"/namespaces/{name}").status_code == 204
    stored, passing = f"persistent://{name}/t", f"non-persistent://{name}/n"
    with (
        Client(broker.service_url) as client,
        client.subscribe(stored, "s"),
        client.create_producer(passing),
        client.create_producer(stored, batching_enabled=False) as producer,
    ):
        for number in range(3):
            producer.send(b"%d" % number)
        yield name


def test_topics_are_told_by_namespace_bundle_and_kind(http: httpx.Client, used: str) -> None:
    """1.1.5: each with the fields of its statistics, and the older names of some."""
    found = http.get(f"{S}/topics").json()[used][B]
    assert set(found) == {"persistent", "non-persistent"}
    stats = found["persistent"][f"persistent://{used}/t"]
    assert (stats["producerCount"], stats["msgInCount"], stats["msgInCounter"]) == (1, 3, 3)
    assert stats["subscriptions"]["s"]["msgBacklog"] == 3
    assert found["non-persistent"][f"non-persistent://{used}/n"]["producerCount"] == 1


def test_metrics_are_added_up_by_namespace(http: httpx.Client, used: str) -> None:
    """1.1.5: under Pulsar's names; those of the broker are ours."""
    found: list[dict[str, Any]] = http.get(f"{S}/metrics").json()
    (metrics,) = [each["metrics"] for each in found if each["dimensions"].get("namespace") == used]
    assert (metrics["brk_no_of_topics"], metrics["brk_no_of_producers"], metrics["brk_no_of_consumers"]) == (2, 2, 1)
    assert (metrics["brk_msg_backlog"], metrics["brk_no_of_subscriptions"]) == (3, 1)
    assert found[0]["dimensions"] == {"cluster": "standalone", "metric": "broker"}
    assert found[0]["metrics"]["pulsarish_syncs"] > 0


def test_the_load_is_that_of_all_bundles(broker: RunningBroker, http: httpx.Client, used: str) -> None:
    """1.1.5: with the addresses of the broker; what the machine does is not in it."""
    found = http.get(f"{S}/load-report").json()
    bundle = found["lastStats"][f"{used}/{B}"]
    assert (bundle["topics"], bundle["producerCount"], bundle["consumerCount"]) == (2, 2, 1)
    assert found["numTopics"] >= 2
    assert f"{used}/{B}" in found["bundles"]
    assert (found["webServiceUrl"], found["pulsarServiceUrl"]) == (broker.http_url, broker.service_url)
    assert found["brokerVersionString"] == __version__
    assert "cpu" not in found


def test_what_this_broker_does_not_run_in_is_empty(http: httpx.Client) -> None:
    """1.1.5: no Java and no Netty; an allocator that Pulsar has not either is refused as there."""
    assert http.get(f"{S}/mbeans").json() == []
    for name in ("default", "ml-cache"):
        assert http.get(f"{S}/allocator-stats/{name}").json()["directArenas"] == []
    assert http.get(f"{S}/allocator-stats/some").status_code == 406


def test_topics_without_any_are_an_object(tmp_path: Any) -> None:
    """1.1.5: a broker that was just started has loaded none."""
    with RunningBroker(tmp_path / "data") as empty, httpx.Client(base_url=f"{empty.http_url}/admin/v2") as http:
        assert http.get(f"{S}/topics").json() == {}
        assert http.get(f"{S}/load-report").json()["numTopics"] == 0
        assert len(http.get(f"{S}/metrics").json()) == 1
