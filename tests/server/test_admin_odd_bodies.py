# SPDX-License-Identifier: Apache-2.0
"""Every path that takes a body, with JSON that it does not expect: the fault of the client, never of the broker."""

from __future__ import annotations

import re
from typing import Final

import httpx
import pytest

from broker_core.server.admin import app, policies
from broker_core.server.admin.routes import Route

ODD: Final = (
    *("null", "true", "-1", "1.5", "1e400", "9223372036854775808", "-9223372036854775809", "9" * 5000),
    *('"a"', '""', '"\\ud800"', '"\\u0000"', "[]", "{}", "[null]", "[[1]]", '{"": {}}', "NaN", "{", "[1,"),
    "[" * 2000 + "]" * 2000,
    '{"a":' * 2000 + "1" + "}" * 2000,
    '{"ledgerId": 1, "ledgerId": 99999999999999999999, "entryId": 0}',
    '{"ledgerId": 1e18, "entryId": -9223372036854775809}',
    '{"ledgerId": {"ledgerId": 1}, "entryId": [1]}',
    '{"ledgerId": 1, "entryId": 1, "batchIndex": 99999999999999999999, "properties": {"a": {"a": 1}}}',
    '{"partitions": 2, "partitions": "x", "properties": []}',
    '{"limitSize": 1e30, "limitTime": -5, "policy": []}',
    '{"retentionTimeInMinutes": 99999999999999999999, "retentionSizeInMB": {}}',
    '{"backlog_quota_map": {"destination_storage": {"limitSize": "x", "policy": null}}}',
    '{"allowedClusters": [{"a": 1}], "adminRoles": {"a": 1}}',
)
"""No value, the wrong kind at some depth, numbers beyond 64 bits, names that come twice, no JSON at all."""

NAMES: Final = {
    "tenant": "public",
    "namespace": "odd",
    "topic": "t",
    "subscription": "s",
    "cluster": "standalone",
    "name": "defaultNumPartitions",
    "bundle": "0x00000000_0xffffffff",
    "key": "k",
}
"""What stands in a path; other parts of it are numbers."""


def taking_bodies() -> list[tuple[str, str]]:
    """Methods and paths."""
    routes: list[Route] = [*(route for _, some in app.SECTIONS for route in some), *policies.ROUTES]
    named = [
        (method, _path(route)) for route in routes for method in sorted((route.methods or set()) & {"PUT", "POST"})
    ]
    return sorted(set(named))


def _path(route: Route) -> str:
    return re.sub(r"\{(\w+)(:path)?\}", lambda part: NAMES.get(part[1], "1"), route.path)


@pytest.mark.parametrize(("method", "path"), taking_bodies())
def test_an_odd_body_is_never_a_failure_of_the_broker(http: httpx.Client, method: str, path: str) -> None:
    """1.2.2: whatever it is, the answer says what is wrong with it, or it was of no interest."""
    http.put("/namespaces/public/odd")
    http.put("/persistent/public/odd/t/subscription/s")
    for body in ODD:
        answer = http.request(method, path.removeprefix("/admin/v2"), content=body)
        assert answer.status_code < 500, (body[:100], answer.text)
        assert answer.is_success or answer.json()["reason"]
