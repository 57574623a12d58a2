# SPDX-License-Identifier: Apache-2.0
"""Policies that have no effect here: kept and shown, checked, in the object of their namespace, removed."""

from __future__ import annotations

import uuid
from typing import Any, Final

import httpx
import pytest

from broker_core.server.admin.kept import KEPT, Kept

N = "namespaces"
T = "persistent"
PLACES = [
    pytest.param(level, policy, id=f"{level}-{name}")
    for policy in KEPT
    for level, name in ((N, policy.namespace), (T, policy.topic))
    if name
]
PERSISTENCE: Final = {
    "bookkeeperEnsemble": 3,
    "bookkeeperWriteQuorum": 2,
    "bookkeeperAckQuorum": 1,
    "managedLedgerMaxMarkDeleteRate": 0.5,
}
RATE: Final = {
    "dispatchThrottlingRateInMsg": 5,
    "dispatchThrottlingRateInByte": 0,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
VALUES: Final[dict[str, tuple[Any, Any]]] = {
    "persistence": (PERSISTENCE, {**PERSISTENCE, "bookkeeperAckQuorum": 3}),
    "bookieAffinity": (
        {"bookkeeperAffinityGroupPrimary": "a"},
        {"group": "a"},
    ),
    "replicatorDispatchRate": (RATE, {**RATE, "ratePeriodInSecond": 0}),
    "antiAffinityGroup": ("apart", "x" * 2000),
}
"""A good and a bad value of those that are no numbers."""


def path_of(level: str, policy: Kept, namespace: str, topic: str = "t") -> str:
    return f"/{N}/{namespace}/{policy.namespace}" if level == N else f"/{T}/{namespace}/{topic}/{policy.topic}"


@pytest.mark.parametrize(("level", "policy"), PLACES)
def test_a_policy_without_effect_is_set_read_refused_and_removed(
    http: httpx.Client, namespace: str, level: str, policy: Kept
) -> None:
    """1.1.5: as those that have one; a topic is asked with ?applied=true for what its namespace says."""
    path = path_of(level, policy, namespace)
    good, bad = VALUES.get(policy.field, (7, "many"))
    unset = http.get(path)
    assert http.request(policy.method, path, json=good).status_code == 204
    shown = http.get(path)
    assert (shown.text if policy.field == "antiAffinityGroup" else shown.json()) == good
    refused = http.request(policy.method, path, json=bad)
    assert refused.status_code in (400, 412)
    assert refused.json()["reason"]
    assert http.get(path).content == shown.content
    assert http.request(policy.method, path).status_code == 204
    assert http.get(path).content == unset.content
    assert http.request(policy.method, path, json=good).status_code == 204
    assert http.delete(path).status_code == 204
    assert http.get(path).content == unset.content


@pytest.mark.parametrize(("level", "policy"), PLACES)
def test_nothing_is_kept_for_what_is_not_there(http: httpx.Client, namespace: str, level: str, policy: Kept) -> None:
    """1.1.5: 404 for a namespace or topic that does not exist, 412 for a partition, as for all policies."""
    good, _ = VALUES.get(policy.field, (7, None))
    for method, body in (("GET", None), (policy.method, good), ("DELETE", None)):
        assert http.request(method, path_of(level, policy, "public/nowhere", "x"), json=body).status_code == 404
        if level == T:
            assert http.request(method, path_of(level, policy, namespace, "x"), json=body).status_code == 404
            partition = path_of(level, policy, namespace, "q-partition-0")
            assert http.request(method, partition, json=body).status_code == 412


def test_a_topic_shows_what_its_namespace_says_if_it_is_asked(http: httpx.Client, namespace: str) -> None:
    """1.1.5: with ?applied=true, and its own value before that."""
    topic = f"/{T}/{namespace}/t/compactionThreshold"
    assert http.put(f"/{N}/{namespace}/compactionThreshold", json=100).status_code == 204
    assert http.get(topic).content == b""
    assert http.get(f"{topic}?applied=true").json() == 100
    assert http.post(topic, json=50).status_code == 204
    assert http.get(f"{topic}?applied=true").json() == 50


def test_the_object_of_a_namespace_has_them(http: httpx.Client) -> None:
    """1.1.5: created with, and shown, but for what Pulsar keeps elsewhere and what asks for nothing."""
    name = f"public/n{uuid.uuid4().hex[:8]}"
    given = {
        "persistence": PERSISTENCE,
        "offload_threshold": 1000,
        "compaction_threshold": 0,
        "replicatorDispatchRate": {"standalone": RATE},
        "schema_compatibility_strategy": "FULL",
        "schema_auto_update_compatibility_strategy": "Full",
        "is_allow_auto_update_schema": True,
        "antiAffinityGroup": "apart",
    }
    assert http.put(f"/{N}/{name}", json=given).status_code == 204
    shown = http.get(f"/{N}/{name}").json()
    del given["antiAffinityGroup"]
    assert {field: shown[field] for field in given} == given
    assert "antiAffinityGroup" not in shown
    assert (shown["offload_threshold_in_seconds"], shown["schema_validation_enforced"]) == (-1, False)
    assert http.get(f"/{N}/{name}/antiAffinity").text == "apart"
    again = f"public/n{uuid.uuid4().hex[:8]}"
    assert http.put(f"/{N}/{again}", json={"compaction_threshold": -1}).status_code == 412
    assert http.put(f"/{N}/{again}", json={"persistence": {"bookkeeperEnsemble": 0}}).status_code == 400
    assert http.put(f"/{N}/{again}", json={"kept": {"offload_threshold": 1}}).status_code == 400


def test_pulsars_own_client_names_a_group_without_quotes(http: httpx.Client, namespace: str) -> None:
    """1.1.5: it sends the text of an anti-affinity group as it is, though it says that this is JSON."""
    path = f"/{N}/{namespace}/antiAffinity"
    headers = {"Content-Type": "application/json"}
    assert http.post(path, content=b"apart", headers=headers).status_code == 204
    assert http.get(path).text == "apart"


def test_a_topic_keeps_its_replication_clusters(http: httpx.Client, namespace: str) -> None:
    """1.1.5: which can only be the one that there is."""
    path = f"/{T}/{namespace}/t/replication"
    assert http.get(path).content == b""
    assert http.get(f"{path}?applied=true").json() == ["standalone"]
    assert http.post(path, json=["standalone"]).status_code == 204
    assert http.get(path).json() == ["standalone"]
    assert http.delete(path).status_code == 204
    assert http.get(path).content == b""


def test_encryption_that_is_not_required_is_taken_as_text(http: httpx.Client, namespace: str) -> None:
    """1.1.5: Go's admin library sends a truth as text; what holds anyway is no lie."""
    path = f"/{N}/{namespace}/encryptionRequired"
    assert http.post(path, json="false").status_code == 204
    assert http.post(path, json="true").status_code == 405
