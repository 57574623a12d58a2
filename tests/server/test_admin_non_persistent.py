# SPDX-License-Identifier: Apache-2.0
"""Topics that are not stored over the admin REST: what can be seen and limited, and what is refused."""

from __future__ import annotations

import contextlib

import httpx
import pytest

from broker_core.base.errors import OperationTimeoutError, ProducerBusyError
from broker_core.base.policies import POLICIES, Policy
from broker_core.client import Client
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.server.oracle import Ask, Both, compare

N = "namespaces/{}"
T = "non-persistent/{}/t"
Q = "non-persistent/{}/q"
NOTHING = "non-persistent/{}/nothing"
ID = '{"ledgerId":0,"entryId":0}'

ASKS = [
    *(Ask("GET", f"{topic}/subscriptions") for topic in (T, Q)),
    Ask("GET", f"{NOTHING}/subscriptions", same=False),
    *(Ask("PUT", f"{topic}/subscription/z", '"latest"', same=False) for topic in (T, Q, NOTHING)),
    Ask("DELETE", f"{T}/subscription/nope", same=False),
    Ask("DELETE", f"{NOTHING}/subscription/s", same=False),
    Ask("GET", f"{T}/stats", same=False, fields=("storageSize", "subscriptions.s.msgBacklog", "subscriptions.s.type")),
    Ask("GET", f"{T}/internalStats", same=False, fields=("entriesAddedCounter", "totalSize", "cursors.s.active")),
    *(Ask("GET", f"{topic}/internalStats", same=False) for topic in (Q, NOTHING)),
    *(Ask("GET", f"{topic}/partitioned-stats", same=False) for topic in (T, NOTHING)),
    *(Ask("GET", f"{topic}/partitioned-internalStats", same=False) for topic in (T, NOTHING)),
    Ask("GET", f"{Q}/partitioned-stats", same=False, fields=("metadata.partitions", "msgInCounter", "storageSize")),
    Ask("GET", f"{Q}/partitioned-internalStats", same=False, fields=("metadata.partitions", "partitions")),
    *(Ask("DELETE", f"{topic}/truncate", same=False) for topic in (T, Q, NOTHING)),
    *(Ask("GET", f"{T}/{what}", same=False) for what in ("lastMessageId", "examinemessage", "messageid/0")),
    Ask("GET", f"{T}/properties", same=False),
    Ask("GET", f"{T}/subscription/s/position/1", same=False),
    *(Ask("POST", f"{T}/{what}", same=False) for what in ("terminate", "terminate/partitions", "trim")),
    Ask("POST", f"{T}/subscription/s/expireMessages/5", same=False),
    Ask("POST", f"{T}/all_subscription/expireMessages/5", same=False),
    *(
        Ask("GET", f"{T}/{name}")
        for name in ("maxProducers", "retention", "messageTTL?applied=true", "delayedDelivery")
    ),
    *(
        ask
        for name in ("maxProducers", "maxConsumers", "maxConsumersPerSubscription", "maxMessageSize")
        for ask in (
            Ask("GET", f"{T}/{name}"),
            Ask("POST", f"{T}/{name}", "7"),
            Ask("GET", f"{T}/{name}"),
            Ask("POST", f"{T}/{name}", "-1", same=False),
            Ask("DELETE", f"{T}/{name}"),
            Ask("GET", f"{T}/{name}"),
        )
    ),
    Ask("GET", f"{NOTHING}/maxProducers", same=False),
    Ask("DELETE", f"{T}/policies"),
    Ask("DELETE", f"{T}/subscription/s"),
]


@pytest.fixture
def name(topic: str, http: httpx.Client) -> str:
    """The part of a path that names a topic of this test's own, which is there."""
    name = topic.replace("persistent://", "")
    assert http.put(f"/non-persistent/{name}").status_code == 204
    return name


@pytest.mark.pulsar
def test_topics_that_are_not_stored_answer_as_pulsars(both: Both) -> None:
    """1.1.8, 7.10: subscriptions, statistics, limits, and what needs stored messages."""
    assert compare(both, [Ask("PUT", N), Ask("PUT", f"{Q}/partitions", "2")]) == []
    with Client(both.ours.service_url) as ours, Client(both.theirs.service_url) as theirs:
        for client in (ours, theirs):
            client.subscribe(f"non-persistent://{both.namespace}/t", "s", type="shared")
        assert compare(both, ASKS) == []


