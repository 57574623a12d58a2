# SPDX-License-Identifier: Apache-2.0
"""Every field of the objects that tools read, ours and a real Apache Pulsar's: the same names and the same types.

What is apart is in docs/admin-differences.md, with its reason. A line there that nothing matches any more fails, so
that the list cannot outlive its reasons. Values are the other oracle tests' matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final

import pytest

from broker_core.client import Client
from tests.server.oracle import Both, Side, accepted

pytestmark = pytest.mark.pulsar

OBJECTS: Final = (
    *("namespaces/{}", "namespaces/{}/bundles", "tenants/public", "clusters/standalone", "brokers/leaderBroker"),
    *("brokers/internal-configuration", "brokers/configuration/values"),
    *(f"persistent/{{}}/t/{what}" for what in ("stats", "internalStats", "internal-info")),
    *(f"persistent/{{}}/q/partitioned-{what}" for what in ("stats", "internalStats")),
    *(f"persistent/{{}}/q{what}" for what in ("/partitions", "/internal-info", "-partition-0/stats")),
    *(f"non-persistent/{{}}/n/{what}" for what in ("stats", "internalStats")),
)


def fields(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The dotted name of each field, of a list those of its first element, and the type in JSON's words."""
    yield path, "number" if type(value) in (int, float) else type(value).__name__
    inside = value.items() if isinstance(value, dict) else []
    for name, each in inside:
        yield from fields(each, f"{path}.{name}".strip("."))
    for each in value[:1] if isinstance(value, list) else []:
        yield from fields(each, f"{path}[]")


def lines_apart(path: str, ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """What differs between two objects."""
    return [
        *(f"{path} - {name}" for name in theirs.keys() - ours.keys()),
        *(f"{path} + {name}" for name in ours.keys() - theirs.keys()),
        *(f"{path} ~ {name}" for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]),
    ]


def objects_of(side: Side, namespace: str) -> dict[str, dict[str, str]]:
    """The fields of all OBJECTS while topics of every kind are in use."""
    with side.admin() as http, ExitStack() as used:
        http.put(f"namespaces/{namespace}")
        http.put(f"persistent/{namespace}/q/partitions", json=1)
        client = used.enter_context(Client(side.service_url))
        for topic in ("persistent://{}/t", "persistent://{}/q", "non-persistent://{}/n"):
            name = topic.format(namespace)
            used.enter_context(client.subscribe(name, "s", type="shared"))
            used.enter_context(client.subscribe(name, "k", type="key_shared"))
            used.enter_context(client.subscribe(name, "e"))
            producer = used.enter_context(client.create_producer(name, batching_enabled=False))
            for number in range(3):
                producer.send(b"%d" % number)
        return {path: dict(fields(http.get(path.format(namespace)).json())) for path in OBJECTS}


def test_objects_have_pulsars_fields(both: Both) -> None:
    """1.1.5, 7.15: names and types; what is apart is in the list with its reason, and the list holds nothing else."""
    ours, theirs = (objects_of(side, both.namespace) for side in both.sides)
    found = [line for path in OBJECTS for line in lines_apart(path, ours[path], theirs[path])]
    apart = accepted("Fields")
    assert [line for line in found if not any(listed.fullmatch(line) for listed in apart)] == []
    assert [listed.pattern for listed in apart if not any(listed.fullmatch(line) for line in found)] == []
