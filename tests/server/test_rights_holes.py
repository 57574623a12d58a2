# SPDX-License-Identifier: Apache-2.0
"""Published holes of Apache Pulsar that are about rights, each with the test that this broker is free of it.

The matrix has most of these cases as well; here each hole has its number, and what an attacker would have got.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from broker_core.server.admin.app import all_routes
from broker_core.server.security.rights import Right
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata
from tests.server.rights_model import SUPERUSER
from tests.server.rights_world import DOMAINS, Answer, Http, Secured, Who, furnish, hello, secured

N: Final = "/admin/v2/namespaces/acme/ns"
BUNDLE: Final = "0x00000000_0xffffffff"
ENTRY: Final = seal_entry(
    MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString(), b"hello"
)
UNAUTHORIZED: Final = 4
ROOT: Final = Who(SUPERUSER)
PLACES: Final = ("plain", "parted", "parted-partition-1")


@pytest.fixture(scope="module")
def world() -> Iterator[Secured]:
    """The grants of the matrix, and a message in ``plain`` and in each partition of ``parted``."""
    with secured() as world:
        furnish(world, "acme/ns", "acme/prefixed")
        with world.raw(ROOT) as client:
            for number, topic in enumerate(("plain", "parted-partition-0", "parted-partition-1")):
                for namespace in ("ns", "prefixed"):
                    publish(client, f"persistent://acme/{namespace}/{topic}", 2 * number + (namespace == "ns"))
        yield world


def publish(client: RawClient, topic: str, producer_id: int) -> None:
    must_succeed(client.open_producer(topic, producer_id))
    client.send_entry(producer_id, 0, ENTRY)
    assert client.next_command().type == BaseCommand.SEND_RECEIPT


@pytest.fixture
def root(world: Secured) -> Iterator[Http]:
    """The superuser."""
    http = world.http(ROOT)
    yield http
    http.close()


def ask(world: Secured, role: str, method: str, path: str, body: object = None) -> Answer:
    """The answer to one request of a role."""
    http = world.http(Who(role))
    try:
        return http.ask(method, path, body)
    finally:
        http.close()


def backlogs(root: Http, namespace: str = "acme/ns") -> list[int]:
    """Messages that wait for the subscriptions of all topics."""
    found = []
    for topic in ("plain", "parted-partition-0", "parted-partition-1"):
        stats = root.ask("GET", f"/admin/v2/persistent/{namespace}/{topic}/stats").content
        found += [each["msgBacklog"] for _, each in sorted(stats["subscriptions"].items())]
    return found


def test_cve_2021_41571_an_entry_is_read_from_its_own_topic_only(world: Secured, root: Http) -> None:
    """By the ids of another topic's entry its message could be read by everybody who may read anything."""
    ledgers = {}
    for topic in ("plain", "parted-partition-0"):
        stats = root.ask("GET", f"/admin/v2/persistent/acme/ns/{topic}/internalStats").content
        ledgers[topic] = stats["ledgers"][0]["ledgerId"]
    base = "/admin/v2/persistent/acme/ns"
    assert ask(world, "cons-ns", "GET", f"{base}/plain/ledger/{ledgers['plain']}/entry/0").status == 200
    assert ask(world, "cons-ns", "GET", f"{base}/plain/ledger/{ledgers['parted-partition-0']}/entry/0").status == 404
    assert ask(world, "prod-ns", "GET", f"{base}/plain/ledger/{ledgers['plain']}/entry/0").status == 401


def test_cve_2022_34321_nothing_is_shown_without_credentials(world: Secured) -> None:
    """Every path is asked for; those that are open say nothing of any topic."""
    http = world.http(Who(""))
    answered = set()
    for route in all_routes():
        for method in route.methods or ():
            path = re.sub(r"\{\w+(:path)?\}", "1", route.path)
            if http.ask(method, path).status not in (401, 403):
                answered.add(route.path)
                assert route.need.right is Right.NONE
    assert answered <= {"/admin/v2/brokers/ready", "/admin/v2/brokers/version"}
    http.close()


