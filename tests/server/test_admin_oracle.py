# SPDX-License-Identifier: Apache-2.0
"""The same admin requests to our broker and to a real Apache Pulsar: same status, same JSON.

Requests run in order, on a namespace of their own; ``{}`` in a path is its name. Where the answers may differ,
docs/admin-differences.md says why. Values that depend on a broker's storage (ledger ids, times, sizes) are compared by
their shape only.
"""

from __future__ import annotations

from typing import Final

import pytest

from broker_core.base.names import NamespaceName
from broker_core.client.admin import AdminApi
from tests.server.oracle import TIMEOUT_S, Ask, Both, N, Q, T, compare

pytestmark = pytest.mark.pulsar

S: Final = f"{T}/subscription/s"

QUOTA: Final = '{"limitSize":1000,"limitTime":-1,"policy":"producer_exception"}'
_QUOTA: Final = {"limitSize": 1000, "limitTime": -1, "policy": "producer_exception"}
RETENTION: Final = '{"retentionTimeInMinutes":10,"retentionSizeInMB":20}'
COUNTS_OF_TOPIC: Final = (
    "maxProducers",
    "maxConsumers",
    "maxUnackedMessagesOnConsumer",
    "deduplicationSnapshotInterval",
)
COUNTS_OF_NAMESPACE: Final = (
    *("maxProducersPerTopic", "maxConsumersPerTopic", "maxConsumersPerSubscription", "maxSubscriptionsPerTopic"),
    *("maxUnackedMessagesPerConsumer", "maxUnackedMessagesPerSubscription", "subscriptionExpirationTime"),
)
WITHOUT_A_VALUE: Final = (
    *((f"{level}/deduplicationSnapshotInterval", "7") for level in (N, T)),
    *((f"{level}/delayedDelivery", '{"active":true,"tickTime":500}') for level in (N, T)),
    *((f"{level}/autoSubscriptionCreation", '{"allowAutoSubscriptionCreation":false}') for level in (N, T)),
    *((f"{T}/{name}", "7") for name in ("maxUnackedMessagesOnConsumer", "maxUnackedMessagesOnSubscription")),
    (f"{T}/subscriptionExpirationTime", "7"),
    (f"{T}/deduplicationEnabled", "true"),
    (f"{N}/autoTopicCreation", '{"allowAutoTopicCreation":false}'),
    (f"{N}/retention", RETENTION),
)
"""Policies that a POST without a value removes."""


def set_and_remove(path: str, good: str, bad: str) -> list[Ask]:
    """The life of one policy."""
    refused = Ask("POST", path, bad, same=False)
    return [Ask("POST", path, good), Ask("GET", path), refused, Ask("GET", path), Ask("DELETE", path), Ask("GET", path)]