def test_a_subscription_is_seen_and_ended(broker: RunningBroker, http: httpx.Client, name: str) -> None:
    """1.1.8: it is there while it has consumers; who is sent away comes back, and it with them."""
    path = f"/non-persistent/{name}"
    with Client(broker.service_url) as client:
        consumer = client.subscribe(f"non-persistent://{name}", "s", type="shared")
        assert http.get(f"{path}/subscriptions").json() == ["s"]
        since = http.get(f"{path}/stats").json()["subscriptions"]["s"]["consumers"][0]["connectedSince"]
        assert http.delete(f"{path}/subscription/s").status_code == 204
        with client.create_producer(f"non-persistent://{name}") as producer:
            answer = None
            while answer is None:  # what comes before it is back is dropped
                producer.send(b"again")
                with contextlib.suppress(OperationTimeoutError):
                    answer = consumer.receive(timeout_s=0.1)
        assert http.get(f"{path}/stats").json()["subscriptions"]["s"]["consumers"][0]["connectedSince"] > since
        assert http.get(f"{path}/internalStats").json()["entriesAddedCounter"] >= 1
        consumer.close()
    assert http.get(f"{path}/subscriptions").json() == []


def test_a_namespace_is_unloaded_with_them(broker: RunningBroker, http: httpx.Client, name: str) -> None:
    """1.1.8: their clients are sent away like all others, as by Pulsar."""
    with RawClient(broker.service_url) as client:
        must_succeed(client.subscribe(f"non-persistent://{name}", "s"))
        assert http.put("/namespaces/public/default/unload").status_code == 204
        assert client.next_command().type == BaseCommand.CLOSE_CONSUMER


def test_partitions_are_added_up(broker: RunningBroker, http: httpx.Client, topic: str) -> None:
    """1.1.8, 7.15: what came to each, and those that nobody uses; subscriptions of all of them are listed once."""
    name = topic.replace("persistent://", "")
    path = f"/non-persistent/{name}"
    assert http.put(f"{path}/partitions", json=2).status_code == 204
    assert http.get(f"{path}/partitioned-stats").json()["msgInCounter"] == 0
    with Client(broker.service_url) as client:
        client.subscribe(f"non-persistent://{name}", "s", type="shared")
        with client.create_producer(f"non-persistent://{name}", batching_enabled=False) as producer:
            for number in range(4):
                producer.send(b"%d" % number)
        stats = http.get(f"{path}/partitioned-stats").json()
        assert (stats["msgInCounter"], stats["msgOutCounter"]) == (4, 4)
        assert stats["metadata"] == {"partitions": 2, "deleted": False}
        assert sorted(stats["partitions"]) == [f"non-persistent://{name}-partition-{index}" for index in range(2)]
        parts = http.get(f"{path}/partitioned-internalStats").json()["partitions"]
        assert sum(part["entriesAddedCounter"] for part in parts.values()) == 4
        assert http.get(f"{path}/subscriptions").json() == ["s"]


def test_a_limit_of_a_topic_holds_and_ends_with_it(broker: RunningBroker, http: httpx.Client, name: str) -> None:
    """1.1.5, 1.1.8: set by its own name, met by the second producer, gone with the topic."""
    path = f"/non-persistent/{name}"
    assert http.post(f"{path}/maxProducers", json=1).status_code == 204
    with (
        Client(broker.service_url) as client,
        client.create_producer(f"non-persistent://{name}"),
        pytest.raises(ProducerBusyError),
    ):
        client.create_producer(f"non-persistent://{name}")
    assert http.delete(f"{path}?force=true").status_code == 204
    assert http.put(path).status_code == 204
    assert http.get(f"{path}/maxProducers").content == b""


@pytest.mark.parametrize("policy", [each for each in POLICIES if each.path("T")], ids=lambda each: str(each.topic))
def test_what_means_nothing_cannot_be_set(http: httpx.Client, name: str, policy: Policy) -> None:
    """1.1.8: a policy that would be accepted and never heeded is refused; all of them can be asked for and removed."""
    path = f"/non-persistent/{name}/{policy.topic}"
    assert http.get(path).status_code in (200, 204)
    wrong = http.request(policy.method, path, json={"nonsense": [1]})
    assert wrong.status_code == (400 if policy.unstored else 405)
    assert wrong.json()["reason"]
    assert http.delete(path).status_code == 204


@pytest.mark.parametrize("path", ["messageTTL?messageTTL=5", "backlogQuota"])
def test_expiry_and_quotas_mean_nothing(http: httpx.Client, name: str, path: str) -> None:
    """1.1.8: there is nothing to expire and no backlog; 405 with a reason."""
    answer = http.post(f"/non-persistent/{name}/{path}", json={"limitSize": 1, "policy": "producer_exception"})
    assert answer.status_code == 405
    assert "not persistent" in answer.json()["reason"]
