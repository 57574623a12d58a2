# SPDX-License-Identifier: Apache-2.0
"""The matrix of rights: every client x every command and path of the table, with raw frames and plain HTTP.

Made from the table of the code; which verdict is right is the model's to say. A refusal must have the table's code and
text, and must change nothing: not a byte on disk, and no client that is connected notices. What is allowed and would
change something is done in a second namespace with the same grants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from broker_core.base.names import NamespaceName, TopicName
from broker_core.server.admin.app import all_routes
from broker_core.server.admin.requests import Route
from broker_core.server.conversation import RULES
from broker_core.server.security.rights import CLUSTER, About, Need, Resource, Right
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.wire import commands
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandSubscribe
from tests.server.rights_model import SUPERUSER, may
from tests.server.rights_world import DOMAINS, WHO, Answer, Http, Secured, Who, book_of, furnish, secured

KEPT: Final = "acme/ns"
SCRATCH: Final = "acme/scratch"
TOPICS: Final = ("plain", "parted", "parted-partition-1")
SUBSCRIPTIONS: Final = ("open", "closed")
UNAUTHORIZED: Final = 4
"""AuthorizationError in the protocol."""

_OF_RIGHTS: Final = ("Unauthorized to ", "Don't have permission", "This operation requires", "Invalid roles.")
_NAMES: Final = {
    "tenant": "acme",
    "role": "somebody",
    "cluster": "standalone",
    "bundle": "0x00000000_0xffffffff",
    "name": "nothing",
}
_OF_POLICIES: Final = re.compile("PolicyOperation")

OF_POLICIES: Final = (
    *("nobody", "produces everywhere", "consumes everywhere", "produces to topics", "consumes from topics"),
    *("administers the tenant", "administers another tenant", "superuser", "a proxy for a role without rights"),
)
"""Clients that ask for policies, too, which are most of all paths and treated alike."""


class Row(NamedTuple):
    """One request of the matrix. ``namespace``: the one that is kept, or the other."""

    method: str
    path: str
    need: Need
    resource: Resource

    def body(self, namespace: str) -> object:
        """A body of no use, unless it names the resource."""
        if self.need.about is About.NAMESPACE_IN_BODY:
            return [{"topic": f"persistent://{namespace}/plain", "role": "somebody", **self._actions}]
        return None

    @property
    def _actions(self) -> dict[str, object]:
        return {"actions": ["produce"]} if self.path.endswith("/grantPermissionsOnTopics") else {}


@pytest.fixture(scope="module")
def world() -> Iterator[Secured]:
    """The grants of the matrix in two namespaces."""
    with secured(connection_handshake_seconds=600, keep_alive_interval_seconds=600) as world:
        furnish(world, KEPT, SCRATCH)
        yield world


@pytest.fixture
def watcher(world: Secured) -> Iterator[RawClient]:
    """A client that administers the tenant, with open producers and consumers, and is told nothing meanwhile."""
    with world.raw(WHO["administers the tenant"]) as client:
        for number, domain in enumerate(DOMAINS):
            must_succeed(client.open_producer(f"{domain}://{KEPT}/plain", number))
            must_succeed(client.subscribe(f"{domain}://{KEPT}/plain", "open", number))
        yield client
        assert client.ask(commands.ping()).type == BaseCommand.PONG


# -- rows of the admin REST


def rows_of(route: Route, namespace: str) -> Iterator[Row]:
    """A request for each method of ``route``, and for each kind of topic and subscription that it may be about."""
    topics: tuple[str, ...] = TOPICS if "{topic}" in route.path else ("",)
    if _OF_POLICIES.search(route.need.refusal):
        topics = topics[:1]
    several = SUBSCRIPTIONS if "{subscription}" in route.path else ("",)
    for method in sorted((route.methods or set()) - {"HEAD"}):
        for topic in topics:
            for subscription in several:
                yield _row(route, method, namespace, topic, subscription)


def _row(route: Route, method: str, namespace: str, topic: str, subscription: str) -> Row:
    names = {**_NAMES, "namespace": namespace.partition("/")[2], "topic": topic, "subscription": subscription}
    path = re.sub(r"\{(\w+)(:\w+)?\}", lambda part: names.get(part[1], "1"), route.path)
    domain = "non-persistent" if "/non-persistent/" in path else "persistent"
    whole = TopicName.parse(f"{domain}://{namespace}/{topic or 'none'}")
    return Row(method, path, route.need, _resource(route.need.about, whole, subscription))


def _resource(about: About, topic: TopicName, subscription: str) -> Resource:
    """The resource that such a path is about, told by the kind alone."""
    namespace = topic.namespace_name
    return {
        **dict.fromkeys(About, CLUSTER),
        About.TENANT: Resource(tenant=topic.tenant),
        **dict.fromkeys((About.NAMESPACE, About.NAMESPACE_IN_BODY), Resource.of_namespace(namespace)),
        About.NAMESPACE_SUBSCRIPTION: Resource.of_namespace(namespace, subscription),
        About.NAMESPACE_SUBSCRIPTIONS: Resource.of_namespace(namespace, every_subscription=True),
        About.TOPIC: Resource.of_topic(topic),
        About.SUBSCRIPTION: Resource.of_topic(topic, subscription),
        About.SUBSCRIPTIONS: Resource.of_topic(topic, every_subscription=True),
    }[about]


def allowed(who: Who, need: Need, resource: Resource) -> bool:
    """The model's verdict; a proxy needs the rights of both roles. The transaction of a path is nobody's here."""
    if need.right is Right.NONE:
        return True
    right = Right.SUPERUSER if need.right is Right.OWNER else need.right
    roles = [role.replace("proxy-root", SUPERUSER) for role in who if role]
    return who.fits and all(may(book_of(KEPT), role, right, resource) for role in roles)


def test_every_request_is_let_through_or_refused_as_the_table_says(world: Secured, watcher: RawClient) -> None:
    """Some eight thousand cases: plain, partitioned, non-persistent and namespace-wide."""
    rows = [row for route in all_routes() for row in rows_of(route, KEPT) if row.path != "/metrics"]
    wrong: list[str] = []
    cases = 0
    for name, who in WHO.items():
        http = world.http(who)
        asked = [row for row in rows if name in OF_POLICIES or not _OF_POLICIES.search(row.need.refusal)]
        verdicts = [(row, allowed(who, row.need, row.resource)) for row in asked]
        before = world.disk.fingerprint()
        for row, good in verdicts:
            if not good:
                cases += 1
                wrong += _unlike_refusal(name, who, row, http.ask(row.method, row.path, row.body(KEPT) or "x"))
        assert world.disk.fingerprint() == before, name
        for row, good in verdicts:
            if good:
                cases += 1
                wrong += _unlike_success(name, row, http)
        http.close()
    assert wrong == []
    assert cases >= 2500


def _unlike_refusal(name: str, who: Who, row: Row, answer: Answer) -> list[str]:
    """The difference between an answer and the refusal of the table."""
    text = row.need.refusal_of(row.resource, who.role, who.original) if who.fits else "Invalid roles."
    status = row.need.status if who.fits else 401
    if answer == (status, {"reason": text}):
        return []
    return [f"{name}: {row.method} {row.path} is not refused with {status} {text}: {answer}"]


def _unlike_success(name: str, row: Row, http: Http) -> list[str]:
    path = row.path if row.method == "GET" else row.path.replace("/acme/ns", "/acme/scratch")
    answer = http.ask(row.method, path, row.body(SCRATCH))
    if answer.status < 500 and not answer.reason.startswith(_OF_RIGHTS):
        return []
    return [f"{name}: {row.method} {path} is not let through: {answer}"]


# -- wire commands


def commands_of(namespace: str) -> Iterator[tuple[BaseCommand, Resource]]:
    """Every command that names a resource, for each kind of topic and subscription."""
    name = NamespaceName.parse(namespace)
    for command in (
        BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace={"namespace": namespace}),
        BaseCommand(
            type=BaseCommand.WATCH_TOPIC_LIST,
            watchTopicList={"namespace": namespace, "watcher_id": 1, "topics_pattern": ".*"},
        ),
    ):
        yield command, Resource.of_namespace(name)
    for domain in DOMAINS:
        for local in TOPICS:
            yield from _commands_of_topic(TopicName.parse(f"{domain}://{namespace}/{local}"))


def _commands_of_topic(topic: TopicName) -> Iterator[tuple[BaseCommand, Resource]]:
    text = str(topic)
    schema = {"name": "", "schema_data": b"", "type": 1}
    for command in (
        BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata={"topic": text}),
        BaseCommand(type=BaseCommand.LOOKUP, lookupTopic={"topic": text}),
        BaseCommand(type=BaseCommand.GET_SCHEMA, getSchema={"topic": text}),
        BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA, getOrCreateSchema={"topic": text, "schema": schema}),
        BaseCommand(type=BaseCommand.PRODUCER, producer={"topic": text, "producer_id": 5}),
    ):
        yield command, Resource.of_topic(topic)
    for subscription in SUBSCRIPTIONS:
        letter = {"topic": text, "producer_id": 6, "initial_subscription_name": subscription}
        yield BaseCommand(type=BaseCommand.PRODUCER, producer=letter), Resource.of_topic(topic, subscription)
        subscribe = {"topic": text, "subscription": subscription, "consumer_id": 5, "subType": CommandSubscribe.Shared}
        yield BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe), Resource.of_topic(topic, subscription)


def refusal_in(answer: BaseCommand) -> tuple[int, str]:
    """Code and text of a refusal, in whatever field the answer of that kind has them; zero if it is none."""
    match answer.type:
        case BaseCommand.ERROR:
            return answer.error.error, answer.error.message
        case BaseCommand.LOOKUP_RESPONSE:
            return answer.lookupTopicResponse.error, answer.lookupTopicResponse.message
        case BaseCommand.PARTITIONED_METADATA_RESPONSE:
            return answer.partitionMetadataResponse.error, answer.partitionMetadataResponse.message
        case BaseCommand.GET_SCHEMA_RESPONSE:
            return answer.getSchemaResponse.error_code, answer.getSchemaResponse.error_message
        case BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE:
            return answer.getOrCreateSchemaResponse.error_code, answer.getOrCreateSchemaResponse.error_message
    return 0, ""


def test_every_command_is_let_through_or_refused_as_the_table_says(world: Secured, watcher: RawClient) -> None:
    """By raw frames, without the look-up that clients begin with: a command must not rely on one that came before."""
    rows = list(commands_of(KEPT))
    assert {command.type for command, _ in rows} == {kind for kind, rule in RULES.items() if rule.need.refusal}
    wrong: list[str] = []
    cases = 0
    for name, who in WHO.items():
        if not who.fits:
            continue
        before = world.disk.fingerprint()
        with world.raw(who) as client:
            for command, resource in rows:
                cases += 1
                wrong += _unlike_verdict(name, who, client, command, resource)
        if name != "superuser" and not any(allowed(who, RULES[c.type].need, r) for c, r in rows):
            assert world.disk.fingerprint() == before, name
    assert wrong == []
    assert cases >= 500


def _unlike_verdict(name: str, who: Who, client: RawClient, command: BaseCommand, resource: Resource) -> list[str]:
    """The difference between the answer to a command and the verdict of the model."""
    rule = RULES[command.type]
    getattr(command, rule.request_field).request_id = 7
    found = refusal_in(client.ask(command))
    good = allowed(who, rule.need, resource)
    _close_opened(client, command, found)
    text = rule.need.refusal_of(resource, who.role, who.original)
    if (found[0] != UNAUTHORIZED) if good else (found == (UNAUTHORIZED, text)):
        return []
    return [f"{name}: {commands.command_name(command)} on {resource}, allowed={good}, is answered with {found}"]


def _close_opened(client: RawClient, command: BaseCommand, found: tuple[int, str]) -> None:
    """Close the producer or consumer that ``command`` has opened."""
    if found[0]:
        return
    if command.type == BaseCommand.PRODUCER:
        number = command.producer.producer_id
        client.ask(
            BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer={"producer_id": number, "request_id": 8})
        )
    if command.type == BaseCommand.SUBSCRIBE:
        client.ask(BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer={"consumer_id": 5, "request_id": 8}))