POLICIES: Final = [
    Ask("PUT", N),
    Ask("PUT", N, same=False),
    # First: once it is asked what applies to a topic, an Apache Pulsar shows the broker's quotas as the namespace's.
    Ask("GET", f"{N}/backlogQuotaMap"),
    Ask("PUT", T, "{}"),
    *(Ask("GET", f"{T}/{name}") for name in ("retention", "messageTTL", "maxProducers", "backlogQuotaMap")),
    *(
        Ask("GET", f"{T}/{name}?applied=true")
        for name in ("retention", "messageTTL", "backlogQuotaMap", "maxProducers", "deduplicationEnabled")
    ),
    *(Ask("GET", f"{T}/{name}") for name in ("maxConsumersPerSubscription", "maxSubscriptionsPerTopic")),
    *(Ask("GET", f"{T}/maxMessageSize{applied}") for applied in ("", "?applied=true")),
    Ask("GET", f"{T}/subscriptionExpirationTime?applied=true"),
    Ask("POST", f"{N}/subscriptionExpirationTime", "5"),
    Ask("GET", f"{T}/subscriptionExpirationTime?applied=true"),
    Ask("DELETE", f"{N}/subscriptionExpirationTime"),
    Ask("GET", f"{T}/maxUnackedMessagesOnConsumer?applied=true"),
    Ask("GET", f"{T}/maxUnackedMessagesOnSubscription?applied=true"),
    Ask("GET", f"{T}/autoSubscriptionCreation?applied=true"),
    Ask("GET", f"{T}/delayedDelivery?applied=true"),
    *(
        ask
        for level in (N, T)
        for ask in (
            *set_and_remove(f"{level}/retention", RETENTION, '{"retentionTimeInMinutes":0,"retentionSizeInMB":5}'),
            *set_and_remove(f"{level}/retention", RETENTION, '{"retentionTimeInMinutes":-2,"retentionSizeInMB":5}'),
            *set_and_remove(f"{level}/retention", RETENTION, "[1]"),
            *set_and_remove(f"{level}/delayedDelivery", '{"active":true,"tickTime":500}', "[1]"),
            *set_and_remove(f"{level}/delayedDelivery", '{"active":true}', "[1]"),
            *set_and_remove(f"{level}/autoSubscriptionCreation", '{"allowAutoSubscriptionCreation":false}', "[1]"),
        )
    ),
    *set_and_remove(f"{N}/subscriptionTypesEnabled", '["Shared"]', '"x"'),
    *set_and_remove(f"{T}/subscriptionTypesEnabled", '["Shared"]', '"x"'),
    Ask("POST", f"{T}/subscriptionTypesEnabled", "[]"),
    Ask("GET", f"{T}/subscriptionTypesEnabled"),
    *set_and_remove(f"{N}/messageTTL", "7", "-7"),
    *set_and_remove(f"{N}/deduplication", "true", '"x"'),
    *set_and_remove(f"{T}/deduplicationEnabled", "true", '"x"'),
    *(ask for name in COUNTS_OF_NAMESPACE for ask in set_and_remove(f"{N}/{name}", "3", "-1")),
    *(ask for name in COUNTS_OF_TOPIC for ask in set_and_remove(f"{T}/{name}", "3", "-1")),
    *set_and_remove(f"{N}/maxTopicsPerNamespace", "50", "-1"),
    *set_and_remove(
        f"{N}/autoTopicCreation",
        '{"allowAutoTopicCreation":true,"topicType":"partitioned","defaultNumPartitions":2}',
        '{"allowAutoTopicCreation":true,"topicType":"partitioned"}',
    ),
    *set_and_remove(f"{T}/maxMessageSize", "5242880", "5242881"),
    *(
        ask
        for path, value in WITHOUT_A_VALUE
        for nothing in ("null", "")
        for ask in (Ask("POST", path, value), Ask("POST", path, nothing), Ask("GET", path))
    ),
    Ask("DELETE", f"{T}/retention"),
    *(Ask("POST", path, "", same=False) for path in (f"{N}/maxProducersPerTopic", f"{T}/maxProducers")),
    Ask("PUT", f"{Q}/partitions", "2"),
    *(
        Ask(method, f"{topic}-partition-0/{path}", body if method == "POST" else None, same=False)
        for topic in (Q, f"{Q}x")
        for path, body in (("retention", RETENTION), ("messageTTL", None), ("maxProducers", "3"))
        for method in ("GET", "POST", "DELETE")
    ),
    Ask("GET", f"{Q}-partition-0/backlogQuotaMap?applied=true", same=False),
    Ask("GET", N, same=False, fields=("subscription_types_enabled", "properties")),
    Ask("DELETE", f"{Q}/partitions"),
    Ask("PUT", f"{N}/properties", '{"a":"1","b":"2"}'),
    Ask("PUT", f"{N}/property/b/3"),
    Ask("GET", f"{N}/property/b", same=False),
    Ask("GET", f"{N}/properties"),
    *(Ask("DELETE", f"{N}/property/b", same=False) for _ in range(2)),
    Ask("PUT", f"{N}/properties", "[1]", same=False),
    Ask("GET", f"{N}/properties"),
    Ask("DELETE", f"{N}/properties"),
    Ask("GET", f"{N}/properties"),
    Ask("PUT", "namespaces/public/nowhere/properties", '{"a":"1"}', same=False),
    Ask("POST", f"{T}/messageTTL?messageTTL=7"),
    Ask("GET", f"{T}/messageTTL"),
    Ask("POST", f"{T}/messageTTL?messageTTL=-7", same=False),
    Ask("DELETE", f"{T}/messageTTL"),
    Ask("POST", f"{T}/backlogQuota", QUOTA),
    Ask("GET", f"{T}/backlogQuotaMap"),
    Ask("POST", f"{T}/backlogQuota", '{"limitSize":1}', same=False),
    Ask("DELETE", f"{T}/backlogQuota"),
    Ask("GET", f"{T}/backlogQuotaMap"),
    Ask(
        "POST",
        f"{T}/backlogQuota?backlogQuotaType=message_age",
        '{"limitSize":-1,"limitTime":60,"policy":"producer_exception"}',
    ),
    Ask("GET", f"{T}/backlogQuotaMap"),
    Ask("DELETE", f"{T}/backlogQuota?backlogQuotaType=message_age"),
    Ask("POST", f"{T}/backlogQuota?backlogQuotaType=nope", QUOTA, same=False),
    Ask("POST", f"{T}/retention", '{"retentionTimeInMinutes":10,"retentionSizeInMB":1}'),
    Ask("POST", f"{T}/backlogQuota", '{"limitSize":10485760,"policy":"producer_request_hold"}', same=False),
    Ask("DELETE", f"{T}/retention"),
    *(
        Ask(method, f"{path}/retention", RETENTION if method == "POST" else None, same=False)
        for path in ("namespaces/public/nowhere", "persistent/{}/nothing", "persistent/public/nowhere/t")
        for method in ("GET", "POST")
    ),
]

