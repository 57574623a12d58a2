# SPDX-License-Identifier: Apache-2.0
"""What this broker does not have, asked of it and of a real Apache Pulsar where nobody has set anything: the same."""

from __future__ import annotations

from typing import Final

import pytest

from broker_core.server.admin.unkept import UNKEPT
from tests.server.oracle import NOTHING, Ask, Both, N, T, compare

pytestmark = pytest.mark.pulsar

PLACES: Final = [
    (place, name, policy) for policy in UNKEPT for place, name in ((N, policy.namespace), (T, policy.topic)) if name
]
ASKS: Final = [
    Ask("PUT", N),
    Ask("PUT", T, "{}"),
    *(Ask("GET", f"{place}/{name}") for place, name, _ in PLACES),
    *(Ask("GET", f"{T}/{name}?applied=true") for place, name, _ in PLACES if place == T),
    *(
        Ask("GET", f"{missing}/{name}", same=False)
        for place, name, _ in PLACES
        for missing in (("namespaces/public/nowhere",) if place == N else (NOTHING, "persistent/public/nowhere/t"))
    ),
    *(Ask("DELETE", f"{place}/{name}", same=False) for place, name, policy in PLACES if policy.removable),
    *(Ask("GET", f"{place}/replication") for place in (N, T)),
    *(Ask("POST", f"{place}/replication", '["standalone"]') for place in (N, T)),
    *(Ask("POST", f"{place}/replication", '["nowhere"]', same=False) for place in (N, T)),
    Ask("GET", f"{T}/offload", same=False, fields=("status", "lastError")),
    Ask("GET", f"{NOTHING}/offload", same=False),
    *(
        Ask("GET", f"clusters/{cluster}/{what}", same=cluster == "standalone")
        for cluster in ("standalone", "nowhere")
        for what in ("failureDomains",)
    ),
]


def test_what_is_not_kept_answers_as_where_nobody_has_set_it(both: Both) -> None:
    """1.1.5: tools read these before they know whether there is such a thing."""
    assert compare(both, ASKS) == []
