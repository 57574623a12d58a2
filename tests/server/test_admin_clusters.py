# SPDX-License-Identifier: Apache-2.0
"""The one cluster: its peers, what is kept about it, and what its one broker serves."""

from __future__ import annotations

from typing import Any, Final

import httpx
import pytest

from broker_core.testing.running_broker import RunningBroker

C: Final = "/clusters/standalone"
DOMAIN: Final = {"brokers": ["one:8080", "two:8080"]}
ISOLATION: Final[dict[str, Any]] = {
    "namespaces": ["public/.*"],
    "primary": ["one.*"],
    "secondary": [],
    "auto_failover_policy": {
        "policy_type": "min_available",
        "parameters": {"min_limit": "1", "usage_threshold": "80"},
    },
}
KEPT: Final = [("failureDomains", DOMAIN), ("namespaceIsolationPolicies", ISOLATION)]


def broker_id(broker: RunningBroker) -> str:
    return broker.http_url.partition("//")[2]


def test_the_one_cluster_cannot_be_changed_and_no_other_be_made(http: httpx.Client) -> None:
    """1.1.5: its addresses are those of the broker; the reason says so."""
    for method, status in (("PUT", 409), ("POST", 405), ("DELETE", 405)):
        assert http.request(method, C, json={"serviceUrl": "http://one:8080"}).status_code == status
    for method, status in (("PUT", 405), ("POST", 404), ("DELETE", 404)):
        answer = http.request(method, "/clusters/elsewhere", json={})
        assert answer.status_code == status
        assert "elsewhere" in answer.json()["reason"]


def test_the_cluster_has_no_peers(http: httpx.Client) -> None:
    """1.1.5: to ask for just that is no mistake."""
    assert http.get(f"{C}/peers").content == b""
    assert http.post(f"{C}/peers", json=[]).status_code == 204
    refused = http.post(f"{C}/peers", json=["elsewhere"])
    assert (refused.status_code, "elsewhere" in refused.json()["reason"]) == (412, True)
    assert http.get("/clusters/elsewhere/peers").status_code == 404


@pytest.mark.parametrize(("kind", "value"), KEPT)
def test_what_is_kept_about_the_cluster_is_shown_and_forgotten(
    http: httpx.Client, kind: str, value: dict[str, Any]
) -> None:
    """1.1.5: by its name, which may be set again; what cannot be read, or is not there, is refused."""
    path = f"{C}/{kind}"
    assert http.post(f"{path}/some", json=value).status_code == 204
    assert http.post(f"{path}/others", json=value).status_code == 204
    assert http.get(path).json() == {"some": value, "others": value}
    assert http.get(f"{path}/some").json() == value
    bad: object
    for bad in ({"brokers": 7}, {"namespaces": []}, "x", None):
        assert http.post(f"{path}/bad", json=bad).status_code == 400
    assert http.get(f"{path}/bad").status_code == 404
    assert http.get(f"/clusters/elsewhere/{kind}").status_code == 404
    assert http.post(f"/clusters/elsewhere/{kind}/some", json=value).status_code == 404
    for name in ("some", "others"):
        assert http.delete(f"{path}/{name}").status_code == (200 if kind == "failureDomains" else 204)
        assert http.get(f"{path}/{name}").status_code == 404


def test_what_is_kept_about_the_cluster_outlives_the_broker(broker: RunningBroker, http: httpx.Client) -> None:
    """1.1.5: as policies do."""
    assert http.post(f"{C}/failureDomains/kept", json=DOMAIN).status_code == 204
    broker.restart()
    with httpx.Client(base_url=f"{broker.http_url}/admin/v2") as again:
        assert again.get(f"{C}/failureDomains/kept").json() == DOMAIN
        assert again.delete(f"{C}/failureDomains/kept").status_code == 200


def test_isolation_policies_have_no_effect_on_the_broker(broker: RunningBroker, http: httpx.Client) -> None:
    """1.1.5: without any there is nothing (404), with some no broker is named by one."""
    path = f"{C}/namespaceIsolationPolicies"
    assert http.get(path).status_code == 404
    assert http.get(f"{path}/brokers").status_code == 404
    assert http.post(f"{path}/apart", json=ISOLATION).status_code == 204
    (found,) = http.get(f"{path}/brokers").json()
    assert found == {
        "brokerName": broker_id(broker),
        "policyName": "",
        "isPrimary": False,
        "namespaceRegex": [],
    }
    assert http.get(f"{path}/brokers/{broker_id(broker)}").json() == found
    assert http.get(f"{path}/brokers/elsewhere:1").status_code == 404
    assert http.delete(f"{path}/apart").status_code == 204


def test_the_broker_serves_the_bundle_of_every_namespace(broker: RunningBroker, http: httpx.Client) -> None:
    """1.1.5: under its own name only."""
    assert http.put("/namespaces/public/owned").status_code == 204
    found = http.get(f"/brokers/standalone/{broker_id(broker)}/ownedNamespaces").json()
    owned = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    assert found["public/owned/0x00000000_0xffffffff"] == owned
    assert found["public/default/0x00000000_0xffffffff"] == owned
    assert http.get("/brokers/standalone/elsewhere:1/ownedNamespaces").status_code == 404
    assert http.get(f"/brokers/elsewhere/{broker_id(broker)}/ownedNamespaces").status_code == 404


def test_namespaces_of_an_anti_affinity_group_are_found(http: httpx.Client) -> None:
    """1.1.5: those of one tenant, which must be named."""
    path = "/namespaces/standalone/antiAffinity/apart"
    assert http.put("/namespaces/public/grouped").status_code == 204
    assert http.post("/namespaces/public/grouped/antiAffinity", json="apart").status_code == 204
    assert http.get(f"{path}?tenant=public").json() == ["public/grouped"]
    assert http.get(path).status_code == 400
    assert http.get(f"{path}?tenant=nobody").status_code == 404
    assert http.get("/namespaces/elsewhere/antiAffinity/apart?tenant=public").status_code == 404
