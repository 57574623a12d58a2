# SPDX-License-Identifier: Apache-2.0
"""Requests of the paths that no other comparison asks for: topics that are not stored, settings of the broker, tenants,
look-ups, grants in one request. ``test_admin_oracle_coverage`` sees that no path is left out.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.server.oracle import NOTHING, Ask, Both, N, Q, T, compare

pytestmark = pytest.mark.pulsar

U: Final = "non-persistent/{}/u"
UQ: Final = "non-persistent/{}/uq"
NO_TOPIC: Final = "non-persistent/{}/nothing"
NOWHERE: Final = "public/nowhere"

RATE: Final = (
    '{"dispatchThrottlingRateInMsg":5,"dispatchThrottlingRateInByte":-1,"relativeToPublishRate":false,'
    '"ratePeriodInSecond":1}'
)
VALUES: Final = {
    "retention": '{"retentionTimeInMinutes":10,"retentionSizeInMB":20}',
    "deduplicationEnabled": "true",
    "autoSubscriptionCreation": '{"allowAutoSubscriptionCreation":false}',
    "delayedDelivery": '{"active":true,"tickTime":500}',
    "subscriptionTypesEnabled": '["Shared"]',
    "publishRate": '{"publishThrottlingRateInMsg":5,"publishThrottlingRateInByte":-1}',
    "dispatchRate": RATE,
    "subscriptionDispatchRate": RATE,
    "maxMessageSize": "5242880",
    **dict.fromkeys(("deduplicationSnapshotInterval", "maxProducers", "maxConsumers"), "3"),
    **dict.fromkeys(("maxConsumersPerSubscription", "maxSubscriptionsPerTopic", "subscriptionExpirationTime"), "3"),
    **dict.fromkeys(("maxUnackedMessagesOnConsumer", "maxUnackedMessagesOnSubscription"), "3"),
}
"""Policies of a topic, and a value for each."""

QUOTA: Final = '{"limitSize":1000,"limitTime":-1,"policy":"producer_exception"}'


def of_policy(name: str, value: str) -> list[Ask]:
    """The life of one policy of a topic that is not stored."""
    path = f"{U}/{name}"
    return [
        Ask("GET", path), Ask("POST", path, value), Ask("GET", path), Ask("GET", f"{path}?applied=true"),
        Ask("DELETE", path), Ask("GET", path), Ask("POST", path, '[["strange"]]', same=False),
        *(Ask(method, f"{NO_TOPIC}/{name}", value if method == "POST" else None, same=False)
          for method in ("GET", "POST", "DELETE")),
    ]  # fmt: skip


UNSTORED_POLICIES: Final = [
    Ask("PUT", N),
    Ask("PUT", U),
    *(ask for name, value in VALUES.items() for ask in of_policy(name, value)),
    Ask("POST", f"{U}/messageTTL?messageTTL=7"),
    Ask("GET", f"{U}/messageTTL"),
    Ask("DELETE", f"{U}/messageTTL"),
    Ask("POST", f"{U}/backlogQuota", QUOTA),
    Ask("GET", f"{U}/backlogQuotaMap"),
    Ask("DELETE", f"{U}/backlogQuota"),
    Ask("GET", f"{U}/backlogQuotaMap"),
    Ask("POST", f"{U}/maxProducers", "3"),
    Ask("DELETE", f"{U}/policies"),
    Ask("GET", f"{U}/maxProducers"),
    Ask("DELETE", f"{NO_TOPIC}/policies", same=False),
]

UNSTORED: Final = [
    Ask("PUT", N),
    Ask("PUT", U),
    Ask("PUT", f"{UQ}/partitions", "2"),
    Ask("PUT", f"{UQ}/partitions", "2", same=False),
    Ask("GET", f"{UQ}/partitions", same=False, fields=("partitions",)),
    Ask("GET", "non-persistent/{}/partitioned"),
    Ask("GET", f"non-persistent/{NOWHERE}/partitioned", same=False),
    Ask("POST", f"{UQ}/partitions", "3"),
    Ask("POST", f"{UQ}/partitions", "2", same=False),
    Ask("GET", f"{U}/stats", same=False, fields=("msgInCounter", "subscriptions", "publishers")),
    Ask("GET", f"{NO_TOPIC}/stats", same=False),
    Ask("GET", f"{U}/internalStats", same=False, fields=("entriesAddedCounter", "cursors")),
    Ask("GET", f"{UQ}/partitioned-stats", same=False, fields=("metadata.partitions", "partitions", "msgInCounter")),
    Ask("GET", f"{UQ}/partitioned-internalStats", same=False, fields=("metadata.partitions", "partitions")),
    Ask("GET", f"{U}/partitioned-stats", same=False),
    Ask("GET", f"{U}/subscriptions"),
    Ask("GET", f"{NO_TOPIC}/subscriptions", same=False),
    Ask("PUT", f"{U}/subscription/s", '"latest"', same=False),
    Ask("DELETE", f"{U}/subscription/s", same=False),
    Ask("GET", f"{U}/properties", same=False),
    Ask("GET", f"{U}/lastMessageId", same=False),
    Ask("GET", f"{U}/examinemessage", same=False),
    Ask("GET", f"{U}/messageid/0", same=False),
    Ask("GET", f"{U}/subscription/s/position/1", same=False),
    Ask("POST", f"{U}/subscription/s/expireMessages/1", same=False),
    Ask("POST", f"{U}/all_subscription/expireMessages/1", same=False),
    Ask("POST", f"{U}/trim", same=False),
    Ask("POST", f"{U}/terminate", same=False),
    Ask("POST", f"{UQ}/terminate/partitions", same=False),
    Ask("DELETE", f"{U}/truncate", same=False),
    Ask("GET", f"{U}/permissions"),
    Ask("POST", f"{U}/permissions/app", '["produce"]'),
    Ask("GET", f"{U}/permissions", same=False, fields=("app",)),
    Ask("DELETE", f"{U}/permissions/app"),
    Ask("GET", f"{U}/permissions"),
    Ask("PUT", f"{U}/unload"),
    Ask("PUT", f"{NO_TOPIC}/unload", same=False),
    Ask("DELETE", f"{UQ}/partitions"),
    Ask("DELETE", f"{UQ}/partitions", same=False),
    Ask("PUT", U),
    Ask("DELETE", U),
    Ask("DELETE", NO_TOPIC, same=False),
]

DYNAMIC: Final = "brokers/configuration"
OF_THE_BROKER: Final = [
    Ask("GET", DYNAMIC, same=False),
    Ask("GET", f"{DYNAMIC}/runtime", same=False, fields=("clusterName", "maxMessageSize", "allowAutoTopicCreation")),
    Ask("POST", f"{DYNAMIC}/allowAutoTopicCreation/true"),  # as it is without
    Ask("GET", f"{DYNAMIC}/values", same=False, fields=("allowAutoTopicCreation",)),
    Ask("DELETE", f"{DYNAMIC}/allowAutoTopicCreation"),
    Ask("POST", f"{DYNAMIC}/clusterName/x", same=False),
    Ask("POST", f"{DYNAMIC}/nothing/x", same=False),
    Ask("DELETE", f"{DYNAMIC}/nothing", same=False),
    Ask("GET", "brokers/internal-configuration", same=False, fields=("metadataStoreUrl",)),
    Ask("GET", "/metrics", same=False),
    Ask("GET", "/metrics/", same=False),
]

OF_TENANTS: Final = [
    Ask("GET", "tenants", same=False),
    Ask("PUT", "tenants/changed", '{"adminRoles":["boss"],"allowedClusters":["standalone"]}'),
    Ask("POST", "tenants/changed", '{"adminRoles":["chief"],"allowedClusters":["standalone"]}'),
    Ask("GET", "tenants/changed"),
    Ask("POST", "tenants/changed", '{"adminRoles":["chief"],"allowedClusters":["nowhere"]}', same=False),
    Ask("POST", "tenants/nobody", '{"adminRoles":[],"allowedClusters":["standalone"]}', same=False),
    Ask("DELETE", "tenants/changed"),
]

_LOOKUP: Final = ("brokerUrl", "httpUrl", "nativeUrl")
LOOKUPS: Final = [
    Ask("PUT", N),
    Ask("PUT", T, "{}"),
    *(
        ask
        for domain in ("persistent", "non-persistent")
        for ask in (
            Ask("GET", f"/lookup/v2/topic/{domain}/{{}}/t", same=False, fields=_LOOKUP[:2]),
            Ask("GET", f"/lookup/v2/topic/{domain}/{{}}/t/bundle", same=False),
            Ask("GET", f"/lookup/v2/topic/{domain}/{NOWHERE}/t", same=False),
            Ask("GET", f"/lookup/v2/topic/{domain}/{NOWHERE}/t/bundle", same=False),
        )
    ),
]

_GRANTS: Final = '[{"topic":"persistent://public/nowhere/t","role":"app","actions":["produce"]}]'
_TAKEN_BACK: Final = '[{"topic":"persistent://public/nowhere/t","role":"app"}]'
_PLACE: Final = '{"ledgerId":0,"entryId":0,"partitionIndex":-1}'
MORE: Final = [
    Ask("PUT", N),
    Ask("PUT", T, "{}"),
    Ask("POST", "namespaces/grantPermissionsOnTopics", _GRANTS, same=False),
    Ask("POST", "namespaces/revokePermissionsOnTopics", _TAKEN_BACK, same=False),
    Ask("POST", "namespaces/grantPermissionsOnTopics", "[]", same=False),
    Ask("POST", f"{N}/permissions/subscription/s", '["app"]'),
    Ask("DELETE", f"{N}/permissions/subscription/s/app", same=False),
    Ask("DELETE", f"{N}/subscriptionAuthMode", same=False),
    Ask("DELETE", f"{N}/replication", same=False),
    Ask("GET", f"{T}/internal-info", same=False, fields=("version", "ledgers", "cursors")),
    Ask("GET", f"{NOTHING}/internal-info", same=False),
    Ask("GET", f"{T}/getMessageIdByIndex?index=0", same=False),
    Ask("GET", f"{T}/getMessageIdByIndex?index=x", same=False),
    Ask("GET", f"{NOTHING}/getMessageIdByIndex?index=0", same=False),
    *(Ask("PUT", f"{place}/compaction", same=False) for place in (NOTHING, T)),
    Ask("PUT", f"{T}/offload", _PLACE, same=False),
    Ask("PUT", f"{Q}/partitions", "2"),
]

REFUSED: Final = {
    "offloadPolicies": '{"managedLedgerOffloadDriver":"filesystem","fileSystemProfilePath":"x","fileSystemURI":"y"}',
    "entryFilters": '{"entryFilterNames":"x"}',
}
SETTING: Final = [
    Ask("PUT", N),
    Ask("PUT", T, "{}"),
    *(Ask("POST", f"{place}/{name}", value, same=False) for place in (N, T) for name, value in REFUSED.items()),
    Ask("POST", f"{N}/encryptionRequired", "true", same=False),
]


@pytest.mark.parametrize(
    "asks",
    [UNSTORED_POLICIES, UNSTORED, OF_THE_BROKER, OF_TENANTS, LOOKUPS, MORE, SETTING],
    ids=["unstored policies", "unstored", "broker", "tenants", "lookups", "more", "setting"],
)
def test_the_other_paths_answer_as_pulsars(both: Both, asks: list[Ask]) -> None:
    """1.1.5, 1.1.8: the same status, and the same JSON where it does not name the broker or its storage."""
    assert compare(both, asks) == []
