# SPDX-License-Identifier: Apache-2.0
"""The one bundle of a namespace: it is not split, it goes with its namespace, and it may have a resource quota."""

from __future__ import annotations

import uuid
from typing import Final

import httpx
import pytest

B: Final = "0x00000000_0xffffffff"
DEFAULT: Final = {
    "msgRateIn": 40.0,
    "msgRateOut": 120.0,
    "bandwidthIn": 100_000.0,
    "bandwidthOut": 300_000.0,
    "memory": 80.0,
    "dynamic": True,
}
MORE: Final = {**DEFAULT, "memory": 90.5}


@pytest.fixture
def namespace(http: httpx.Client) -> str:
    """A namespace of the test's own."""
    name = f"public/n{uuid.uuid4().hex[:8]}"
    assert http.put(f"/namespaces/{name}").status_code == 204
    return name


def test_the_one_bundle_is_not_split(http: httpx.Client, namespace: str) -> None:
    """1.1.5: there is no second broker that could have a part of it."""
    answer = http.put(f"/namespaces/{namespace}/{B}/split?unload=false")
    assert (answer.status_code, "one broker" in answer.json()["reason"]) == (405, True)
    assert http.put(f"/namespaces/{namespace}/0x00000000_0x40000000/split").status_code == 412
    assert http.put(f"/namespaces/public/nowhere/{B}/split").status_code == 404


def test_a_bundle_with_topics_is_not_deleted(http: httpx.Client, namespace: str) -> None:
    """1.1.5: without any there is nothing to do, and the namespace stays as it is."""
    assert http.put(f"/persistent/{namespace}/t").status_code == 204
    assert http.delete(f"/namespaces/{namespace}/{B}").status_code == 409
    assert http.delete(f"/persistent/{namespace}/t").status_code == 204
    assert http.delete(f"/namespaces/{namespace}/{B}").status_code == 204
    assert http.get(f"/namespaces/{namespace}/bundles").json()["numBundles"] == 1
    assert http.delete(f"/namespaces/{namespace}/0x00000000_0x40000000").status_code == 412
    assert http.delete(f"/namespaces/{namespace}/retention").status_code == 204
    assert http.delete(f"/namespaces/{namespace}/nonsense").status_code == 404


def test_resource_quotas_are_kept(http: httpx.Client, namespace: str) -> None:
    """1.1.5: that of a bundle goes before the default; neither is in the object of the namespace."""
    path = f"/resource-quotas/{namespace}/{B}"
    assert http.get("/resource-quotas").json() == DEFAULT
    assert http.get(path).json() == DEFAULT
    assert http.post("/resource-quotas", json=MORE).status_code == 204
    assert http.get(path).json() == MORE
    assert http.post(path, json=DEFAULT).status_code == 204
    assert http.get(path).json() == DEFAULT
    assert http.get("/resource-quotas").json() == MORE
    assert "resourceQuota" not in http.get(f"/namespaces/{namespace}").json()
    assert http.delete(path).status_code == 204
    assert http.get(path).json() == MORE
    assert http.post("/resource-quotas", json=DEFAULT).status_code == 204


def test_resource_quotas_that_cannot_be_are_refused(http: httpx.Client, namespace: str) -> None:
    """1.1.5: and those of bundles and namespaces that there are not."""
    path = f"/resource-quotas/{namespace}/{B}"
    for bad in ({"memory": -1}, {"memory": "much"}, {"cpu": 1}, None):
        assert http.post(path, json=bad).status_code == 400
        assert http.post("/resource-quotas", json=bad).status_code == 400
    assert http.get(f"/resource-quotas/{namespace}/0x00000000_0x40000000").status_code == 412
    assert http.get(f"/resource-quotas/public/nowhere/{B}").status_code == 404


def test_go_asks_for_nothing_with_empty_text(http: httpx.Client) -> None:
    """1.1.5: it sends the whole object of a namespace for the number of its bundles alone."""
    name = f"public/n{uuid.uuid4().hex[:8]}"
    nothing = dict.fromkeys(("schema_compatibility_strategy", "subscription_auth_mode", "antiAffinityGroup"), "")
    asked = {"bundles": {"boundaries": None, "numBundles": 4}, "replication_clusters": None, **nothing}
    assert http.put(f"/namespaces/{name}", json=asked).status_code == 204
    assert http.get(f"/namespaces/{name}").json()["subscription_auth_mode"] == "None"
