# SPDX-License-Identifier: Apache-2.0
"""Authentication of HTTP requests at a real broker: headers, the open paths, refusals."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from broker_core.server.admin.app import SECTIONS
from broker_core.server.admin.identification import METRICS_PATHS, OPEN_PATHS
from broker_core.testing.running_broker import RunningBroker
from tests.server.credentials import A_DAY_S, PASSWORD, SECRET, kind_of, settings, token
from tests.server.test_authentication_tokens import forged

ADMIN = "/admin/v2/clusters"
METHOD = "X-Pulsar-Auth-Method-Name"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that takes tokens and passwords."""
    folder = tmp_path_factory.mktemp("broker")
    with RunningBroker(folder / "data", settings(folder)) as running:
        yield running
        assert "Traceback" not in running.stderr


@pytest.fixture
def web(broker: RunningBroker) -> Iterator[httpx.Client]:
    """A client without credentials."""
    with httpx.Client(base_url=broker.http_url, timeout=60) as client:
        yield client


def bearer(text: str | bytes) -> dict[str, str]:
    return {"Authorization": f"Bearer {text if isinstance(text, str) else text.decode()}"}


def basic(text: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}


def assert_refused(answer: httpx.Response) -> None:
    """One answer for all refusals."""
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert answer.json() == {"reason": "Authentication failed"}


@pytest.mark.parametrize(
    "headers",
    [
        bearer(token()),
        {"Authorization": f"bearer   {token()}"},
        {**bearer(token(lives_s=A_DAY_S)), METHOD: "token"},
        basic(f"basil:{PASSWORD}"),
        {**basic(f"basil:{PASSWORD}"), METHOD: "basic"},
    ],
    ids=kind_of,
)
def test_good_credentials_are_served(web: httpx.Client, headers: dict[str, str]) -> None:
    """By the scheme of the header, with or without the name of the method."""
    assert web.get(ADMIN, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        bearer("garbage"),
        bearer(token(lives_s=-1)),
        bearer(forged({"alg": "none"}, {"sub": "admin"})),
        {"Authorization": token()},
        {"Authorization": f"Digest {token()}"},
        basic("basil:wrong"),
        basic("nobody:wrong"),
        basic("basil"),
        {"Authorization": "Basic basil:wrong"},
        {"Authorization": "Basic"},
        {METHOD: "token"},
        {METHOD: "none"},
        {METHOD: "tls"},
        {**bearer(token()), METHOD: "basic"},
        {**bearer(token()), METHOD: "tls"},
        {**bearer(token()), METHOD: ""},
        {**basic(f"basil:{PASSWORD}"), METHOD: "token"},
        {"Cookie": f"token={token()}"},
        {"token": token()},
        {"X-Original-Principal": "admin"},
        {"X-Forwarded-User": "admin"},
    ],
    ids=kind_of,
)
def test_bad_credentials_are_refused_without_a_reason(web: httpx.Client, headers: dict[str, str]) -> None:
    """401 with one text; nothing of what was shown is in the answer."""
    assert_refused(web.get(ADMIN, headers=headers))


def test_two_headers_are_one_too_many(web: httpx.Client) -> None:
    """Another reader of the request might take the other one."""
    twice = [("Authorization", f"Bearer {token()}"), ("Authorization", "Bearer garbage")]
    assert web.get(ADMIN, headers=twice).status_code == 400
    assert web.get(ADMIN, headers=[*bearer(token()).items(), (METHOD, "token"), (METHOD, "none")]).status_code == 400


def test_a_token_in_the_query_is_none(web: httpx.Client, broker: RunningBroker) -> None:
    """Queries end in logs; ours have no query."""
    marker = token("marker")
    assert_refused(web.get(f"{ADMIN}?token={marker}"))
    assert marker not in broker.stderr


