# SPDX-License-Identifier: Apache-2.0
"""The cluster, what is kept about it, and bundles with their quotas, on this broker and on a real Apache Pulsar."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pytest

from tests.apache_pulsar.start import SHORT_LIVED, ApachePulsar, UnavailableError, running
from tests.server.oracle import Ask, Both, N, compare
from tests.server.test_admin_bundles import DEFAULT, MORE
from tests.server.test_admin_clusters import DOMAIN, ISOLATION

pytestmark = pytest.mark.pulsar

C: Final = "clusters/standalone"
D: Final = f"{C}/failureDomains"
ISOLATED: Final = f"{C}/namespaceIsolationPolicies"
B: Final = "0x00000000_0xffffffff"
QUOTA: Final = f"resource-quotas/{{}}/{B}"

ASKS: Final = [
    Ask("PUT", N, json.dumps({"bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}})),
    Ask("GET", f"{C}/peers"),
    Ask("POST", f"{C}/peers", "[]"),
    Ask("POST", f"{C}/peers", '["elsewhere"]', same=False),
    Ask("GET", "clusters/nowhere/peers", same=False),
    Ask("DELETE", "clusters/nowhere", same=False),
    Ask("POST", "clusters/nowhere", "{}", same=False),
    Ask("GET", D),
    Ask("GET", f"{D}/some", same=False),
    Ask("POST", f"{D}/some", json.dumps(DOMAIN)),
    Ask("GET", D),
    Ask("GET", f"{D}/some"),
    Ask("POST", f"{D}/some", json.dumps(DOMAIN)),
    Ask("POST", f"{D}/some", '"x"', same=False),
    Ask("DELETE", f"{D}/some", same=False),
    Ask("DELETE", f"{D}/some", same=False),
    Ask("GET", f"{D}/some", same=False),
    Ask("GET", ISOLATED, same=False),
    Ask("GET", f"{ISOLATED}/brokers", same=False),
    Ask("GET", f"{ISOLATED}/apart", same=False),
    Ask("POST", f"{ISOLATED}/apart", json.dumps(ISOLATION)),
    Ask("GET", ISOLATED),
    Ask("GET", f"{ISOLATED}/apart"),
    Ask("GET", f"{ISOLATED}/other", same=False),
    Ask("GET", f"{ISOLATED}/brokers", same=False),
    Ask("POST", f"{ISOLATED}/apart", '{"namespaces":[]}', same=False),
    Ask("DELETE", f"{ISOLATED}/apart"),
    Ask("GET", f"{ISOLATED}/apart", same=False),
    Ask("GET", "resource-quotas"),
    Ask("GET", QUOTA),
    Ask("POST", QUOTA, json.dumps(MORE)),
    Ask("GET", QUOTA),
    Ask("POST", QUOTA, '{"memory":-1}', same=False),
    Ask("DELETE", QUOTA),
    Ask("GET", QUOTA),
    Ask("POST", "resource-quotas", json.dumps(MORE)),
    Ask("GET", "resource-quotas"),
    Ask("POST", "resource-quotas", json.dumps(DEFAULT)),
    Ask("GET", f"resource-quotas/public/nowhere/{B}", same=False),
    Ask("GET", "resource-quotas/{}/nonsense", same=False),
    Ask("PUT", f"{N}/nonsense/split", same=False),
    Ask("GET", "broker-stats/allocator-stats/some", same=False),
    Ask("GET", "namespaces/standalone/antiAffinity/apart", same=False),
    Ask("GET", "namespaces/standalone/antiAffinity/apart?tenant=public"),
]


@pytest.fixture
def apache_pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApachePulsar]:
    """One of its own, since all namespaces share the quotas and isolation policies that are changed here."""
    try:
        with running(tmp_path_factory.mktemp("apache") / "pulsar", java_options=SHORT_LIVED) as pulsar:
            yield pulsar
    except UnavailableError as missing:
        pytest.skip(str(missing))


def test_the_cluster_answers_as_a_standalone_apache_pulsar(both: Both) -> None:
    """1.1.5: what is kept about it, bundles and quotas."""
    assert compare(both, ASKS) == []
