# SPDX-License-Identifier: Apache-2.0
"""Policies without effect here, set, shown and removed on this broker and on a real Apache Pulsar."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from broker_core.server.admin.kept import KEPT, Kept
from tests.server.oracle import NOTHING, Ask, Both, N, T, compare
from tests.server.test_admin_kept import VALUES

pytestmark = pytest.mark.pulsar

PLACES: Final = [
    (place, name, policy) for policy in KEPT for place, name in ((N, policy.namespace), (T, policy.topic)) if name
]
ONE_BOOKIE: Final = {
    **dict.fromkeys(("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum"), 1),
    "managedLedgerMaxMarkDeleteRate": 0.0,
}
"""The real one has no more bookies than that."""


def _values(policy: Kept) -> tuple[str, str]:
    good: Any
    good, bad = VALUES.get(policy.field, (7, "many"))
    return json.dumps(ONE_BOOKIE if policy.field == "persistence" else good), json.dumps(bad)


def _story(place: str, name: str, policy: Kept) -> list[Ask]:
    good, bad = _values(policy)
    path = f"{place}/{name}"
    missing = ("namespaces/public/nowhere",) if place == N else (NOTHING, "persistent/public/nowhere/t")
    return [
        Ask("GET", path),
        Ask(policy.method, path, good, same=False),
        Ask("GET", path, same=policy.field != "antiAffinityGroup"),
        Ask(policy.method, path, bad, same=False),
        *(Ask(policy.method, f"{each}/{name}", good, same=False) for each in missing),
        *(Ask("GET", f"{each}/{name}", same=False) for each in missing),
        Ask("DELETE", path, same=False),
    ]


ASKS: Final = [
    Ask("PUT", N),
    Ask("PUT", T, "{}"),
    *(ask for place, name, policy in PLACES for ask in _story(place, name, policy)),
    *(Ask("GET", f"{T}/{name}?applied=true") for place, name, _ in PLACES if place == T),
    Ask("POST", f"{T}/replication", '["standalone"]'),
    Ask("GET", f"{T}/replication"),
    Ask("DELETE", f"{T}/replication"),
    Ask("GET", f"{T}/replication"),
]


INACTIVE: Final = (
    '{"inactiveTopicDeleteMode":"delete_when_subscriptions_caught_up","maxInactiveDurationSeconds":600,'
    '"deleteWhileInactive":true}'
)
SUBSCRIBING: Final = '{"subscribeThrottlingRatePerConsumer":10,"ratePeriodInSecond":60}'
WITH_EFFECT: Final = [
    Ask("PUT", N),
    Ask("PUT", T, "{}"),
    *(
        ask
        for name, value in (("inactiveTopicPolicies", INACTIVE), ("subscribeRate", SUBSCRIBING))
        for ask in (
            *(Ask("GET", f"{place}/{name}") for place in (N, T)),
            Ask("GET", f"{T}/{name}?applied=true"),
            Ask("POST", f"{N}/{name}", value, same=False),
            Ask("GET", f"{N}/{name}"),
            Ask("GET", f"{T}/{name}?applied=true"),
            Ask("POST", f"{T}/{name}", value, same=False),
            Ask("GET", f"{T}/{name}"),
            *(Ask("DELETE", f"{place}/{name}", same=False) for place in (T, N)),
            *(Ask("GET", f"{place}/{name}") for place in (N, T)),
        )
    ),
]


def test_unused_topics_and_the_rate_of_subscribing_answer_alike(both: Both) -> None:
    """7.6, 7.16: unset, set for a namespace and a topic, in force, and removed."""
    assert compare(both, WITH_EFFECT) == []


def test_policies_without_effect_are_kept_as_on_apache_pulsar(both: Both) -> None:
    """1.1.5: set, shown, refused and removed with the same answers."""
    assert compare(both, ASKS) == []
