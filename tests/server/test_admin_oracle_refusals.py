# SPDX-License-Identifier: Apache-2.0
"""Policies that cannot be set or read, on our broker and on a real Apache Pulsar: the same status, and a reason.

Every policy at every level that has it: values out of bounds and of another kind, and places that do not exist. Pulsar
says its reasons in words of Java here and there, so that only ours are looked at: each names the value or the place.
"""

from __future__ import annotations

from typing import Any, Final

import httpx
import pytest

from broker_core.base.policies import POLICIES, AutoTopicCreation, DelayedDelivery, Policy, Retention
from tests.server.oracle import Ask, Both, answer_to, compare

pytestmark = pytest.mark.pulsar

N: Final = "namespaces/{}"
T: Final = "persistent/{}/t"
PARTITION: Final = "persistent/{}/q-partition-0"
NO_PLACES: Final = {
    "N": ("namespaces/public/nowhere", "namespaces/nobody/nowhere"),
    "T": ("persistent/{}/missing", "persistent/public/nowhere/t", "persistent/nobody/nowhere/t", PARTITION),
}

GOOD: Final[dict[Any, str]] = {
    int: "3",
    bool: "true",
    Retention: '{"retentionTimeInMinutes":10,"retentionSizeInMB":20}',
    AutoTopicCreation: '{"allowAutoTopicCreation":true,"topicType":"non-partitioned"}',
    DelayedDelivery: '{"active":true,"tickTime":500}',
}
BAD: Final[dict[Any, tuple[str, ...]]] = {
    int: ("-1", "-2", '"x"', "{}"),
    bool: ('"x"', "{}"),
    Retention: (
        '{"retentionTimeInMinutes":0,"retentionSizeInMB":5}',
        '{"retentionTimeInMinutes":-2,"retentionSizeInMB":5}',
        "[1]",
        '"x"',
    ),
    AutoTopicCreation: (
        '{"allowAutoTopicCreation":true}',
        '{"allowAutoTopicCreation":true,"topicType":"strange"}',
        '{"allowAutoTopicCreation":false,"topicType":"strange"}',
        '{"allowAutoTopicCreation":false,"topicType":"partitioned"}',
        '{"allowAutoTopicCreation":false,"defaultNumPartitions":-1}',
        '{"allowAutoTopicCreation":true,"topicType":"partitioned"}',
        '{"allowAutoTopicCreation":true,"topicType":"partitioned","defaultNumPartitions":-1}',
        '{"allowAutoTopicCreation":true,"topicType":"non-partitioned","defaultNumPartitions":2}',
        "[1]",
    ),
}
STRANGE: Final = ("[1]", '"x"', "7")
"""For every other kind, all of which are objects or lists of texts."""

QUOTA: Final = '{"limitSize":10485760,"policy":"producer_request_hold"}'
SMALL: Final = '{"retentionTimeInMinutes":10,"retentionSizeInMB":1}'
QUOTAS: Final = ('{"limitSize":1}', '{"limitSize":1,"policy":"strange"}', "[1]", "{}")


OURS_TO_REMOVE: Final = "schemaValidationEnforced"
"""The policy that Pulsar has no DELETE for, and we have."""


def _bad(policy: Policy) -> tuple[str, ...]:
    if policy.field == "subscription_types_enabled":
        return ('"x"', "7")
    return BAD.get(policy.kind, STRANGE)


def _of_policy(policy: Policy, level: str) -> list[Ask]:
    name = policy.path(level)
    place = N if level == "N" else T
    good = GOOD.get(policy.kind, '["Shared"]' if policy.field == "subscription_types_enabled" else "{}")
    methods = ("GET",) if name == OURS_TO_REMOVE else ("GET", "DELETE")
    absent = [Ask(method, f"{each}/{name}", same=False) for each in NO_PLACES[level] for method in methods]
    return [
        *(Ask("POST", f"{place}/{name}", value, same=False) for value in _bad(policy)),
        *(Ask("POST", f"{each}/{name}", good, same=False) for each in NO_PLACES[level]),
        *absent,
    ]


def _of_quotas(level: str) -> list[Ask]:
    place = N if level == "N" else T
    return [
        *(Ask("POST", f"{place}/backlogQuota", value, same=False) for value in QUOTAS),
        *(Ask(method, f"{place}/backlogQuota?backlogQuotaType=strange", same=False) for method in ("POST", "DELETE")),
        *(Ask("GET", f"{each}/backlogQuotaMap", same=False) for each in NO_PLACES[level]),
        *(Ask("POST", f"{each}/backlogQuota", QUOTA, same=False) for each in NO_PLACES[level]),
        *(Ask("DELETE", f"{each}/backlogQuota", same=False) for each in NO_PLACES[level]),
        Ask("POST", f"{place}/retention", SMALL),
        Ask("POST", f"{place}/backlogQuota", QUOTA, same=False),
        Ask("DELETE", f"{place}/retention"),
        Ask("POST", f"{place}/backlogQuota", QUOTA),
        Ask("POST", f"{place}/retention", SMALL, same=False),
        Ask("DELETE", f"{place}/backlogQuota"),
    ]


MADE: Final = [Ask("PUT", N), Ask("PUT", T, "{}"), Ask("PUT", "persistent/{}/q/partitions", "2")]
ASKS: Final = [
    *(ask for policy in POLICIES if policy.path("N") for ask in _of_policy(policy, "N")),
    *(ask for policy in POLICIES if policy.path("T") for ask in _of_policy(policy, "T")),
    *(ask for level in ("N", "T") for ask in _of_quotas(level)),
    *(Ask("POST", f"{each}/messageTTL?messageTTL=-7", same=False) for each in (T, *NO_PLACES["T"])),
    *(Ask(method, f"{each}/messageTTL", same=False) for each in NO_PLACES["T"] for method in ("GET", "DELETE")),
]


@pytest.fixture
def refusing(both: Both) -> Both:
    """A topic, and a partitioned one, in a namespace of their own."""
    assert compare(both, MADE) == []
    return both


def test_what_cannot_be_set_is_refused_as_pulsars(refusing: Both) -> None:
    """1.1.5, 7.1: the status of every refusal that the paths of policies know."""
    assert compare(refusing, ASKS) == []


def test_our_refusals_name_what_was_wrong(refusing: Both) -> None:
    """1.1.5: the reason has the value or the place in it."""
    vague = []
    with httpx.Client(base_url=f"{refusing.ours.http_url}/admin/v2/", timeout=120) as ours:
        for ask in ASKS:
            status, said = answer_to(ours, ask, refusing.namespace)
            if status >= 400 and len(said["reason"].split()) < 4:
                vague.append((ask, said))
    assert vague == []