FORGED: Final = (
    {"X-Original-Principal": SUPERUSER},
    {"X-Original-Principal": "boss"},
    {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-User": SUPERUSER, "X-Forwarded-Host": "localhost"},
    {"X-Pulsar-Role": SUPERUSER, "Role": SUPERUSER, "X-Remote-User": SUPERUSER, "Remote-User": SUPERUSER},
    {"X-Original-URL": "/admin/v2/brokers/ready", "X-Rewrite-URL": "/admin/v2/brokers/ready"},
    {"X-HTTP-Method-Override": "GET"},
)


@pytest.mark.parametrize("headers", FORGED, ids=lambda headers: next(iter(headers)))
def test_cve_2023_30428_a_header_of_a_client_gives_no_right(world: Secured, headers: dict[str, str]) -> None:
    """Any authenticated user published with the broker's own role by one header."""
    http = world.http(Who("nobody"))
    before = world.disk.fingerprint()
    for method, path in (
        ("GET", "/admin/v2/tenants"),
        ("PUT", "/admin/v2/persistent/acme/ns/forged"),
        ("DELETE", "/admin/v2/persistent/acme/ns/plain"),
        ("POST", f"{N}/permissions/nobody"),
        ("GET", "/admin/v2/persistent/acme/ns/plain/stats"),
        ("POST", "/admin/v2/persistent/acme/ns/plain/subscription/open/skip_all"),
    ):
        assert http.ask(method, path, ["produce"], headers).status in (401, 403), path
    assert world.disk.fingerprint() == before
    http.close()


def test_cve_2023_30428_a_header_that_comes_twice_is_refused(world: Secured) -> None:
    """Two readers may take different ones: a proxy's own, and that of its client behind it."""
    http = world.http(Who("proxy-root"))
    connection = http.connection
    connection.putrequest("GET", "/admin/v2/tenants")
    for name, value in (
        *http.headers.items(),
        ("X-Original-Principal", SUPERUSER),
        ("X-Original-Principal", "nobody"),
    ):
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == 400
    http.close()


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("topic", ["__change_events", "__change_events-partition-0", "__x"])
def test_cve_2023_30428_topics_of_the_broker_take_no_messages_of_clients(
    world: Secured, domain: str, topic: str
) -> None:
    """Not even of the administrator of the tenant."""
    for role in ("prod-ns", "boss"):
        with world.raw(Who(role)) as client:
            answer = client.open_producer(f"{domain}://acme/ns/{topic}", 1)
            assert (answer.type, answer.error.error) == (BaseCommand.ERROR, UNAUTHORIZED)


def test_cve_2023_30429_a_proxy_does_nothing_that_its_client_may_not(world: Secured) -> None:
    """The right of the proxy's own role was checked."""
    http = world.http(Who("proxy-root", "cons-ns"))
    path = "/admin/v2/persistent/acme/ns/plain"
    assert http.ask("GET", f"{path}/stats").status == 200
    assert http.ask("DELETE", path).status == 403
    assert http.ask("GET", "/admin/v2/tenants").status == 401
    http.close()


@pytest.mark.parametrize("role", ["prod-ns", "cons-ns", "prod-topic", "cons-topic"])
def test_cve_2024_28098_policies_of_topics_are_for_administrators(world: Secured, role: str) -> None:
    """Who might produce or consume could set the retention of a topic, and delete its data by that."""
    http, before = world.http(Who(role)), world.disk.fingerprint()
    policies = [route for route in all_routes() if "TopicPolicyOperation" in route.need.refusal]
    assert len(policies) > 80
    for route in policies:
        for topic in PLACES:
            names = {"tenant": "acme", "namespace": "ns", "topic": topic}
            path = re.sub(r"\{(\w+)\}", lambda part, names=names: names.get(part[1], "1"), route.path)  # type: ignore[misc]
            for method in route.methods or ():
                assert http.ask(method, path, 1).status == 403, path
    assert world.disk.fingerprint() == before
    http.close()


@pytest.mark.parametrize("topic", PLACES)
@pytest.mark.parametrize("domain", DOMAINS)
def test_cve_2024_29834_operations_on_partitioned_topics_need_their_right(
    world: Secured, domain: str, topic: str
) -> None:
    """Of a partitioned name the right was not checked: only its partitions had checks."""
    path = f"/admin/v2/{domain}/acme/ns/{topic}"
    for method, what, body in (
        ("PUT", f"{path}/unload", None),
        ("PUT", f"{path}/subscription/new", "earliest"),
        ("PUT", f"{N}/properties", {"a": "b"}),
        ("DELETE", f"{N}/properties", None),
        *((("PUT", f"{path}/compaction", None),) if domain == "persistent" else ()),
    ):
        assert ask(world, "nobody", method, what, body).status == 401, what


@pytest.mark.parametrize("topic", [f"{domain}://acme/ns/{place}" for domain in DOMAINS for place in PLACES])
def test_cve_2026_105926_schemas_need_a_right_on_their_topic(world: Secured, topic: str) -> None:
    """By raw frames: ordinary clients look the topic up first, and are refused there."""
    with world.raw(Who("nobody")) as client:
        asked = BaseCommand(type=BaseCommand.GET_SCHEMA, getSchema={"topic": topic, "request_id": 1})
        answer = client.ask(asked).getSchemaResponse
        assert (answer.error_code, answer.error_message) == (UNAUTHORIZED, "Client is not authorized to get schema")
        made = BaseCommand(
            type=BaseCommand.GET_OR_CREATE_SCHEMA,
            getOrCreateSchema={
                "topic": topic,
                "request_id": 2,
                "schema": {"name": "", "schema_data": b"{}", "type": 2},
            },
        )
        response = client.ask(made).getOrCreateSchemaResponse
        assert (response.error_code, response.HasField("schema_version")) == (UNAUTHORIZED, False)


@pytest.mark.parametrize("path", ["coordinatorStats", "slowTransactions/1", "transactionMetadata/0/1", "coordinators"])
def test_cve_2026_105931_transactions_are_shown_to_nobody(world: Secured, path: str) -> None:
    """There are none, and no path that would tell of them."""
    assert ask(world, "nobody", "GET", f"/admin/v3/transactions/{path}").status == 404


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_cve_2026_105932_filters_of_topics_that_are_not_stored_need_their_right(world: Secured, method: str) -> None:
    """The half of the paths that was forgotten."""
    for role in ("nobody", "prod-ns", "cons-ns"):
        answer = ask(world, role, method, "/admin/v2/non-persistent/acme/ns/plain/entryFilters", {})
        assert answer.status in (401, 403, 404)


@pytest.mark.parametrize("topic", PLACES)
@pytest.mark.parametrize("role", ["cons-ns", "cons-topic", "prod-ns", "nobody", "stranger"])
def test_cve_2026_105934_nobody_truncates_by_a_partitioned_name(
    world: Secured, root: Http, role: str, topic: str
) -> None:
    """It ran with the broker's own rights, and the data were gone."""
    before, state = backlogs(root), world.disk.fingerprint()
    answer = ask(world, role, "DELETE", f"/admin/v2/persistent/acme/ns/{topic}/truncate")
    assert answer == (401, {"reason": "Don't have permission to administrate resources on this tenant"})
    assert (backlogs(root), world.disk.fingerprint()) == (before, state)


ALL_SUBSCRIPTIONS: Final = (
    "clearBacklog",
    f"{BUNDLE}/clearBacklog",
    "clearBacklog/closed",
    f"{BUNDLE}/clearBacklog/closed",
    "unsubscribe/closed",
    f"{BUNDLE}/unsubscribe/closed",
)


@pytest.mark.parametrize("path", ALL_SUBSCRIPTIONS)
def test_cve_2026_105938_roles_of_a_subscription_hold_for_whole_namespaces(
    world: Secured, root: Http, path: str
) -> None:
    """Whoever might consume in the namespace cleared, and deleted, subscriptions of others."""
    before, state = backlogs(root), world.disk.fingerprint()
    assert ask(world, "cons-ns", "POST", f"{N}/{path}").status == 403
    assert (backlogs(root), world.disk.fingerprint()) == (before, state)


@pytest.mark.parametrize("topic", PLACES)
def test_cve_2026_105938_roles_of_a_subscription_hold_for_all_of_a_topic(
    world: Secured, root: Http, topic: str
) -> None:
    """Expiry of all subscriptions of a topic at once."""
    path = f"/admin/v2/persistent/acme/ns/{topic}/all_subscription/expireMessages/1"
    before = backlogs(root)
    assert ask(world, "cons-ns", "POST", path).status == 401
    assert backlogs(root) == before


def test_cve_2026_105938_the_prefix_of_a_role_holds_everywhere(world: Secured, root: Http) -> None:
    """The same in the mode in which the name of a subscription must begin with the role."""
    place = "/admin/v2/namespaces/acme/prefixed"
    assert root.ask("POST", f"{place}/subscriptionAuthMode", "Prefix").status == 204
    before, state = backlogs(root, "acme/prefixed"), world.disk.fingerprint()
    for path in ALL_SUBSCRIPTIONS:
        assert ask(world, "cons-ns", "POST", f"{place}/{path.replace('closed', 'open')}").status == 403, path
    topic = "/admin/v2/persistent/acme/prefixed/plain"
    for method, path in (
        ("POST", "all_subscription/expireMessages/1"),
        ("POST", "subscription/open/skip_all"),
        ("POST", "subscription/open/skip/1"),
        ("POST", "subscription/open/expireMessages/1"),
        ("POST", "subscription/open/resetcursor/0"),
        ("DELETE", "subscription/open"),
        ("GET", "subscription/open/position/1"),
        ("POST", "subscription/open/analyzeBacklog"),
        ("PUT", "subscription/new"),
    ):
        assert ask(world, "cons-ns", method, f"{topic}/{path}").status == 401, path
    assert (backlogs(root, "acme/prefixed"), world.disk.fingerprint()) == (before, state)
    with world.raw(Who("cons-ns")) as client:
        answer = client.subscribe("persistent://acme/prefixed/plain", "open")
        assert answer.error.message == (
            "Failed to create consumer - The subscription name needs to be prefixed by the authentication role, "
            "like cons-ns-xxxx for topic: persistent://acme/prefixed/plain"
        )
        must_succeed(client.subscribe("persistent://acme/prefixed/plain", "cons-ns-1"))


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", "..%2f..%2fother", "%2fetc%2fpasswd", "a%00b", "a%5c..%5cb", "%252e%252e%252f", "x" * 3000]
)
def test_cve_2026_105945_no_name_leads_out_of_its_tenant(world: Secured, name: str) -> None:
    """In each part of each path: refused, or nothing but a name."""
    http, before = world.http(Who("boss")), world.disk.fingerprint()
    for path in (
        "/admin/v2/namespaces/{}/ns",
        "/admin/v2/namespaces/acme/{}",
        "/admin/v2/persistent/{}/ns/plain/stats",
    ):
        assert 400 <= http.ask("GET", path.format(name)).status < 500, path
    for part in ("topic", "subscription"):
        path = f"/admin/v2/persistent/acme/ns/{name}/stats"
        if part == "subscription":
            path = f"/admin/v2/persistent/acme/ns/plain/subscription/{name}/position/1"
        assert 400 <= http.ask("GET", path).status < 500, path
    assert world.disk.fingerprint() == before
    http.close()


