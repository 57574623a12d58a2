# SPDX-License-Identifier: Apache-2.0
"""Every path with a body, a query or a part that it does not expect: the fault of the client, never of the broker."""

from __future__ import annotations

import gzip
import json
import re
from contextlib import closing
from http.client import HTTPConnection
from typing import Final

import httpx
import pytest

from broker_core.server.admin import app, policies
from broker_core.server.admin.requests import Route

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


NOT_UTF8: Final = (
    *(b'"\xff"', b'{"a":"\xff"}', b'{"\xff":1}', b'["\xff"]', b'"\xed\xa0\x80"', b'"\xc0\xaf"', b'"\xf4\x90\x80\x80"'),
    *('{"a":"é"}'.encode(encoding) for encoding in ("latin-1", "utf-16", "utf-16-le", "utf-32", "cp1252")),
    *(b"\xff", b"\xff\xfe{}", gzip.compress(b"{}", mtime=0)),
)
"""JSON in another encoding, halves of surrogates, overlong forms, bytes of no encoding, and what is compressed."""

NO_TEXT: Final = ("%ff", "a%C3", "%ed%a0%80", "%", "%zz")
"""Neither UTF-8 nor percent-encoded."""


def all_routes() -> list[tuple[str, Route]]:
    """Each method of each route, once for each path."""
    routes: list[Route] = [*(route for _, some in app.SECTIONS for route in some), *policies.ROUTES]
    named = {(method, route.path): route for route in routes for method in (route.methods or set()) - {"HEAD"}}
    return sorted([(method, route) for (method, _), route in named.items()], key=lambda each: (each[0], each[1].path))


def taking_bodies() -> list[tuple[str, str]]:
    """Methods and paths."""
    return sorted({(method, path_of(route)) for method, route in all_routes() if method in ("PUT", "POST")})


def path_of(route: Route, **parts: str) -> str:
    """Below /admin/v2, unless it is another tree."""
    path = re.sub(r"\{(\w+)(:path)?\}", lambda part: {**NAMES, **parts}.get(part[1], "1"), route.path)
    return path.removeprefix("/admin/v2")


@pytest.mark.parametrize(("method", "path"), taking_bodies())
def test_an_odd_body_is_never_a_failure_of_the_broker(http: httpx.Client, method: str, path: str) -> None:
    """1.2.2: whatever it is, the answer says what is wrong with it, or it was of no interest."""
    http.put("/namespaces/public/odd")
    http.put("/persistent/public/odd/t/subscription/s")
    for body in ODD:
        answer = http.request(method, path, content=body)
        assert answer.status_code < 500, (body[:100], answer.text)
        assert answer.is_success or answer.json()["reason"]


@pytest.mark.parametrize(("method", "path"), taking_bodies())
def test_a_body_that_is_not_utf_8_is_refused_or_of_no_interest(http: httpx.Client, method: str, path: str) -> None:
    """1.2.2: with the byte that is wrong, where the body is read at all."""
    http.put("/namespaces/public/odd")
    http.put("/persistent/public/odd/t/subscription/s")
    plain = http.request(method, path, content=b"{")
    for body in NOT_UTF8:
        answer = http.request(method, path, content=body)
        assert answer.status_code < 500, (body, answer.text)
        if plain.status_code == 400 and "JSON" in plain.text:
            assert (answer.status_code, "not: byte" in answer.text) == (400, True), (body, answer.text)


@pytest.mark.parametrize(
    ("method", "route"), all_routes(), ids=lambda each: each if isinstance(each, str) else each.path
)
def test_text_that_is_none_is_refused_in_every_part_of_a_path_and_in_a_query(
    http: httpx.Client, method: str, route: Route
) -> None:
    """1.2.2: no route takes it for another text, which might name something."""
    http.put("/namespaces/public/odd")
    http.put("/persistent/public/odd/t")
    asked = [path_of(route, **{name: text}) for name in re.findall(r"\{(\w+)", route.path) for text in NO_TEXT]
    asked += [f"{path_of(route)}?{query}" for query in ("force=%ff", "%ff=true", "a=1&b=%zz", "%")]
    with closing(HTTPConnection(http.base_url.host, http.base_url.port, timeout=60)) as connection:
        for path in asked:  # as it is written here: httpx would mend it
            connection.request(method, path if path.startswith("/lookup") else f"/admin/v2{path}")
            answer = connection.getresponse()
            content = answer.read()
            assert 400 <= answer.status < 500, (path, answer.status)
            assert json.loads(content)["reason"]


@pytest.mark.parametrize(("method", "path"), taking_bodies())
def test_a_compressed_body_is_refused(http: httpx.Client, method: str, path: str) -> None:
    """1.2.2: by the header, whatever the body is."""
    answer = http.request(method, path, content=gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"})
    assert (answer.status_code, "gzip" in answer.json()["reason"]) == (415, True)
