# SPDX-License-Identifier: Apache-2.0
"""Namespaces with ``pulsarish``: made, listed, given policies, deleted, against a real broker."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.cli.conftest import Pulsarish

UNSET = [
    {"policy": "maxTopicsPerNamespace", "value": 0},
    {"policy": "schemaCompatibilityStrategy", "value": "UNDEFINED"},
    {"policy": "isAllowAutoUpdateSchema", "value": True},
    {"policy": "schemaValidationEnforced", "value": False},
]
"""Policies of a namespace for which nothing is set: Pulsar tells these."""


@pytest.fixture
def tenant() -> str:
    """A tenant that no other test uses."""
    return f"tenant-{uuid.uuid4().hex[:8]}"


def _objects(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_namespaces_come_and_go(pulsarish: Pulsarish, tenant: str) -> None:
    """1.1.5: a tenant is made only if asked; a namespace with topics stays."""
    none = pulsarish("namespace", "list", tenant)
    assert none.stderr.decode().splitlines() == [
        f'error: tenant "{tenant}" does not exist',
        f"create it with its first namespace: pulsarish namespace create {tenant}/NAME --with-tenant",
    ]
    without = pulsarish("namespace", "create", f"{tenant}/shop")
    assert (without.returncode, b"--with-tenant" in without.stderr) == (3, True)
    for name in ("shop", "archive"):
        made = pulsarish("namespace", "create", f"{tenant}/{name}", "--with-tenant")
        assert _objects(made.stdout) == [{"namespace": f"{tenant}/{name}"}]
    listed = pulsarish("namespace", "list", tenant)
    assert _objects(listed.stdout) == [{"namespace": f"{tenant}/archive"}, {"namespace": f"{tenant}/shop"}]
    assert pulsarish("topic", "create", f"{tenant}/shop/orders").returncode == 0
    used = pulsarish("namespace", "delete", f"{tenant}/shop", "-y")
    assert (used.returncode, b"not empty" in used.stderr) == (1, True)
    assert pulsarish("topic", "delete", f"{tenant}/shop/orders", "-y").returncode == 0
    assert pulsarish("namespace", "delete", f"{tenant}/shop", f"{tenant}/archive", "-y").returncode == 0
    assert _objects(pulsarish("namespace", "list", tenant).stdout) == []


def test_nothing_is_deleted_unasked(pulsarish: Pulsarish, tenant: str) -> None:
    """Without a terminal somebody must have said yes; what does not exist is told with what was meant."""
    pulsarish("namespace", "create", f"{tenant}/shop", "--with-tenant")
    asked = pulsarish("namespace", "delete", f"{tenant}/shop")
    assert (asked.returncode, b"add --yes" in asked.stderr) == (2, True)
    missing = pulsarish("namespace", "delete", f"{tenant}/shopp", "-y")
    assert (missing.returncode, f'did you mean "{tenant}/shop"'.encode() in missing.stderr) == (3, True)
    twice = pulsarish("namespace", "create", f"{tenant}/shop")
    assert (twice.returncode, b"exists already" in twice.stderr) == (9, True)


def test_policies_of_a_namespace_hold_for_its_topics(pulsarish: Pulsarish, tenant: str) -> None:
    """1.1.5, 7.1, 7.2, 7.3: Pulsar's names and JSON; what is taken back is the broker's again."""
    name = f"{tenant}/shop"
    pulsarish("namespace", "create", name, "--with-tenant")
    assert _objects(pulsarish("namespace", "policies", name).stdout) == UNSET
    retention = {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}
    quota = {"destination_storage": {"limitSize": 1000, "policy": "producer_exception"}}
    done = pulsarish(
        *("namespace", "policies", name, "--set", "messageTTL=9", "--set", "deduplication=true"),
        *("--set", f"retention={json.dumps(retention)}", "--set", f"backlogQuota={json.dumps(quota)}"),
    )
    found = {row["policy"]: row["value"] for row in _objects(done.stdout)}
    assert (found["messageTTL"], found["deduplication"], found["retention"]) == (9, True, retention)
    assert found["backlogQuota"]["destination_storage"]["limitSize"] == 1000
    pulsarish("topic", "create", f"{name}/orders")
    applied = _objects(pulsarish("topic", "policies", f"{name}/orders", "--applied").stdout)
    in_force = {row["policy"]: row["value"] for row in applied}
    assert (in_force["messageTTL"], in_force["deduplicationEnabled"], in_force["retention"]) == (9, True, retention)
    taken_back = [part for policy in found if policy != "maxTopicsPerNamespace" for part in ("--unset", policy)]
    assert _objects(pulsarish("namespace", "policies", name, *taken_back).stdout) == UNSET


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("public/default", "--set", "retentoin={}"), 2, b'did you mean "retention"?'),
        (("public/default", "--unset", "deduplicationEnabled"), 2, b'did you mean "deduplication"'),
        (("public/default", "--set", "messageTTL=-1"), 1, b"412"),
        (("public/nowhere",), 3, b"does not exist"),
        (("public",), 2, b"tenant/namespace"),
    ],
)
def test_policies_that_cannot_be(pulsarish: Pulsarish, arguments: tuple[str, ...], code: int, said: bytes) -> None:
    """Nothing is changed, and the error says what is wrong."""
    done = pulsarish("namespace", "policies", *arguments)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