SUBSCRIPTIONS: Final = [
    Ask("PUT", f"{T}/properties", '{"a":"1","b":"2"}'),
    Ask("DELETE", f"{T}/properties?key=a"),
    Ask("GET", f"{T}/properties"),
    Ask("PUT", f"{T}/properties", '{"pulsar.mine":"3"}'),
    Ask("GET", f"{T}/properties"),
    Ask("PUT", S, '"earliest"'),
    Ask("PUT", S, '"earliest"', same=False),
    Ask("PUT", f"{T}/subscription/pp", '{"ledgerId":-1,"entryId":-1,"partitionIndex":-1,"properties":{"k":"v"}}'),
    Ask("GET", f"{T}/subscription/pp/properties"),
    Ask("PUT", f"{T}/subscription/pp/properties", '{"k":"w"}'),
    Ask("GET", f"{T}/subscription/pp/properties"),
    Ask("GET", f"{T}/subscription/nope/properties", same=False),
    Ask("GET", f"{T}/subscriptions", same=False),
    Ask("POST", f"{S}/skip/2"),
    Ask("GET", f"{T}/stats", same=False, fields=("subscriptions.s.msgBacklog", "subscriptions.s.consumers")),
    Ask("POST", f"{S}/skip/1000"),
    Ask("POST", f"{T}/subscription/nope/skip/2", same=False),
    Ask("POST", f"{S}/skip_all"),
    *(Ask("POST", f"{S}/resetcursor/{time}") for time in (2**63 - 1, 0)),
    Ask("GET", f"{T}/messageid/{2**63 - 1}", same=False),
    Ask("POST", f"{T}/subscription/nope/resetcursor/0", same=False),
    Ask("GET", f"{S}/position/1", same=False),
    Ask("GET", f"{S}/position/11", same=False),
    Ask("GET", f"{T}/ledger/99999/entry/0", same=False),
    Ask("GET", f"{T}/messageid/9999999999999", same=False),
    Ask("GET", f"{T}/lastMessageId", same=False),
    *(Ask("POST", f"{S}/resetcursor", place) for place in ('"latest"', '"earliest"')),
    Ask("POST", f"{S}/resetcursor", '"nowhere"', same=False),
    Ask("POST", f"{S}/expireMessages", '"earliest"'),
    Ask("POST", f"{S}/resetcursor", '{"ledgerId":-1,"entryId":-1}'),
    Ask("PUT", "persistent/{}/made/subscription/s", '"latest"'),
    Ask("GET", "persistent/{}/made/subscriptions"),
    Ask("PUT", "persistent/public/nowhere/t/subscription/s", '"latest"', same=False),
    Ask("DELETE", "persistent/{}/made?force=true"),
    Ask("POST", f"{S}/expireMessages/100000"),
    Ask("POST", f"{T}/subscription/nope/expireMessages/1", same=False),
    Ask(
        "GET",
        f"{T}/stats",
        same=False,
        fields=(
            *("msgRateIn", "msgThroughputIn", "msgRateOut", "msgThroughputOut", "bytesInCounter", "msgInCounter"),
            *("bytesOutCounter", "msgOutCounter", "averageMsgSize", "storageSize", "backlogSize", "publishers"),
            *(
                "backlogQuotaLimitSize",
                "backlogQuotaLimitTime",
                "oldestBacklogMessageAgeSeconds",
                "deduplicationStatus",
            ),
            *(
                f"subscriptions.s.{field}"
                for field in (
                    *("msgRateOut", "msgThroughputOut", "bytesOutCounter", "msgOutCounter", "msgBacklog", "type"),
                    *("msgRateRedeliver", "unackedMessages", "blockedSubscriptionOnUnackedMsgs", "consumers"),
                    *("subscriptionProperties", "nonContiguousDeletedMessagesRanges", "backlogSize"),
                )
            ),
        ),
    ),
    Ask(
        "GET",
        f"{T}/internalStats",
        same=False,
        fields=(
            *("entriesAddedCounter", "numberOfEntries", "totalSize", "currentLedgerEntries", "currentLedgerSize"),
            *("lastLedgerCreatedTimestamp", "lastConfirmedEntry", "state"),
            *(f"cursors.s.{field}" for field in ("markDeletePosition", "readPosition", "individuallyDeletedMessages")),
            "cursors.s.state",
        ),
    ),
    Ask("DELETE", N, same=False),
    Ask("PUT", f"{T}/unload"),
    Ask("PUT", "persistent/{}/nothing/unload", same=False),
    Ask("DELETE", S),
    Ask("DELETE", S, same=False),
    Ask("POST", f"{T}/terminate/partitions", same=False),
    Ask("POST", f"{T}/terminate", same=False),
    Ask("POST", f"{T}/terminate", same=False),
    Ask("POST", "persistent/{}/nothing/terminate", same=False),
    Ask("DELETE", f"{T}?force=true"),
    Ask("DELETE", T, same=False),
]

