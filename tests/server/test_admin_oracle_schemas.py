# SPDX-License-Identifier: Apache-2.0
"""Schemas and their policies over the admin REST, on this broker and on a real Apache Pulsar."""

from __future__ import annotations

from typing import Final

import pytest

from tests.server.oracle import NOTHING, Ask, Both, N, T, compare

pytestmark = pytest.mark.pulsar

S: Final = "schemas/{}/t"
U: Final = "non-persistent/{}/u"
SHOWN: Final = ("version", "type", "timestamp", "data", "properties")


TEXT: Final = '{"type":"STRING","schema":"","properties":{}}'


def _policy(place: str, name: str, method: str, good: str, bad: str) -> list[Ask]:
    path = f"{place}/{name}"
    missing = ("namespaces/public/nowhere",) if place == N else (NOTHING, "persistent/public/nowhere/t")
    return [
        Ask("GET", path),
        Ask(method, path, good, same=False),
        Ask("GET", path),
        Ask(method, path, bad, same=False),
        *(Ask(method, f"{each}/{name}", good, same=False) for each in missing),
        *(Ask("GET", f"{each}/{name}", same=False) for each in missing),
        Ask("DELETE", path, same=False),
    ]


POLICIES: Final = [
    Ask("PUT", N),
    Ask("PUT", T, "{}"),
    *_policy(N, "schemaValidationEnforced", "POST", "true", "7"),
    *_policy(T, "schemaValidationEnforced", "POST", "true", "7"),
    *_policy(N, "schemaCompatibilityStrategy", "PUT", '"FULL"', '"SOME"'),
    *_policy(T, "schemaCompatibilityStrategy", "PUT", '"FULL"', '"SOME"'),
    *_policy(N, "schemaAutoUpdateCompatibilityStrategy", "PUT", '"Backward"', '"Some"'),
    *_policy(N, "isAllowAutoUpdateSchema", "POST", "false", '"perhaps"'),
    Ask("PUT", U, "{}"),
    *_policy(U, "schemaValidationEnforced", "POST", "true", "7"),
    *_policy(U, "schemaCompatibilityStrategy", "PUT", '"FULL"', '"SOME"'),
    Ask("GET", f"{T}/schemaValidationEnforced?applied=true"),
    Ask("GET", f"{T}/schemaCompatibilityStrategy?applied=true"),
]

SCHEMAS: Final = [
    Ask("PUT", N),
    Ask("GET", f"{S}/schema", same=False),
    Ask("GET", f"{S}/schemas"),
    Ask("POST", f"{S}/version", TEXT),
    Ask("POST", f"{S}/schema", TEXT),
    Ask("POST", f"{S}/schema", TEXT),
    Ask("GET", f"{S}/schema", same=False, fields=SHOWN),
    Ask("GET", f"{S}/schema/0", same=False, fields=SHOWN),
    Ask("GET", f"{S}/schema/1", same=False),
    Ask("GET", f"{S}/schema/one", same=False),
    Ask("GET", f"{S}/schemas", same=False, fields=("getSchemaResponses",)),
    Ask("GET", f"{S}/metadata", same=False, fields=("info", "index")),
    Ask("POST", f"{S}/version", TEXT),
    Ask("POST", f"{S}/compatibility", TEXT),
    Ask("POST", f"{S}/schema", '{"type":"INT8","schema":"","properties":{}}', same=False),
    Ask("POST", f"{S}/schema", '{"type":"INT8","schema":"x","properties":{}}', same=False),
    Ask("POST", f"{S}/schema", '{"type":"AVRO","schema":"x","properties":{}}', same=False),
    Ask("POST", f"{S}/compatibility", '{"type":"INT8","schema":"","properties":{}}', same=False),
    Ask("DELETE", f"{S}/schema"),
    Ask("GET", f"{S}/schema", same=False),
    Ask("GET", f"{S}/schema/0", same=False),
    Ask("GET", f"{S}/schemas"),
    Ask("POST", f"{S}/schema", TEXT),
    Ask("DELETE", f"{S}/schema?force=true"),
    Ask("POST", f"{S}/schema", TEXT),
    Ask("POST", "schemas/public/nowhere/t/schema", TEXT, same=False),
]


def test_policies_of_schemas_answer_alike(both: Both) -> None:
    """10.7, 10.13, 10.14: set, shown, refused and removed with the same answers."""
    assert compare(both, POLICIES) == []


def test_schemas_answer_alike(both: Both) -> None:
    """10.19, 10.11: added, found, shown, asked about and deleted."""
    assert compare(both, SCHEMAS) == []