def paths() -> list[str]:
    """Every path that the broker has, with something in its places."""
    templates = {route.path for _, routes in SECTIONS for route in routes}
    return sorted(path.replace("{", "").replace(":path}", "").replace("}", "") for path in templates)


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "TRACE", "PATCH"])
def test_only_the_open_paths_answer_a_stranger(web: httpx.Client, method: str) -> None:
    """CVE-2022-34321: a crawl over all routes without credentials, by every HTTP method."""
    for path in [*paths(), "/", "/no/such/path", "/admin/v2/brokers/%72eady", "/admin/v2/brokers/ready/", "//metrics"]:
        answer = web.request(method, path)
        if path in OPEN_PATHS and method in ("GET", "HEAD"):
            assert answer.status_code == 200, path
        elif method == "HEAD":
            assert answer.status_code == 401, path
        else:
            assert_refused(answer)


def test_a_stranger_changes_nothing(web: httpx.Client) -> None:
    """The body of a refused request is not acted on."""
    assert_refused(web.put("/admin/v2/tenants/intruder", json={"adminRoles": [], "allowedClusters": ["standalone"]}))
    assert_refused(web.post("/admin/v2/brokers/configuration/allowAutoTopicCreation/false"))
    tenants = web.get("/admin/v2/tenants", headers=bearer(token())).json()
    assert "intruder" not in tenants


def test_metrics_are_open_by_a_setting(tmp_path: Path) -> None:
    """Scrapers often have no credentials; nothing else is open then."""
    with RunningBroker(tmp_path / "data", settings(tmp_path, authenticateMetricsEndpoint=False)) as own:
        for path in METRICS_PATHS:
            assert httpx.get(own.http_url + path).status_code == 200
        assert_refused(httpx.get(own.http_url + ADMIN))


def test_an_anonymous_request_needs_no_header(tmp_path: Path) -> None:
    """But a bad header is refused all the same."""
    with RunningBroker(tmp_path / "data", settings(tmp_path, anonymousUserRole="anybody")) as own:
        cases: list[tuple[Mapping[str, str], int]] = [
            ({}, 200),
            ({METHOD: "none"}, 200),
            (bearer(token()), 200),
            (bearer("garbage"), 401),
            (basic("basil:wrong"), 401),
            ({METHOD: "made-up"}, 401),
            ({"Authorization": "Digest x"}, 401),
        ]
        for headers, status in cases:
            assert httpx.get(own.http_url + ADMIN, headers=headers).status_code == status, headers


def test_a_guesser_is_told_to_wait(tmp_path: Path) -> None:
    """Passwords are not checked any more for a while; tokens are."""
    with RunningBroker(tmp_path / "data", settings(tmp_path)) as own, httpx.Client(base_url=own.http_url) as client:
        statuses = [client.get(ADMIN, headers=basic("basil:wrong")).status_code for _ in range(12)]
        assert statuses[:9] == [401] * 9
        assert statuses[-1] == 429
        assert client.get(ADMIN, headers=bearer(token())).status_code == 200


def test_secrets_are_in_no_answer_and_no_log(tmp_path: Path) -> None:
    """CVE-2023-37579, 2025-30677: planted as key, token, user and password, and looked for everywhere."""
    key, users = base64.b64encode(SECRET).decode(), (tmp_path / "users")
    given = settings(tmp_path, tokenSecretKey=f"data:;base64,{key}", logLevel="debug")
    content = base64.b64encode(users.read_bytes()).decode()
    with RunningBroker(tmp_path / "data", {**given, "basicAuthConf": f"data:;base64,{content}"}) as own:
        shown = token("shown")
        with httpx.Client(base_url=own.http_url, headers=bearer(shown)) as client:
            answers = [client.get(path).text for path in paths() if not path.endswith("/name")]
            client.get(ADMIN, headers=basic("basil:PLANTED"))
            client.get(ADMIN, headers=bearer("PLANTED.PLANTED.PLANTED"))
            configuration = client.get("/admin/v2/brokers/configuration/runtime").json()
        own.stop()
        everything = "\n".join([*answers, json.dumps(configuration), own.stderr])
        for secret in (key, content, users.read_text().partition(":")[2].strip(), shown, "PLANTED", PASSWORD):
            assert secret not in everything
        assert configuration["tokenSecretKey"] == configuration["basicAuthConf"] == "***"
