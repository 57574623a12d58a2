# SPDX-License-Identifier: Apache-2.0
"""Policies over the admin REST: Pulsar's paths, bodies and status codes at both levels."""

from __future__ import annotations

import uuid
from typing import Any

import httpx
import pytest

from broker_core.base.policies import POLICIES
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker

_DISPATCH = {
    "dispatchThrottlingRateInMsg": 10,
    "dispatchThrottlingRateInByte": 1000,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 2,
}

BODIES: dict[str, tuple[Any, Any]] = {
    "retention_policies": (
        {"retentionTimeInMinutes": 10, "retentionSizeInMB": 20},
        {"retentionTimeInMinutes": 0, "retentionSizeInMB": 5},
    ),
    "deduplication_enabled": (True, "x"),
    "auto_topic_creation": (
        {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2},
        {"allowAutoTopicCreation": True, "topicType": "partitioned"},
    ),
    "auto_subscription_creation": ({"allowAutoSubscriptionCreation": False}, {"allowAutoSubscriptionCreation": 7}),
    "delayed_delivery_policies": (
        {"active": True, "tickTime": 500, "maxDeliveryDelayInMillis": 0},
        {"active": True, "tickTime": -1},
    ),
    "subscription_types_enabled": (["Shared", "Key_Shared"], ["Durable"]),
    "publish_rate": (
        {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": -1},
        {"publishThrottlingRateInMsg": "many"},
    ),
    "dispatch_rate": (_DISPATCH, {**_DISPATCH, "ratePeriodInSecond": 0}),
    "inactive_topic_policies": (
        {
            "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
            "maxInactiveDurationSeconds": 60,
            "deleteWhileInactive": True,
        },
        {"inactiveTopicDeleteMode": "at_once", "maxInactiveDurationSeconds": 60, "deleteWhileInactive": True},
    ),
    "subscribe_rate": (
        {"subscribeThrottlingRatePerConsumer": 10, "ratePeriodInSecond": 30},
        {"subscribeThrottlingRatePerConsumer": 10, "ratePeriodInSecond": 0},
    ),
    "subscription_dispatch_rate": (_DISPATCH, {**_DISPATCH, "relativeToPublishRate": True}),
    "schema_auto_update_compatibility_strategy": ("Backward", "Some"),
    "schema_compatibility_strategy": ("BACKWARD", "SOME"),
    "is_allow_auto_update_schema": (False, "perhaps"),
    "schema_validation_enforced": (True, 7),
}
"""A good and a bad body of the policies that are no counts."""

LEVELS = [
    pytest.param(level, policy, id=f"{level}-{policy.field}")
    for policy in POLICIES
    for level in ("namespace", "topic")
    if policy.path(level[0].upper())
]


@pytest.fixture
def namespace(http: httpx.Client) -> str:
    """A namespace of the test's own with the topic ``t``."""
    name = f"public/n{uuid.uuid4().hex[:8]}"
    assert http.put(f"/namespaces/{name}").status_code == 204
    assert http.put(f"/persistent/{name}/t").status_code == 204
    return name


def base(level: str, namespace: str) -> str:
    return f"/namespaces/{namespace}" if level == "namespace" else f"/persistent/{namespace}/t"


@pytest.mark.parametrize(("level", "policy"), LEVELS)
def test_every_policy_is_set_read_refused_and_removed(
    http: httpx.Client, namespace: str, level: str, policy: Any
) -> None:
    """1.1.5: empty when unset, 204 to set and remove, 4xx with a reason for what cannot be, which changes nothing."""
    path = f"{base(level, namespace)}/{getattr(policy, level)}"
    unset = http.get(path)
    assert unset.status_code == (204 if policy.no_content and (level == "topic" or not policy.topic) else 200)
    good, bad = BODIES.get(policy.field, (3, -1))
    assert http.request(policy.method, path, json=good).status_code == 204
    assert http.get(path).json() == good
    for body in (bad, "nonsense", [1]):
        answer = http.request(policy.method, path, json=body)
        assert answer.status_code in (400, 412), body
        assert answer.json()["reason"]
    assert http.get(path).json() == good
    assert http.delete(path).status_code == 204
    assert http.get(path).content == unset.content


@pytest.mark.parametrize(("level", "policy"), LEVELS)
@pytest.mark.parametrize("nothing", [b"", b"null"])
def test_a_post_of_nothing_removes_or_is_refused(
    http: httpx.Client, namespace: str, level: str, policy: Any, nothing: bytes
) -> None:
    """1.1.5: as in Pulsar, whose admin client removes some policies like this; where a value is needed 400."""
    path = f"{base(level, namespace)}/{getattr(policy, level)}"
    unset = http.get(path).content
    good, _ = BODIES.get(policy.field, (3, -1))
    assert http.request(policy.method, path, json=good).status_code == 204
    removes = level[0].upper() in policy.null_removes
    assert http.request(policy.method, path, content=nothing).status_code == (204 if removes else 400)
    assert http.get(path).content == unset if removes else http.get(path).json() == good


@pytest.mark.parametrize("name", ["retention", "messageTTL", "backlogQuotaMap", "maxProducers"])
def test_a_partition_has_no_policies_of_its_own(http: httpx.Client, namespace: str, name: str) -> None:
    """1.1.5: they are those of its topic, and who asks for or sets them under the partition's name is told so."""
    assert http.put(f"/persistent/{namespace}/q/partitions", json=2).status_code == 204
    for method in ("GET", "POST", "DELETE") if name != "backlogQuotaMap" else ("GET",):
        answer = http.request(method, f"/persistent/{namespace}/q-partition-0/{name}", json=3)
        assert answer.status_code == 412
        assert "partition" in answer.json()["reason"]


def test_messages_cannot_be_allowed_to_be_larger_than_the_broker_reads(http: httpx.Client, namespace: str) -> None:
    """1.3.5: a larger limit of a topic would be no limit that anybody meets."""
    path = f"{base('topic', namespace)}/maxMessageSize"
    assert http.post(path, json=5 * 1024 * 1024).status_code == 204
    assert http.post(path, json=5 * 1024 * 1024 + 1).status_code == 412
    assert http.get(path).json() == 5 * 1024 * 1024


@pytest.mark.parametrize("level", ["namespace", "topic"])
def test_a_field_that_a_policy_does_not_have_is_refused(http: httpx.Client, namespace: str, level: str) -> None:
    """7.1: a misspelt limit must not become a retention of nothing."""
    path = f"{base(level, namespace)}/retention"
    assert http.post(path, json={"retentionTime": 5}).status_code == 400
    assert http.get(path).content == b""


def test_a_topic_tells_what_is_applied(http: httpx.Client, namespace: str) -> None:
    """1.1.5: with ?applied=true the value of the namespace, or the broker's, where the topic has none."""
    topic = base("topic", namespace)
    assert http.get(f"{topic}/messageTTL?applied=true").json() == 0
    assert http.get(f"{topic}/maxUnackedMessagesOnConsumer?applied=true").json() == 50_000
    http.post(f"/namespaces/{namespace}/messageTTL", json=7)
    assert http.get(f"{topic}/messageTTL").content == b""
    assert http.get(f"{topic}/messageTTL?applied=true").json() == 7
    assert http.post(f"{topic}/messageTTL?messageTTL=9").status_code == 204
    assert http.get(f"{topic}/messageTTL?applied=true").json() == 9
    assert http.get(f"{topic}/retention?applied=true").json() == {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}


@pytest.mark.parametrize(
    ("text", "status"),
    [("7", 204), ("-7", 412), ("x", 400), ("9" * 30, 400), ("9" * 15, 412), ("%D9%A7", 400), ("--7", 400)],
)
def test_the_ttl_of_a_topic_is_in_the_query(http: httpx.Client, namespace: str, text: str, status: int) -> None:
    """7.2: seconds, 0 or more."""
    path = f"{base('topic', namespace)}/messageTTL"
    assert http.post(f"{path}?messageTTL={text}").status_code == status
    assert http.delete(path).status_code == 204
    assert http.get(path).content == b""


@pytest.mark.parametrize("level", ["namespace", "topic"])
def test_backlog_quotas_have_two_types_and_two_forms(http: httpx.Client, namespace: str, level: str) -> None:
    """7.3: size and age are set apart; older clients say limit; what is not set is not listed."""
    path = base(level, namespace)
    size = {"limitSize": 1000, "limitTime": -1, "policy": "producer_exception"}
    age = {"limitTime": 60, "policy": "consumer_backlog_eviction"}
    assert http.get(f"{path}/backlogQuotaMap").json() == {}
    assert http.post(f"{path}/backlogQuota", json=size).status_code == 204
    assert http.post(f"{path}/backlogQuota?backlogQuotaType=message_age", json=age).status_code == 204
    assert http.get(f"{path}/backlogQuotaMap").json() == {
        "destination_storage": {"limit": 1000, **size},
        "message_age": {"limit": -1, "limitSize": -1, **age},
    }
    assert http.post(f"{path}/backlogQuota", json={"limit": 5, "policy": "producer_request_hold"}).status_code == 204
    assert http.get(f"{path}/backlogQuotaMap").json()["destination_storage"]["limitSize"] == 5
    assert http.delete(f"{path}/backlogQuota").status_code == 204
    assert http.delete(f"{path}/backlogQuota?backlogQuotaType=message_age").status_code == 204
    assert http.get(f"{path}/backlogQuotaMap").json() == {}


@pytest.mark.parametrize(
    "body",
    [
        *("", "null", "{}", "[]", "{"),
        '{"limitSize":1}',
        '{"limitSize":1,"policy":"nope"}',
        '{"policy":"producer_exception"}',
        '{"limitSize":-2,"policy":"producer_exception"}',
        '{"limitSize":"1 MB","policy":"producer_exception"}',
    ],
)
def test_impossible_quotas_are_refused(http: httpx.Client, namespace: str, body: str) -> None:
    """7.3: 400 with a reason, and nothing is set."""
    path = base("topic", namespace)
    answer = http.post(f"{path}/backlogQuota", content=body)
    assert answer.status_code == 400
    assert answer.json()["reason"]
    assert http.get(f"{path}/backlogQuotaMap").json() == {}
    assert http.post(f"{path}/backlogQuota?backlogQuotaType=nope", content=body).status_code == 404


def test_a_quota_must_fit_into_the_retention(http: httpx.Client, namespace: str) -> None:
    """7.3, 7.1: a backlog quota larger than the retention size is 412."""
    path = base("topic", namespace)
    http.post(f"{path}/retention", json={"retentionTimeInMinutes": 10, "retentionSizeInMB": 1})
    quota = {"limitSize": 10 << 20, "policy": "producer_request_hold"}
    assert http.post(f"{path}/backlogQuota", json=quota).status_code == 412


def test_policies_of_what_does_not_exist_are_404(http: httpx.Client, namespace: str) -> None:
    """1.1.5: reading and setting create nothing."""
    for path in ("/namespaces/public/nowhere", f"/persistent/{namespace}/nothing", "/persistent/public/nowhere/t"):
        assert http.get(f"{path}/retention").status_code == 404
        assert http.post(f"{path}/retention", json={}).status_code == 404
        assert http.delete(f"{path}/retention").status_code == 404
        assert http.get(f"{path}/backlogQuotaMap").status_code == 404
    assert http.get(f"/namespaces/{namespace}/nosuch").status_code == 404
    assert http.post(f"/persistent/{namespace}/t/nosuch", json=5).status_code == 404


def test_a_namespace_is_created_with_policies_and_shows_them(http: httpx.Client) -> None:
    """1.1.5: in one object, with the cluster and the bundle; unknown fields are refused."""
    name = f"public/n{uuid.uuid4().hex[:8]}"
    policies = {
        "message_ttl_in_seconds": 5,
        "retention_policies": {"retentionTimeInMinutes": 1, "retentionSizeInMB": 2},
    }
    assert http.put(f"/namespaces/{name}", json={**policies, "nonsense": 3}).status_code == 400
    zero = {"retention_policies": {"retentionTimeInMinutes": 1, "retentionSizeInMB": 0}}
    assert http.put(f"/namespaces/{name}", json=zero).status_code == 400
    bundles = {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 2}
    assert http.put(f"/namespaces/{name}", json={**policies, "bundles": bundles}).status_code == 204
    shown = http.get(f"/namespaces/{name}").json()
    assert policies.items() <= shown.items()
    assert shown["replication_clusters"] == ["standalone"]
    assert shown["bundles"] == http.get(f"/namespaces/{name}/bundles").json()
    assert shown["bundles"] == {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}


FROM_A_GO_PROGRAM: dict[str, object] = {
    **dict.fromkeys(("bundles", "persistence", "retention_policies", "deduplicationEnabled", "message_ttl_in_seconds")),
    **dict.fromkeys(("max_producers_per_topic", "max_consumers_per_topic", "max_consumers_per_subscription")),
    **dict.fromkeys(("compaction_threshold", "offload_deletion_lag_ms", "autoTopicCreationOverride")),
    **dict.fromkeys(("schema_validation_enforced", "deleted", "encryption_required"), False),
    **{name: {} for name in ("latency_stats_sample_rate", "backlog_quota_map", "topicDispatchRate")},
    **{name: {} for name in ("subscriptionDispatchRate", "replicatorDispatchRate", "publishMaxMessageRate")},
    "clusterSubscribeRate": {},
    "offload_threshold": -1,
    "antiAffinityGroup": "",
    "replication_clusters": [],
    "schema_auto_update_compatibility_strategy": "Full",
    "schema_compatibility_strategy": "UNDEFINED",
    "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
    "subscription_auth_mode": "None",
    "is_allow_auto_update_schema": None,
}
"""What its admin library sends for a namespace for which nothing is set."""


@pytest.mark.parametrize("nothing", [{}, None])
def test_the_default_policies_of_the_go_library_make_a_namespace(http: httpx.Client, nothing: object) -> None:
    """1.1.5: pulsarctl always sends all of them, with null for rights where it was asked for bundles."""
    name = f"public/n{uuid.uuid4().hex[:8]}"
    rights = dict.fromkeys(("namespace_auth", "destination_auth", "subscription_auth_roles"), nothing)
    asked = {**FROM_A_GO_PROGRAM, "auth_policies": rights}
    assert http.put(f"/namespaces/{name}", json=asked).status_code == 204
    assert http.get(f"/namespaces/{name}").json()["backlog_quota_map"] == {}


@pytest.mark.parametrize(
    "policy",
    [
        {"encryption_required": True},
        {"topicDispatchRate": {"elsewhere": {"dispatchThrottlingRateInMsg": 5}}},
        {"offload_policies": {"managedLedgerOffloadDriver": "filesystem"}},
    ],
)
def test_a_policy_that_would_not_be_kept_is_refused(http: httpx.Client, policy: dict[str, object]) -> None:
    """1.1.5: taken with 204 and forgotten, an encryption that is required would be none."""
    name = f"public/n{uuid.uuid4().hex[:8]}"
    answer = http.put(f"/namespaces/{name}", json=policy)
    assert answer.status_code == 400
    assert next(iter(policy)) in answer.json()["reason"]
    assert http.get(f"/namespaces/{name}").status_code == 404


def test_a_namespace_of_another_cluster_is_refused(http: httpx.Client) -> None:
    """As Pulsar does, with 403: nothing would be replicated."""
    assert http.put("/namespaces/public/elsewhere", json={"replication_clusters": ["nowhere"]}).status_code == 403


@pytest.mark.parametrize("body", [None, {}, {"allowedClusters": []}, {"allowedClusters": ["nowhere"]}])
def test_a_tenant_names_its_cluster(http: httpx.Client, body: dict[str, object] | None) -> None:
    """1.1.5: 412, as in Pulsar, whether it is made or changed."""
    tenant = f"t{uuid.uuid4().hex[:8]}"
    assert http.put(f"/tenants/{tenant}", json=body).status_code == 412
    assert http.post("/tenants/public", json=body).status_code == 412


def test_the_roles_of_a_tenant_are_kept_and_replaced(http: httpx.Client) -> None:
    """1.1.5: what was given is shown."""
    tenant = f"t{uuid.uuid4().hex[:8]}"
    for method, roles in ((http.put, ["a", "b"]), (http.post, ["c"])):
        config = {"adminRoles": roles, "allowedClusters": ["standalone"]}
        assert method(f"/tenants/{tenant}", json=config).status_code == 204
        assert http.get(f"/tenants/{tenant}").json() == config
    assert http.post(f"/tenants/{tenant}x", json=config).status_code == 404


def test_namespaces_and_tenants_are_deleted_when_empty(http: httpx.Client, namespace: str) -> None:
    """1.1.5: 409 while something is in them, 404 when they are gone; force has to be allowed."""
    assert http.delete(f"/namespaces/{namespace}").status_code == 409
    assert http.delete(f"/namespaces/{namespace}?force=true").status_code == 405
    assert http.delete(f"/persistent/{namespace}/t").status_code == 204
    assert http.delete(f"/namespaces/{namespace}").status_code == 204
    assert http.delete(f"/namespaces/{namespace}").status_code == 404
    tenant = f"t{uuid.uuid4().hex[:8]}"
    http.put(f"/tenants/{tenant}", json={"allowedClusters": ["standalone"]})
    http.put(f"/namespaces/{tenant}/n")
    assert http.delete(f"/tenants/{tenant}").status_code == 409
    assert http.delete(f"/namespaces/{tenant}/n").status_code == 204
    assert http.delete(f"/tenants/{tenant}").status_code == 204
    assert http.delete(f"/tenants/{tenant}").status_code == 404


def test_types_of_subscriptions_are_allowed_by_the_topic_then_its_namespace_then_the_broker(
    http: httpx.Client, namespace: str
) -> None:
    """1.1.5, 2.1.9: an empty list is not set, as in Pulsar."""
    of_namespace, of_topic = (f"{base(level, namespace)}/subscriptionTypesEnabled" for level in ("namespace", "topic"))
    assert http.get(f"{of_topic}?applied=true").json() == ["Exclusive", "Shared", "Failover", "Key_Shared"]
    http.post(of_namespace, json=["Failover"])
    assert http.get(f"{of_topic}?applied=true").json() == ["Failover"]
    http.post(of_topic, json=["Shared"])
    assert http.get(f"{of_topic}?applied=true").json() == ["Shared"]
    assert http.post(of_topic, json=[]).status_code == 204
    assert http.get(of_topic).json() == []


def test_a_limit_holds_over_the_wire(broker: RunningBroker, http: httpx.Client, namespace: str) -> None:
    """1.1.5: the second producer is told that the topic is full."""
    http.post(f"{base('topic', namespace)}/maxProducers", json=1)
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(f"persistent://{namespace}/t", producer_id=0))
        refused = client.open_producer(f"persistent://{namespace}/t", producer_id=1)
        assert "maxProducersPerTopic" in refused.error.message


