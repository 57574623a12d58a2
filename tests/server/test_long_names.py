# SPDX-License-Identifier: Apache-2.0
"""Names that are far too long are refused by their bound, over HTTP and on a connection that goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from broker_core.base import limits
from broker_core.testing.raw_client import RawClient
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire import commands
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

LONG = "x" * 10_000
SHOWN_MAX = 1000
"""Characters of an error: it does not repeat such a name."""

OF_NAMES = {
    "topic": f"/persistent/public/default/{LONG}",
    "partitioned topic": f"/persistent/public/default/{LONG}/partitions",
    "not stored": f"/non-persistent/public/default/{LONG}",
    "namespace": f"/namespaces/public/{LONG}",
    "namespace of a tenant": f"/namespaces/{LONG}/n",
    "tenant": f"/tenants/{LONG}",
    "namespace of a topic": f"/persistent/public/{LONG}/t",
    "cluster": f"/clusters/{LONG}",
}


@pytest.mark.parametrize("where", OF_NAMES.values(), ids=OF_NAMES)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_long_name_is_refused_over_http(http: httpx.Client, method: str, where: str) -> None:
    """Before anything is made, and with a reason that is a sentence and not the name."""
    content = (
        "2" if where.endswith("partitions") else '{"allowedClusters": ["standalone"]}' if "tenants" in where else ""
    )
    answer = http.request(method, where, content=content)
    assert 400 <= answer.status_code < 500
    assert len(answer.json()["reason"]) < SHOWN_MAX


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_long_subscription_is_refused_over_http(http: httpx.Client, path: str, method: str) -> None:
    """Its name is kept in the catalogue, and statistics show it."""
    http.put(path)
    answer = http.request(method, f"{path}/subscription/{LONG}")
    assert (answer.status_code, "1 to 512 bytes" in answer.json()["reason"]) == (412, True)


def test_a_namespace_and_its_tenant_may_have_512_bytes(http: httpx.Client) -> None:
    """Names of topics begin with both."""
    longest = limits.NAMESPACE_NAME_BYTES_MAX - len("public/")
    assert http.put(f"/namespaces/public/{'n' * longest}").status_code == 204
    assert http.put(f"/persistent/public/{'n' * longest}/t").status_code == 204
    answer = http.put(f"/namespaces/public/{'n' * (longest + 1)}")
    assert (answer.status_code, "longer than 512 bytes" in answer.json()["reason"]) == (412, True)


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("lookupTopic", {"topic": LONG}),
        ("partitionMetadata", {"topic": LONG}),
        ("producer", {"topic": LONG, "producer_id": 1}),
        ("producer", {"topic": "t", "producer_id": 1, "producer_name": LONG}),
        ("producer", {"topic": "t", "producer_id": 1, "initial_subscription_name": LONG}),
        ("subscribe", {"topic": LONG, "subscription": "s"}),
        ("subscribe", {"topic": "t", "subscription": LONG}),
        ("subscribe", {"topic": "t", "subscription": LONG, "durable": False}),
        ("subscribe", {"topic": "t", "subscription": "s", "consumer_name": LONG}),
        ("getSchema", {"topic": LONG}),
        ("getTopicsOfNamespace", {"namespace": f"public/{LONG}"}),
        ("getTopicsOfNamespace", {"namespace": LONG}),
        ("watchTopicList", {"namespace": f"public/{LONG}", "watcher_id": 1, "topics_pattern": ".*"}),
    ],
)
def test_a_long_name_is_refused_on_a_connection_that_goes_on(
    broker: RunningBroker, field: str, fields: dict[str, Any]
) -> None:
    """As an answer to the request: others use the same connection."""
    type_of = {
        "lookupTopic": BaseCommand.LOOKUP,
        "partitionMetadata": BaseCommand.PARTITIONED_METADATA,
        "producer": BaseCommand.PRODUCER,
        "subscribe": BaseCommand.SUBSCRIBE,
        "getSchema": BaseCommand.GET_SCHEMA,
        "getTopicsOfNamespace": BaseCommand.GET_TOPICS_OF_NAMESPACE,
        "watchTopicList": BaseCommand.WATCH_TOPIC_LIST,
    }
    more = {"consumer_id": 1, "subType": 0} if field == "subscribe" else {}
    command = BaseCommand(type=type_of[field], **{field: {"request_id": 7, **fields, **more}})
    with RawClient(broker.service_url) as client:
        told = str(client.ask(command))
        assert "message: " in told
        assert len(told) < SHOWN_MAX
        assert client.ask(commands.ping()).type == BaseCommand.PONG


def test_the_names_of_partitions_are_as_short_as_those_of_topics(
    broker: RunningBroker, http: httpx.Client, topic: str
) -> None:
    """Nobody could use a partition of a longer name, and whoever went through the namespace failed there."""
    prefix = "persistent://public/default/"
    longest = limits.TOPIC_NAME_BYTES_MAX - len(f"{prefix}-partition-{limits.PARTITIONS_MAX - 1}")
    answer = http.put(f"/persistent/public/default/{'p' * (longest + 1)}/partitions", content="2")
    assert (answer.status_code, "shorten it by 1 bytes" in answer.json()["reason"]) == (412, True)
    assert http.put(f"/persistent/public/default/{'p' * longest}/partitions", content="10000").status_code == 204
    with RawClient(broker.service_url) as client:
        assert client.open_producer(f"{prefix}{'p' * longest}-partition-9999").type == BaseCommand.PRODUCER_SUCCESS
    assert http.delete(f"/persistent/public/default/{'p' * longest}/partitions?force=true").status_code == 204


@pytest.mark.parametrize("kind", ["", "/partitions"])
def test_a_topic_whose_properties_are_too_long_is_not_made(http: httpx.Client, path: str, kind: str) -> None:
    """It was there without them, although its creation was refused."""
    properties = {"k" * 70_000: "v"}
    answer = http.put(path + kind, json={"partitions": 2, "properties": properties} if kind else properties)
    assert answer.status_code in (406, 412)
    assert "65536" in answer.json()["reason"]
    assert http.get(f"{path}/stats").status_code == 404
    assert http.put(path).status_code == 204


def test_the_bounds_are_in_the_documentation() -> None:
    """A reader finds the number that an error names."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "limits.md").read_text("utf-8")
    assert "name of a tenant and namespace" in page
    for bound in (limits.TOPIC_NAME_BYTES_MAX, limits.SUBSCRIPTION_NAME_BYTES_MAX, limits.NAMESPACE_NAME_BYTES_MAX):
        assert f"{bound} bytes" in page