PARTITIONS: Final = [
    Ask("PUT", N),
    Ask("PUT", f"{Q}/partitions", "2"),
    Ask("PUT", f"{Q}/partitions", "2", same=False),
    Ask("POST", f"{Q}/partitions", "2"),
    Ask("POST", f"{Q}/partitions", "1", same=False),
    Ask("POST", f"{Q}/partitions", "3"),
    Ask("POST", f"{Q}/partitions", "x", same=False),
    Ask("POST", f"{Q}/partitions", "", same=False),
    Ask("PUT", f"{Q}y/partitions", "", same=False),
    Ask("POST", f"{Q}x/partitions", "3", same=False),
    Ask("GET", f"{Q}/stats", same=False),
    Ask("GET", f"{Q}/partitioned-stats", same=False, fields=("metadata.partitions", "partitions", "msgInCounter")),
    Ask("GET", f"{Q}/partitioned-internalStats", same=False, fields=("metadata.partitions", "partitions")),
    Ask("POST", f"{Q}/terminate", same=False),
    Ask("PUT", f"{Q}-partition-1/properties", '{"a":"1"}'),
    Ask("GET", f"{Q}-partition-1/properties"),
    Ask("PUT", f"{Q}-partition-1/subscription/s", '"earliest"'),
    Ask("PUT", f"{Q}/subscription/s", '"earliest"'),
    Ask("PUT", f"{Q}/subscription/s", '"earliest"', same=False),
    Ask("GET", f"{Q}-partition-0/subscriptions"),
    Ask("POST", f"{Q}/subscription/s/skip/1", same=False),
    Ask("POST", f"{Q}/subscription/s/skip_all"),
    Ask("POST", f"{Q}/subscription/s/expireMessages", '{"ledgerId":0,"entryId":3}', same=False),
    Ask("POST", f"{Q}/subscription/s/resetcursor/0"),
    Ask("POST", f"{Q}/subscription/s/resetcursor", '{"ledgerId":-1,"entryId":-1}', same=False),
    Ask("GET", f"{Q}/subscription/s/position/1", same=False),
    Ask("GET", f"{Q}/messageid/0", same=False),
    Ask("POST", f"{Q}/terminate/partitions", same=False, fields=("0.ledgerId", "2.entryId")),
    Ask("PUT", f"{Q}/unload"),
    Ask("DELETE", N, same=False),
    Ask("DELETE", Q, same=False),
    Ask("DELETE", f"{Q}/partitions?force=true"),
    Ask("DELETE", f"{Q}/partitions", same=False),
    Ask("DELETE", N),
    Ask("DELETE", N, same=False),
    Ask("DELETE", "tenants/public", same=False),
    Ask("DELETE", "tenants/nope", same=False),
]