@pytest.mark.parametrize("topic", ["plain", "missing", "missing-partition-3"])
def test_a_refusal_does_not_tell_what_exists(world: Secured, topic: str) -> None:
    """Rights are checked before anything is looked up: of a tenant that is not there as of one that is."""
    texts = set()
    for place in ("acme/ns", "acme/missing", "missing/ns"):
        answer = ask(world, "nobody", "GET", f"/admin/v2/persistent/{place}/{topic}/stats")
        texts.add((answer.status, answer.reason.partition(" on topic ")[0]))
        with world.raw(Who("nobody")) as client:
            lookup = BaseCommand(
                type=BaseCommand.LOOKUP, lookupTopic={"topic": f"persistent://{place}/{topic}", "request_id": 1}
            )
            response = client.ask(lookup).lookupTopicResponse
            assert (response.error, response.message) == (UNAUTHORIZED, "Client is not authorized to Lookup")
    assert texts == {(401, "Unauthorized to validateTopicOperation for operation [GET_STATS]")}


def test_a_proxy_must_name_its_client_and_nobody_else_may(world: Secured) -> None:
    """By CONNECT: the connection ends with the word of it."""
    for who in (Who("proxy-root"), Who("proxy-root", "proxy"), Who("nobody", SUPERUSER)):
        with RawClient(world.server.service_url, connect=False) as client:
            answer = client.ask(hello(who))
            assert (answer.error.error, answer.error.message) == (UNAUTHORIZED, "Invalid roles.")
            assert client.ended_by_broker()
