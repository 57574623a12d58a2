# SPDX-License-Identifier: Apache-2.0
"""Backlogs that are analyzed, messages found by place and index, data that is deleted at once: over the admin REST."""

from __future__ import annotations

import uuid

import httpx
import pytest

from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from tests.client.helpers import eventually
from tests.server.test_admin import publish


@pytest.fixture
def namespace(http: httpx.Client) -> str:
    """A namespace of the test's own."""
    name = f"public/n{uuid.uuid4().hex[:8]}"
    http.put(f"/namespaces/{name}")
    return name


@pytest.fixture
def topic(namespace: str) -> str:
    return f"persistent://{namespace}/t"


def test_a_backlog_is_analyzed(broker: RunningBroker, http: httpx.Client, topic: str, path: str) -> None:
    """3.6.8 [R] Entries and messages without those acknowledged out of order, all of it or from an id on."""
    with Client(broker.service_url) as client, client.subscribe(topic, "s", type="shared") as consumer:
        for batch in range(3):
            with client.create_producer(topic, batching_max_publish_delay_s=60.0) as producer:
                for number in range(4):
                    producer.send_async(f"{batch}:{number}")
        messages = [consumer.receive(60) for _ in range(12)]
        for message in messages[4:8]:
            consumer.acknowledge(message, wait=True)
    first, last = messages[0].message_id, messages[11].message_id

    def analyzed(body: dict[str, int] | None = None) -> tuple[int, int, int]:
        found = http.post(f"{path}/subscription/s/analyzeBacklog", json=body).json()
        assert (found["filterAcceptedEntries"], found["aborted"]) == (found["entries"], False)
        assert found["lastMessageId"] == f"{last.ledger}:{last.entry}"
        return found["entries"], found["messages"], int(found["firstMessageId"].split(":")[1])

    assert analyzed() == (2, 8, first.entry)
    second = {"ledgerId": first.ledger, "entryId": first.entry + 1}
    assert analyzed(second) == (1, 4, last.entry)
    assert analyzed({"ledgerId": first.ledger, "entryId": first.entry}) == (2, 8, first.entry)
    http.post(f"{path}/subscription/s/skip_all")
    empty = http.post(f"{path}/subscription/s/analyzeBacklog").json()
    assert (empty["entries"], empty["messages"]) == (0, 0)


def test_messages_are_examined_from_both_ends(broker: RunningBroker, http: httpx.Client, topic: str, path: str) -> None:
    """1.4.6: the n-th entry that is stored, whoever has acknowledged it."""
    places = publish(broker, topic, 5)

    def examined(origin: str, place: int) -> str:
        where = f"initialPosition={origin}&messagePosition={place}"
        return str(http.get(f"{path}/examinemessage?{where}").headers["X-Pulsar-Message-ID"])

    assert examined("earliest", 1) == "{}:{}".format(*places[0])
    assert examined("earliest", 4) == "{}:{}".format(*places[3])
    assert examined("latest", 2) == "{}:{}".format(*places[3])
    assert http.get(f"{path}/examinemessage?messagePosition=x").status_code == 400


def test_a_message_is_found_by_its_index(broker: RunningBroker, http: httpx.Client, topic: str, path: str) -> None:
    """1.3.1: the entry that holds the message of this number, from 0 on; 404 where there is none."""
    ((ledger, entry), *_) = publish(broker, topic, 3)
    for index in range(3):
        found = http.get(f"{path}/getMessageIdByIndex?index={index}").json()
        assert (found["ledgerId"], found["entryId"]) == (ledger, entry + index)
    for bad, status in (("3", 404), ("-1", 404), ("x", 400)):
        assert http.get(f"{path}/getMessageIdByIndex?index={bad}").status_code == status