LIMITED: Final = [
    Ask("PUT", N),
    Ask("POST", f"{N}/maxTopicsPerNamespace", "3"),
    Ask("PUT", T, "{}"),
    Ask("PUT", f"{Q}/partitions", "3", same=False),
    Ask("PUT", f"{Q}/partitions", "2"),
    Ask("PUT", "persistent/{}/other", "{}", same=False),
    Ask("PUT", "persistent/{}/others/partitions", "1", same=False),
    Ask("PUT", "persistent/{}/other/subscription/s", '"latest"', same=False),
    Ask("PUT", "non-persistent/{}/other", "{}"),
    Ask("POST", f"{Q}/partitions", "3"),
]


def test_policies_answer_as_pulsars(both: Both) -> None:
    """1.1.5, 7.1, 7.2, 7.3: paths, bodies and status codes of policies at both levels."""
    assert compare(both, POLICIES) == []


def test_the_admin_client_takes_policies_back_on_both(both: Both) -> None:
    """1.1.5: a namespace that was given policies and left them to the broker again shows none, on any Pulsar."""
    wanted = {"deduplicationSnapshotInterval": 7, "messageTTL": 9, "backlogQuota": {"destination_storage": _QUOTA}}
    for side in both.sides:
        with AdminApi(side.http_url, timeout_s=TIMEOUT_S) as admin:
            name = NamespaceName.parse(both.namespace)
            admin.create_namespace(name)
            for policy, value in wanted.items():
                admin.set_policy(name, policy, value)
                assert admin.policy(name, policy) not in (None, {}), policy
                admin.remove_policy(name, policy)
                assert admin.policy(name, policy) is None, policy


def test_subscriptions_answer_as_pulsars(both: Both) -> None:
    """1.4.6, 7.5, 7.15: creating, moving, peeking, statistics and the end of a topic."""
    assert compare(both, [Ask("PUT", N)]) == []
    both.fill()
    assert compare(both, SUBSCRIPTIONS) == []


def test_a_full_namespace_answers_as_pulsars(both: Both) -> None:
    """1.1.5, 1.2.1: what counts against maxTopicsPerNamespace, and what is said to one topic too many."""
    assert compare(both, LIMITED) == []


def test_partitioned_topics_answer_as_pulsars(both: Both) -> None:
    """1.2.2: growth, what is refused on the base name, and deleting what is and is not empty."""
    assert compare(both, PARTITIONS) == []
