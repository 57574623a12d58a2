# SPDX-License-Identifier: Apache-2.0
"""Every call of Go's admin library, with the arguments that the walk over both brokers gives it.

Policies are read, set, read again and removed, by tables; everything else is a story of its own, in order: names are
made, filled, read, changed and deleted. Calls of functions, sources, sinks and packages are left out: they go to other
processes of a cluster than its brokers.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from tests.apache_pulsar.start import UnavailableError
from tests.server.test_admin_bundles import DEFAULT

PROGRAM: Final = Path(__file__).resolve().parent / "go_admin"
DEADLINE_S: Final = 600.0

TENANT: Final = "gowalk"
N: Final = f"{TENANT}/one"
SPLIT: Final = f"{TENANT}/split"
EMPTY: Final = f"{TENANT}/empty"
T: Final = f"persistent://{N}/t"
Q: Final = f"persistent://{N}/q"
CLUSTER: Final = "standalone"
BUNDLE: Final = "0x00000000_0xffffffff"
BROKER: Final = "the broker"
"""Stands for host and port of the broker that is asked."""

Call: TypeAlias = "list[Any]"
"""Name of a method and its arguments."""

_RATE: Final = {"dispatchThrottlingRateInMsg": 1000, "dispatchThrottlingRateInByte": 100_000, "ratePeriodInSecond": 2}
_PUBLISH_RATE: Final = {"publishThrottlingRateInMsg": 1000, "publishThrottlingRateInByte": 100_000}
_SUBSCRIBE_RATE: Final = {"subscribeThrottlingRatePerConsumer": 10, "ratePeriodInSecond": 30}
_PERSISTENCE: Final = {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}
_RETENTION: Final = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 20}
_QUOTA: Final = {"limitTime": 3600, "limitSize": 1_000_000, "policy": "producer_exception"}
_INACTIVE: Final = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 6000,
    "deleteWhileInactive": True,
}
_OFFLOAD: Final = {"managedLedgerOffloadDriver": "filesystem", "managedLedgerOffloadThresholdInBytes": 1000}
_SUBSCRIPTIONS: Final = {"allowAutoSubscriptionCreation": False}
_TOPICS: Final = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
_DELAYED: Final = {"active": True, "tickTime": 1000, "maxDelayInMillis": 60_000}

NAMESPACE_POLICIES: Final[dict[str, Any]] = {
    "MaxConsumersPerSubscription": 10,
    "MaxConsumersPerTopic": 10,
    "MaxProducersPerTopic": 10,
    "MaxTopicsPerNamespace": 100,
    "InactiveTopicPolicies": _INACTIVE,
    "NamespaceMessageTTL": 100_000,
    "Persistence": _PERSISTENCE,
    "Retention": _RETENTION,
    "SubscriptionExpirationTime": 1000,
    "TopicAutoCreation": _TOPICS,
    "CompactionThreshold": 1_000_000,
    "DispatchRate": _RATE,
    "IsAllowAutoUpdateSchema": False,
    "OffloadThreshold": 1_000_000,
    "OffloadThresholdInSeconds": 1000,
    "PublishRate": _PUBLISH_RATE,
    "ReplicatorDispatchRate": _RATE,
    "SchemaAutoUpdateCompatibilityStrategy": "Backward",
    "SchemaCompatibilityStrategy": "BACKWARD",
    "SchemaValidationEnforced": True,
    "SubscribeRate": _SUBSCRIBE_RATE,
    "SubscriptionDispatchRate": _RATE,
}
"""What comes behind Get, Set and, for those of ``REMOVABLE``, Remove, with the value to set."""

REMOVABLE: Final = tuple(NAMESPACE_POLICIES)[:10]

TOPIC_POLICIES: Final[dict[str, Any]] = {
    "AutoSubscriptionCreation": _SUBSCRIPTIONS,
    "CompactionThreshold": 1_000_000,
    "DeduplicationSnapshotInterval": 1000,
    "DeduplicationStatus": False,
    "DelayedDelivery": _DELAYED,
    "DispatchRate": _RATE,
    "InactiveTopicPolicies": _INACTIVE,
    "MaxConsumers": 10,
    "MaxConsumersPerSubscription": 10,
    "MaxMessageSize": 100_000,
    "MaxProducers": 10,
    "MaxSubscriptionsPerTopic": 10,
    "MaxUnackMessagesPerConsumer": 1000,
    "MaxUnackMessagesPerSubscription": 1000,
    "MessageTTL": 100_000,
    "OffloadPolicies": _OFFLOAD,
    "Persistence": _PERSISTENCE,
    "PublishRate": _PUBLISH_RATE,
    "ReplicationClusters": [CLUSTER],
    "ReplicatorDispatchRate": _RATE,
    "Retention": _RETENTION,
    "SchemaCompatibilityStrategy": "BACKWARD",
    "SchemaValidationEnforced": True,
    "SubscribeRate": _SUBSCRIBE_RATE,
    "SubscriptionDispatchRate": _RATE,
}
APPLIED: Final = ("CompactionThreshold", "InactiveTopicPolicies", "Retention")
"""Those that the older methods read with a parameter: whether the value in force is wanted."""

_FIRST_MESSAGE: Final = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
_QUOTA_OF_BUNDLE: Final = {
    **dict.fromkeys(("msgRateIn", "msgRateOut", "bandwidthIn", "bandwidthOut", "memory"), 10.0),
    "dynamic": True,
}
_ISOLATION: Final = {
    "namespaces": [f"{TENANT}/isolated.*"],
    "primary": ["nowhere.*"],
    "secondary": [],
    "auto_failover_policy": {"policy_type": "min_available", "parameters": {"min_limit": "1", "usage_threshold": "80"}},
}
_ONE_BUNDLE: Final = {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}
_OF_ONE_BUNDLE: Final = {
    "bundles": _ONE_BUNDLE,
    "offload_threshold": -1,
    "replication_clusters": [CLUSTER],
    "schema_auto_update_compatibility_strategy": "Full",
    "schema_compatibility_strategy": "UNDEFINED",
    "subscription_auth_mode": "None",
}
_SCHEMA: Final = {"type": "STRING", "schema": "", "properties": {}}
_INFO: Final = {"name": "t", "type": "STRING", "schema": "", "properties": {}}
_STATS: Final = dict.fromkeys(("get_precise_backlog", "get_earliest_time_in_backlog"), True)
_DOMAIN: Final = {"ClusterName": CLUSTER, "DomainName": "here", "brokers": ["nowhere:8080"]}
_OTHER_CLUSTER: Final = {
    "Name": "elsewhere",
    "serviceUrl": "http://127.0.0.1:1",
    "brokerServiceUrl": "pulsar://127.0.0.1:1",
}


def _policies(group: str, place: str, policies: dict[str, Any], removable: tuple[str, ...]) -> list[Call]:
    calls: list[Call] = []
    for name, value in policies.items():
        applied = {"TopicPolicies": [False]}.get(group, [False] if group == "Topics" and name in APPLIED else [])
        get = [f"{group}.Get{name}", place, *applied]
        calls += [get, [f"{group}.Set{name}", place, value], get]
        calls += [[f"{group}.Remove{name}", place]] * (name in removable)
    return calls


def _quotas(group: str, place: str) -> list[Call]:
    """Backlog quotas, of which there are two kinds."""
    kind, applied = ["destination_storage"], [] if group == "Namespaces" else [False]
    return [
        [f"{group}.SetBacklogQuota", place, _QUOTA, *kind],
        [f"{group}.GetBacklogQuotaMap", place, *applied],
        [f"{group}.RemoveBacklogQuota", place, *(kind if applied else ())],
    ]


CLUSTERS: Final[list[Call]] = [
    ["Clusters.List"],
    ["Clusters.Get", CLUSTER],
    ["Clusters.Create", _OTHER_CLUSTER],
    ["Clusters.Update", _OTHER_CLUSTER],
    ["Clusters.GetPeerClusters", CLUSTER],
    ["Clusters.UpdatePeerClusters", CLUSTER, []],
    ["Clusters.UpdatePeerClusters", CLUSTER, ["elsewhere"]],
    ["Clusters.UpdatePeerClusters", CLUSTER, []],
    ["Clusters.CreateFailureDomain", _DOMAIN],
    ["Clusters.UpdateFailureDomain", _DOMAIN],
    ["Clusters.GetFailureDomain", CLUSTER, "here"],
    ["Clusters.ListFailureDomains", CLUSTER],
    ["Clusters.DeleteFailureDomain", _DOMAIN],
    ["Clusters.Delete", "elsewhere"],
    ["Clusters.Delete", "nowhere"],
    ["NsIsolationPolicy.GetNamespaceIsolationPolicies", CLUSTER],
    ["NsIsolationPolicy.GetNamespaceIsolationPolicy", CLUSTER, "nothing"],
    ["NsIsolationPolicy.CreateNamespaceIsolationPolicy", CLUSTER, "apart", _ISOLATION],
    ["NsIsolationPolicy.GetNamespaceIsolationPolicies", CLUSTER],
    ["NsIsolationPolicy.GetNamespaceIsolationPolicy", CLUSTER, "apart"],
    ["NsIsolationPolicy.GetBrokersWithNamespaceIsolationPolicy", CLUSTER],
    ["NsIsolationPolicy.GetBrokerWithNamespaceIsolationPolicy", CLUSTER, BROKER],
    ["NsIsolationPolicy.DeleteNamespaceIsolationPolicy", CLUSTER, "apart"],
]
BROKERS: Final[list[Call]] = [
    ["Brokers.GetListActiveBrokers"],
    ["Brokers.GetActiveBrokers", CLUSTER],
    ["Brokers.GetLeaderBroker"],
    ["Brokers.GetOwnedNamespaces", CLUSTER, BROKER],
    ["Brokers.GetDynamicConfigurationNames"],
    ["Brokers.UpdateDynamicConfiguration", "maxTopicsPerNamespace", "0"],
    ["Brokers.UpdateDynamicConfiguration", "brokerShutdownTimeoutMs", "60000"],
    ["Brokers.UpdateDynamicConfiguration", "loadBalancerSheddingEnabled", "true"],
    ["Brokers.UpdateDynamicConfiguration", "dispatchThrottlingRatePerTopicInMsg", "0"],
    ["Brokers.UpdateDynamicConfiguration", "brokerPublisherThrottlingMaxMessageRate", "0"],
    ["Brokers.UpdateDynamicConfiguration", "nonsense", "1"],
    ["Brokers.GetAllDynamicConfigurations"],
    ["Brokers.DeleteDynamicConfiguration", "maxTopicsPerNamespace"],
    ["Brokers.DeleteDynamicConfiguration", "brokerShutdownTimeoutMs"],
    ["Brokers.DeleteDynamicConfiguration", "loadBalancerSheddingEnabled"],
    ["Brokers.DeleteDynamicConfiguration", "dispatchThrottlingRatePerTopicInMsg"],
    ["Brokers.DeleteDynamicConfiguration", "brokerPublisherThrottlingMaxMessageRate"],
    ["Brokers.GetRuntimeConfigurations"],
    ["Brokers.GetInternalConfigurationData"],
    ["Brokers.HealthCheck"],
    ["Brokers.HealthCheckWithTopicVersion", "V2"],
    ["BrokerStats.GetMetrics"],
    ["BrokerStats.GetMBeans"],
    ["BrokerStats.GetTopics"],
    ["BrokerStats.GetLoadReport"],
    ["BrokerStats.GetAllocatorStats", "default"],
    ["BrokerStats.GetAllocatorStats", "ml-cache"],
    ["BrokerStats.GetAllocatorStats", "nothing"],
    ["ResourceQuotas.GetDefaultResourceQuota"],
    ["ResourceQuotas.SetDefaultResourceQuota", _QUOTA_OF_BUNDLE],
]
NAMES: Final[list[Call]] = [
    ["Tenants.Create", {"Name": TENANT, "adminRoles": ["me"], "allowedClusters": [CLUSTER]}],
    ["Tenants.Update", {"Name": TENANT, "adminRoles": ["you"], "allowedClusters": [CLUSTER]}],
    ["Tenants.Get", TENANT],
    ["Tenants.List"],
    ["Namespaces.CreateNamespace", f"{TENANT}/plain"],
    ["Namespaces.CreateNsWithNumBundles", f"{TENANT}/bundles", 4],
    ["Namespaces.CreateNsWithBundlesData", f"{TENANT}/data", _ONE_BUNDLE],
    *(["Namespaces.CreateNsWithPolices", name, _OF_ONE_BUNDLE] for name in (N, SPLIT, EMPTY)),
    ["Namespaces.GetNamespaces", TENANT],
    ["Namespaces.GetPolicies", N],
]
BUNDLES: Final[list[Call]] = [
    ["ResourceQuotas.GetNamespaceBundleResourceQuota", N, BUNDLE],
    ["ResourceQuotas.SetNamespaceBundleResourceQuota", N, BUNDLE, _QUOTA_OF_BUNDLE],
    ["ResourceQuotas.GetNamespaceBundleResourceQuota", N, BUNDLE],
    ["ResourceQuotas.ResetNamespaceBundleResourceQuota", N, BUNDLE],
    ["ResourceQuotas.SetDefaultResourceQuota", DEFAULT],
    ["Namespaces.Unload", N],
    ["Namespaces.UnloadNamespaceBundle", N, BUNDLE],
    ["Namespaces.SplitNamespaceBundle", SPLIT, BUNDLE, False],
    ["Namespaces.DeleteNamespaceBundle", EMPTY, BUNDLE],
    ["Topics.Create", f"persistent://{EMPTY}/t", 0],
    ["Namespaces.DeleteNamespaceBundle", EMPTY, BUNDLE],
    ["Topics.Delete", f"persistent://{EMPTY}/t", False, True],
    ["Namespaces.DeleteNamespaceBundle", EMPTY, BUNDLE],
]
OF_NAMESPACES: Final[list[Call]] = [
    *_policies("Namespaces", N, NAMESPACE_POLICIES, REMOVABLE),
    *_quotas("Namespaces", N),
    ["Namespaces.GetOffloadDeleteLag", N],
    ["Namespaces.SetOffloadDeleteLag", N, 1000],
    ["Namespaces.GetOffloadDeleteLag", N],
    ["Namespaces.ClearOffloadDeleteLag", N],
    ["Namespaces.GetBookieAffinityGroup", N],
    ["Namespaces.SetBookieAffinityGroup", N, {"bookkeeperAffinityGroupPrimary": "some"}],
    ["Namespaces.GetBookieAffinityGroup", N],
    ["Namespaces.DeleteBookieAffinityGroup", N],
    ["Namespaces.SetDeduplicationStatus", N, False],
    ["Namespaces.SetEncryptionRequiredStatus", N, True],
    ["Namespaces.SetEncryptionRequiredStatus", N, False],
    ["Namespaces.SetSubscriptionAuthMode", N, "Prefix"],
    ["Namespaces.SetSubscriptionAuthMode", N, "None"],
    ["Namespaces.GetNamespaceReplicationClusters", N],
    ["Namespaces.SetNamespaceReplicationClusters", N, [CLUSTER]],
    ["Namespaces.GetNamespaceAntiAffinityGroup", N],
    ["Namespaces.SetNamespaceAntiAffinityGroup", N, "apart"],
    ["Namespaces.GetNamespaceAntiAffinityGroup", N],
    ["Namespaces.GetAntiAffinityNamespaces", TENANT, CLUSTER, "apart"],
    ["Namespaces.DeleteNamespaceAntiAffinityGroup", N],
    ["Namespaces.UpdateProperties", N, {"color": "red"}],
    ["Namespaces.GetProperties", N],
    ["Namespaces.RemoveProperties", N],
    ["Namespaces.GrantNamespacePermission", N, "app", ["produce", "consume"]],
    ["Namespaces.GetNamespacePermissions", N],
    ["Namespaces.RevokeNamespacePermission", N, "app"],
    ["Namespaces.GrantSubPermission", N, "s", ["app"]],
    ["Namespaces.GetSubPermissions", N],
    ["Namespaces.RevokeSubPermission", N, "s", "app"],
]
TOPICS: Final[list[Call]] = [
    ["Topics.Create", T, 0],
    ["Topics.Create", Q, 2],
    ["Topics.CreateWithProperties", f"{T}2", 0, {"color": "red"}],
    ["Topics.Update", Q, 3],
    ["Topics.GetMetadata", Q],
    ["Topics.List", N],
    ["Namespaces.GetTopics", N],
    ["Topics.GetProperties", T],
    ["Topics.UpdateProperties", T, {"color": "red"}],
    ["Topics.RemoveProperty", T, "color"],
    ["Topics.GrantPermission", T, "app", ["consume"]],
    ["Topics.GetPermissions", T],
    ["Topics.RevokePermission", T, "app"],
    ["Topics.Lookup", T],
    ["Topics.GetBundleRange", T],
    *_policies("Topics", T, TOPIC_POLICIES, tuple(TOPIC_POLICIES)),
    *_policies("TopicPolicies", T, TOPIC_POLICIES, tuple(TOPIC_POLICIES)),
    *_quotas("Topics", T),
    *_quotas("TopicPolicies", T),
    ["Topics.GetSchemaCompatibilityStrategyApplied", T, True],
]
SUBSCRIPTIONS: Final[list[Call]] = [
    ["Subscriptions.Create", T, "s", _FIRST_MESSAGE],
    ["Subscriptions.Create", T, "u", _FIRST_MESSAGE],
    ["Subscriptions.Create", Q, "s", _FIRST_MESSAGE],
    ["Subscriptions.List", T],
    ["Subscriptions.PeekMessages", T, "s", 3],
    ["Subscriptions.PeekMessages", T, "nothing", 1],
    ["Subscriptions.GetMessageByID", T, 1_000_000, 0],
    ["Subscriptions.GetMessagesByID", T, 1_000_000, 0],
    ["Subscriptions.SkipMessages", T, "s", 1],
    ["Subscriptions.ExpireMessages", T, "s", 100_000],
    ["Subscriptions.ResetCursorToTimestamp", T, "s", 1],
    ["Subscriptions.ResetCursorToMessageID", T, "s", _FIRST_MESSAGE],
    # Not right behind the other one: as long as that is at work Apache Pulsar refuses.
    ["Subscriptions.ExpireAllMessages", T, 100_000],
    ["Subscriptions.ClearBacklog", T, "s"],
    ["Topics.GetStats", T],
    ["Topics.GetStatsWithOption", T, _STATS],
    ["Topics.GetInternalStats", T],
    ["Topics.GetInternalInfo", T],
    ["Topics.GetPartitionedStats", Q, True],
    ["Topics.GetPartitionedStatsWithOption", Q, True, _STATS],
    ["Topics.GetLastMessageID", T],
    ["Topics.GetMessageID", T, 1],
    ["Namespaces.ClearNamespaceBacklog", N],
    ["Namespaces.ClearNamespaceBundleBacklog", N, BUNDLE],
    ["Namespaces.ClearNamespaceBacklogForSubscription", N, "s"],
    ["Namespaces.ClearNamespaceBundleBacklogForSubscription", N, BUNDLE, "s"],
    ["Namespaces.UnsubscribeNamespaceBundle", N, BUNDLE, "u"],
    ["Namespaces.UnsubscribeNamespace", N, "u"],
    ["Subscriptions.Delete", Q, "s"],
    ["Subscriptions.Delete", T, "nobody"],
    ["Subscriptions.ForceDelete", T, "s"],
]
SCHEMAS: Final[list[Call]] = [
    ["Schemas.GetSchemaInfo", T],
    ["Schemas.CreateSchemaByPayload", T, _SCHEMA],
    ["Schemas.CreateSchemaBySchemaInfo", T, _INFO],
    ["Schemas.GetSchemaInfo", T],
    ["Schemas.GetSchemaInfoWithVersion", T],
    ["Schemas.GetSchemaInfoByVersion", T, 0],
    ["Schemas.GetAllSchemas", T],
    ["Schemas.GetVersionByPayload", T, _SCHEMA],
    ["Schemas.GetVersionBySchemaInfo", T, _INFO],
    ["Schemas.TestCompatibilityWithPostSchemaPayload", T, _SCHEMA],
    ["Schemas.TestCompatibilityWithSchemaInfo", T, _INFO],
    ["Schemas.DeleteSchema", T],
    ["Schemas.ForceDeleteSchema", T],
]
END: Final[list[Call]] = [
    ["Topics.CompactStatus", T],
    ["Topics.Compact", T],
    ["Topics.OffloadStatus", T],
    ["Topics.Offload", T, _FIRST_MESSAGE],
    ["Topics.Unload", T],
    ["Topics.Terminate", T],
    ["Topics.Delete", T, True, True],
    ["Topics.Delete", f"{T}2", False, True],
    ["Topics.Delete", Q, True, False],
    ["Namespaces.DeleteNamespace", N],
    *(["Namespaces.DeleteNamespace", f"{TENANT}/{name}"] for name in ("plain", "bundles", "data", "split", "empty")),
    ["Namespaces.DeleteNamespace", "public/nowhere"],
    ["Tenants.Delete", TENANT],
    ["Tenants.Delete", "nobody"],
]

BEFORE: Final = [*CLUSTERS, *BROKERS, *NAMES, *BUNDLES, *OF_NAMESPACES, *TOPICS]
AFTER: Final = [*SUBSCRIPTIONS, *SCHEMAS, *END]
"""The walk in two halves, between which messages are sent to the topic ``T``."""


class Outcome(NamedTuple):
    """How a call ended: the HTTP status that it was refused with, 0 for success, -1 if the library cannot read it."""

    code: int
    text: str

    def __str__(self) -> str:
        return {0: "ok", -1: "unreadable"}.get(self.code, str(self.code))


class Walk(NamedTuple):
    """How all calls ended, in order, and the methods that were not called."""

    outcomes: list[Outcome]
    uncalled: set[str]


def built(folder: Path) -> Path:
    """The program; UnavailableError where there is no Go, or its packages cannot be had."""
    if (go := shutil.which("go")) is None:
        raise UnavailableError("go is not on the PATH")
    made = folder / "go_admin"
    command = [go, "build", "-o", str(made), "."]
    done = subprocess.run(command, cwd=PROGRAM, capture_output=True, text=True, timeout=DEADLINE_S)
    if done.returncode:
        raise UnavailableError(f"go cannot build the program: {done.stderr.strip()[-300:]}")
    return made


def walk(program: Path, http_url: str, calls: list[Call]) -> Walk:
    """Make ``calls`` at the broker whose admin REST is there."""
    broker = http_url.partition("//")[2]
    named = [[broker if argument == BROKER else argument for argument in call] for call in calls]
    asked = json.dumps({"url": http_url, "calls": named})
    done = subprocess.run([program], input=asked, capture_output=True, text=True, timeout=DEADLINE_S)
    if done.returncode:
        raise RuntimeError(f"the walk failed: {done.stderr}")
    answer = json.loads(done.stdout)
    outcomes = [Outcome(each["code"], each["text"]) for each in answer["outcomes"]]
    return Walk([_seen(call, how) for call, how in zip(calls, outcomes, strict=True)], set(answer["uncalled"]))


def _seen(call: Call, outcome: Outcome) -> Outcome:
    """The library tells nobody that it did not get a load report."""
    silent = call[0] == "BrokerStats.GetLoadReport" and outcome == (0, "null")
    return Outcome(-1, "there is no load report") if silent else outcome


def shown(call: Call) -> str:
    """A call as docs/admin-differences.md names it."""
    texts = [each if isinstance(each, str) else json.dumps(each, separators=(",", ":")) for each in call[1:]]
    return f"{call[0]}({', '.join(texts)})"