def test_the_size_of_a_backlog_shrinks_with_the_position(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """7.15: about as many bytes as lie behind the id; all of them behind the earliest, none behind the last."""
    places = publish(broker, topic, 5)

    def behind(ledger: int, entry: int) -> int:
        return int(http.put(f"{path}/backlogSize", json={"ledgerId": ledger, "entryId": entry}).text)

    sizes = [behind(-1, -1), *(behind(*place) for place in places)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[1] > sizes[-1] == 0
    assert http.put(f"{path}/backlogSize").status_code == 400


def test_a_topic_is_truncated_whatever_is_unread_or_retained(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """7.1: closed ledgers go although nobody has read them and the retention would keep them; new messages come."""
    publish(broker, topic, 5)
    http.put(f"{path}/subscription/s", json="earliest")
    http.post(f"{path}/retention", json={"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    http.put(f"{path}/unload")  # closes the ledger
    assert http.post(f"{path}/trim").status_code == 200
    assert http.get(f"{path}/internalStats").json()["numberOfEntries"] == 5
    assert http.delete(f"{path}/truncate").status_code == 204
    eventually(lambda: http.get(f"{path}/internalStats").json()["numberOfEntries"] == 0, "the topic is empty")
    assert http.get(f"{path}/stats").json()["subscriptions"]["s"]["msgBacklog"] == 0
    publish(broker, topic, 1)
    assert http.get(f"{path}/stats").json()["subscriptions"]["s"]["msgBacklog"] == 1
    found = [http.get(f"{path}/getMessageIdByIndex?index={index}").status_code for index in (0, 4, 5, 6)]
    assert found == [404, 404, 200, 404]


def test_what_is_acknowledged_is_trimmed_on_demand(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """7.1 (I7.1): what a subscription still needs stays."""
    publish(broker, topic, 5)
    http.put(f"{path}/subscription/s", json="earliest")
    http.put(f"{path}/unload")
    http.post(f"{path}/trim")
    assert http.get(f"{path}/internalStats").json()["numberOfEntries"] == 5
    http.post(f"{path}/subscription/s/skip_all")
    http.post(f"{path}/trim")
    eventually(lambda: http.get(f"{path}/internalStats").json()["numberOfEntries"] == 0, "the topic is trimmed")


def test_a_subscription_is_deleted_from_all_topics_of_a_namespace(
    broker: RunningBroker, http: httpx.Client, namespace: str
) -> None:
    """2.1.8: unless one of them has a consumer; then it stays everywhere."""
    base = f"/persistent/{namespace}"
    for name in ("a", "b"):
        http.put(f"{base}/{name}", json={})
        http.put(f"{base}/{name}/subscription/s", json="earliest")
    with Client(broker.service_url) as client, client.subscribe(f"{namespace}/b", "s"):
        assert http.post(f"/namespaces/{namespace}/unsubscribe/s").status_code == 412
        assert http.get(f"{base}/a/subscriptions").json() == ["s"]
    assert http.post(f"/namespaces/{namespace}/unsubscribe/s").status_code == 204
    assert [http.get(f"{base}/{name}/subscriptions").json() for name in ("a", "b")] == [[], []]


def test_the_bundle_of_a_namespace_is_all_of_it(broker: RunningBroker, http: httpx.Client, namespace: str) -> None:
    """7.2, 2.1.8: what tools ask of the bundle that they were told of holds for every topic; there is no other one."""
    base, bundles = f"/persistent/{namespace}", http.get(f"/namespaces/{namespace}/bundles").json()
    bundle = f"/namespaces/{namespace}/{'_'.join(bundles['boundaries'])}"
    for name in ("a", "b"):
        publish(broker, f"persistent://{namespace}/{name}", 1)
        http.put(f"{base}/{name}/subscription/s", json="earliest")

    def backlogs() -> list[int]:
        return [http.get(f"{base}/{name}/stats").json()["subscriptions"]["s"]["msgBacklog"] for name in ("a", "b")]

    assert backlogs() == [1, 1]
    assert http.put(f"{bundle}/unload").status_code == 204
    assert http.put(f"{bundle}/unload?destinationBroker=another:8080").status_code == 409
    assert http.post(f"{bundle}/clearBacklog/s").status_code == 204
    assert backlogs() == [0, 0]
    assert http.post(f"{bundle}/clearBacklog").status_code == 204
    assert http.post(f"{bundle}/unsubscribe/s").status_code == 204
    assert [http.get(f"{base}/{name}/subscriptions").json() for name in ("a", "b")] == [[], []]
    half = http.put(f"/namespaces/{namespace}/0x00000000_0x80000000/unload")
    assert (half.status_code, "only '0x00000000_0xffffffff'" in half.json()["reason"]) == (412, True)
    missing = http.post(f"/namespaces/public/nowhere/{bundle.rpartition('/')[2]}/clearBacklog")
    assert missing.status_code == 404


def test_requests_about_a_namespace_reach_all_of_its_topics(
    broker: RunningBroker, http: httpx.Client, namespace: str
) -> None:
    """7.2, 2.1.8: many topics take several turns of the broker; those that are not loaded are reached too."""
    base = f"/persistent/{namespace}"
    names = [*(f"t{number}" for number in range(20)), *(f"parted-partition-{number}" for number in range(12))]
    http.put(f"{base}/parted/partitions", json=12)
    for number, name in enumerate(names):
        http.put(f"{base}/{name}", json={})
        http.put(f"{base}/{name}/subscription/s", json="earliest")
        http.put(f"{base}/{name}/subscription/other", json="earliest")
        publish(broker, f"persistent://{namespace}/{name}", 1)
        if number % 2:
            http.put(f"{base}/{name}/unload")

    def backlogs(subscription: str) -> set[int]:
        found = [http.get(f"{base}/{name}/stats").json()["subscriptions"] for name in names]
        return {each[subscription]["msgBacklog"] for each in found}

    assert http.post(f"/namespaces/{namespace}/clearBacklog/s").status_code == 204
    assert (backlogs("s"), backlogs("other")) == ({0}, {1})
    assert http.post(f"/namespaces/{namespace}/clearBacklog").status_code == 204
    assert backlogs("other") == {0}
    assert http.post(f"/namespaces/{namespace}/unsubscribe/s").status_code == 204
    assert [http.get(f"{base}/{name}/subscriptions").json() for name in names] == [["other"]] * len(names)


def test_missed_partitions_are_made_and_policies_removed(http: httpx.Client, path: str) -> None:
    """1.2.2, 1.1.5: every partition is there before anybody uses it; what was set for the topic is gone at once."""
    http.put(f"{path}/partitions", json=3)
    assert http.post(f"{path}/createMissedPartitions").status_code == 204
    assert len(http.get(f"{path}/partitioned-internalStats").json()["partitions"]) == 3
    http.post(f"{path}/maxProducers", json=3)
    assert http.delete(f"{path}/policies").status_code == 204
    assert http.get(f"{path}/maxProducers").text == ""
