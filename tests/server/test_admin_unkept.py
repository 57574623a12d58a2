# SPDX-License-Identifier: Apache-2.0
"""What this broker does not have: asked for, removed, set in vain, and never taken and forgotten."""

from __future__ import annotations

import httpx
import pytest

from broker_core.server.admin.unkept import UNKEPT, Unkept

N = "namespaces"
T = "persistent"
PLACES = [
    pytest.param(level, policy, id=f"{level}-{name}")
    for policy in UNKEPT
    for level, name in ((N, policy.namespace), (T, policy.topic))
    if name
]


def path_of(level: str, policy: Unkept, namespace: str, topic: str = "t") -> str:
    return f"/{N}/{namespace}/{policy.namespace}" if level == N else f"/{T}/{namespace}/{topic}/{policy.topic}"


@pytest.mark.parametrize(("level", "policy"), PLACES)
def test_a_policy_that_is_not_kept_is_refused_and_shown_as_unset(
    http: httpx.Client, namespace: str, level: str, policy: Unkept
) -> None:
    """1.1.5: the same answer before and after; the reason says what there is not."""
    path = path_of(level, policy, namespace)
    unset = http.get(path)
    assert unset.status_code in (200, 204)
    refused = http.request(policy.method, path, json={"some": "value"})
    assert refused.status_code == 405
    assert policy.why in refused.json()["reason"]
    assert http.request(policy.method, path, json=policy.unset).status_code == 204
    assert http.delete(path).status_code == (204 if policy.removable else 405)
    assert http.get(path).content == unset.content


@pytest.mark.parametrize(("level", "policy"), PLACES)
def test_nothing_is_said_of_what_is_not_there(http: httpx.Client, namespace: str, level: str, policy: Unkept) -> None:
    """1.1.5: 404 for a namespace or topic that does not exist, 412 for a partition, as for all policies."""
    assert http.get(path_of(level, policy, "public/nowhere", "nothing")).status_code == 404
    assert http.request(policy.method, path_of(level, policy, "public/nowhere"), json=1).status_code == 404
    if level == T:
        assert http.get(path_of(level, policy, namespace, "nothing")).status_code == 404
        assert http.get(path_of(level, policy, namespace, "q")).status_code in (200, 204)
        assert http.get(path_of(level, policy, namespace, "q-partition-0")).status_code == 412


@pytest.mark.parametrize("place", ["namespaces/{}", "persistent/{}/t"])
def test_the_one_cluster_is_the_only_one(http: httpx.Client, namespace: str, place: str) -> None:
    """1.1.5: nothing is replicated, and to ask for just that is no mistake."""
    path = f"/{place.format(namespace)}/replication"
    assert http.get(path).content == (b'["standalone"]' if place.startswith(N) else b"")
    assert http.post(path, json=["standalone"]).status_code == (200 if place.startswith(N) else 204)
    refused = http.post(path, json=["standalone", "elsewhere"])
    assert refused.status_code == (403 if place.startswith(N) else 412)
    assert "elsewhere" in refused.json()["reason"]
    assert http.delete(path).status_code == 204


def test_what_runs_nowhere_was_not_run(http: httpx.Client, namespace: str) -> None:
    """7.15: asked for its progress the broker says so; to begin it is refused with the reason."""
    path = f"/persistent/{namespace}/t/offload"
    assert http.get(path).json()["status"] == "NOT_RUN"
    assert http.put(path).status_code == 405
    assert http.get(f"/persistent/{namespace}/nothing/offload").status_code == 404


def test_one_broker_has_no_parts(http: httpx.Client) -> None:
    """1.1.5: of the one cluster nothing, of another 404."""
    assert http.get("/clusters/standalone/failureDomains").json() == {}
    assert http.get("/clusters/elsewhere/failureDomains").status_code == 404
