# SPDX-License-Identifier: Apache-2.0
"""The table of rights, asked of a real Apache Pulsar: a role without the right is refused by the same status and words.

Requests that Apache Pulsar looks at before it looks at rights are left out. What it lets through, or refuses in another
way, is in the section "Rights" of docs/admin-differences.md: the list of its holes, as long as a release has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import pytest

from broker_core.server.admin.app import all_routes
from broker_core.server.conversation import RULES
from broker_core.testing.raw_client import RawClient
from broker_core.wire.commands import command_name
from tests.apache_pulsar.secured import ADMIN, Secured, token
from tests.server.credentials import connect
from tests.server.oracle import accepted
from tests.server.rights_world import DOMAINS, PARTED, WHO, Answer, Http, Who, grants_of
from tests.server.test_rights_matrix import KEPT, UNAUTHORIZED, Row, allowed, commands_of, refusal_in, rows_of

pytestmark = pytest.mark.pulsar

NAMES: Final = (
    *("nobody", "produces everywhere", "consumes everywhere", "consumes from topics"),
    *("administers the tenant", "administers another tenant"),
)
_REFUSED: Final = (401, 403)
_OF_BROKER: Final = re.compile(r" on (?:the )?(?:broker|cluster)(?: \[.*\])?$")
"""The end of a text, which names the broker by its port."""


@pytest.fixture(scope="module")
def prepared(secured: Secured) -> Secured:
    """The grants of the matrix."""
    root = http_of(secured, Who(ADMIN))
    for tenant, admin in (("acme", "boss"), ("other", "stranger")):
        make(root, f"tenants/{tenant}", {"adminRoles": [admin], "allowedClusters": ["standalone"]})
    make(root, f"namespaces/{KEPT}", {"auth_policies": msgspec.to_builtins(grants_of(KEPT))})
    for domain in DOMAINS:
        make(root, f"{domain}/{KEPT}/plain")
        make(root, f"{domain}/{KEPT}/parted/partitions", PARTED)
    for topic in ("plain", "parted"):
        for subscription in ("open", "closed"):
            make(root, f"persistent/{KEPT}/{topic}/subscription/{subscription}", "earliest")
    root.close()
    return secured


def make(root: Http, path: str, body: object = None) -> None:
    answer = root.ask("PUT", f"/admin/v2/{path}", body)
    assert answer.status == 204, (path, answer)


def http_of(secured: Secured, who: Who) -> Http:
    headers = {"Authorization": f"Bearer {token(who.role)}", "Content-Type": "application/json"}
    return Http(secured.pulsar.http_url, headers)


def test_what_the_table_refuses_apache_pulsar_refuses_likewise(prepared: Secured) -> None:
    """By status and text; each difference is looked at, and listed."""
    assert_listed(line for name in NAMES for line in differences_of(prepared, WHO[name]))


def test_commands_are_refused_by_apache_pulsar_likewise(prepared: Secured) -> None:
    """By code and text, to raw frames that no look-up came before."""
    assert_listed(line for name in NAMES for line in refused_otherwise(prepared, WHO[name]))


def assert_listed(found: Iterable[str]) -> None:
    """Each difference is in the section of the page."""
    listed = accepted("Rights")
    new = {line for line in found if not any(each.fullmatch(line.partition(" -> ")[0]) for each in listed)}
    assert not new, "\n".join(sorted(new))


def refused_otherwise(secured: Secured, who: Who) -> Iterator[str]:
    """Commands that the table refuses to a client, and Apache Pulsar does not, or otherwise."""
    hello = connect("token", token(who.role))
    with RawClient(secured.pulsar.service_url, connect=False) as client:
        assert client.ask(hello).HasField("connected")
        for command, resource in commands_of(KEPT):
            rule = RULES[command.type]
            if not allowed(who, rule.need, resource):
                getattr(command, rule.request_field).request_id = 7
                found = refusal_in(client.ask(command))
                text = rule.need.refusal_of(resource, who.role, "")
                if (found[0], found[1].strip()) != (UNAUTHORIZED, text):
                    yield f"{command_name(command)} {_shown(str(resource))} -> {found}"


def differences_of(secured: Secured, who: Who) -> Iterator[str]:
    """Requests that the table refuses to a client, and Apache Pulsar does not, or otherwise."""
    http = http_of(secured, who)
    for route in all_routes():
        for row in rows_of(route, KEPT):
            if not allowed(who, row.need, row.resource):
                body = {"a": "b"} if row.path.endswith("/properties") else row.body(KEPT)
                answer = answer_of(http, row, body)
                if _differs(row, who, answer):
                    yield f"{row.method} {_shown(row.path)} -> {answer.status} {answer.reason[:200]}"
    http.close()


def answer_of(http: Http, row: Row, body: object) -> Answer:
    """The answer, also where Apache Pulsar has hung up behind the one before, whose body it did not read."""
    try:
        return http.ask(row.method, row.path, body)
    except ConnectionError:
        http.close()
        return http.ask(row.method, row.path, body)


def _differs(row: Row, who: Who, answer: Answer) -> bool:
    if answer.status not in _REFUSED:
        return answer.status < 300
    text = row.need.refusal_of(row.resource, who.role, who.original)
    return (answer.status, _plain(answer.reason)) != (row.need.status, _plain(text))


def _plain(reason: str) -> str:
    return _OF_BROKER.sub("", reason).strip()


def _shown(path: str) -> str:
    """The path in the form of docs/admin-differences.md."""
    topics = {"plain": "t", "parted": "q", "parted-partition-1": "q-partition-1"}
    short = path.removeprefix("/admin/v2/").replace(f"/{KEPT}", "/{}")
    return re.sub(r"\{\}/(parted-partition-1|parted|plain)\b", lambda found: f"{{}}/{topics[found[1]]}", short)
