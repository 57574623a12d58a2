# SPDX-License-Identifier: Apache-2.0
"""Grants, made, shown and taken back on our broker and on a real Apache Pulsar."""

from __future__ import annotations

from typing import Final

import pytest

from tests.server.oracle import Ask, Both, N, Q, T, compare

pytestmark = pytest.mark.pulsar

_SUBSCRIPTION: Final = f"{N}/permissions/subscription"

ASKS: Final = [
    Ask("PUT", N),
    Ask("PUT", T, "{}"),
    Ask("PUT", f"{Q}/partitions", "2"),
    *(Ask("GET", f"{place}/permissions") for place in (N, T, Q)),
    Ask("POST", f"{N}/permissions/app", '["produce"]'),
    Ask("GET", f"{N}/permissions"),
    Ask("POST", f"{N}/permissions/app", '["consume"]'),
    Ask("GET", f"{N}/permissions"),
    *(Ask("POST", f"{place}/permissions/app", '["produce"]') for place in (T, Q)),
    Ask("POST", f"{T}/permissions/job", '["consume"]'),
    Ask("GET", f"{T}/permissions", same=False, fields=("app", "job")),
    Ask("GET", f"{Q}-partition-1/permissions", same=False, fields=("app",)),
    Ask("DELETE", f"{T}/permissions/job"),
    Ask("DELETE", f"{T}/permissions/job", same=False),
    Ask("GET", f"{T}/permissions", same=False, fields=("app",)),
    Ask("DELETE", f"{N}/permissions/app"),
    Ask("DELETE", f"{N}/permissions/app"),
    Ask("GET", f"{N}/permissions"),
    Ask("POST", f"{N}/permissions/app", '["fly"]', same=False),
    Ask("GET", _SUBSCRIPTION),
    Ask("POST", f"{_SUBSCRIPTION}/s", '["app"]'),
    Ask("GET", _SUBSCRIPTION),
    Ask("DELETE", f"{N}/permissions/s/app"),
    Ask("DELETE", f"{N}/permissions/nothing/app", same=False),
    Ask("GET", f"{N}/subscriptionAuthMode"),
    Ask("POST", f"{N}/subscriptionAuthMode", '"Prefix"'),
    Ask("GET", f"{N}/subscriptionAuthMode"),
    *(Ask("GET", f"namespaces/public/nowhere/{what}", same=False) for what in ("permissions", "subscriptionAuthMode")),
    Ask("POST", "namespaces/public/nowhere/permissions/app", '["produce"]', same=False),
    Ask("GET", "persistent/public/nowhere/t/permissions", same=False),
]


def test_grants_are_kept_and_shown_as_by_apache_pulsar(both: Both) -> None:
    """1.1.5: with the same statuses and the same JSON."""
    assert compare(both, ASKS) == []