def test_a_namespace_has_its_rates_by_cluster(http: httpx.Client) -> None:
    """1.1.5, 7.16: as Pulsar's object of a namespace has them, made with and shown."""
    name = f"public/n{uuid.uuid4().hex[:8]}"
    publish = {"standalone": {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": 7}}
    assert http.put(f"/namespaces/{name}", json={"publishMaxMessageRate": publish}).status_code == 204
    assert http.get(f"/namespaces/{name}/publishRate").json() == publish["standalone"]
    assert http.post(f"/namespaces/{name}/dispatchRate", json=_DISPATCH).status_code == 204
    shown = http.get(f"/namespaces/{name}").json()
    assert shown["publishMaxMessageRate"] == publish
    assert shown["topicDispatchRate"] == {"standalone": _DISPATCH}
    assert shown["subscriptionDispatchRate"] == {}
    assert http.put(f"/persistent/{name}/t").status_code == 204
    assert http.get(f"/persistent/{name}/t/dispatchRate?applied=true").json() == _DISPATCH


def test_the_longest_delay_has_a_second_name(http: httpx.Client, namespace: str) -> None:
    """6.1: Go's admin library sends it as maxDelayInMillis, and means it."""
    path = f"{base('topic', namespace)}/delayedDelivery"
    asked = {"active": True, "tickTime": 500.0, "maxDelayInMillis": 5000}
    assert http.post(path, json=asked).status_code == 204
    assert http.get(path).json() == {"active": True, "tickTime": 500, "maxDeliveryDelayInMillis": 5000}
