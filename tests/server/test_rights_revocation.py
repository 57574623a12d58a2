# SPDX-License-Identifier: Apache-2.0
"""A right that is taken away ends the producers, consumers and watches that stood on it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.wire import commands
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandSubscribe, MessageMetadata
from tests.schemas.infos import avro
from tests.server.rights_model import SUPERUSER
from tests.server.rights_world import Http, Secured, Who, secured
from tests.server.schema_client import on_wire

TENANT = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
NAMESPACE = "/admin/v2/namespaces/acme/ns"
UNAUTHORIZED = 4
ENTRY = seal_entry(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString(), b"hello")

Change = Callable[[Http], None]


@pytest.fixture
def world() -> Iterator[Secured]:
    """A namespace in which ``app`` may produce and consume, and so may ``other``."""
    with secured() as world:
        with_grants(world)
        yield world


def with_grants(world: Secured) -> None:
    root = world.http(Who(SUPERUSER))
    assert root.ask("PUT", "/admin/v2/tenants/acme", TENANT).status == 204
    assert root.ask("PUT", NAMESPACE).status == 204
    for role in ("app", "other"):
        assert root.ask("POST", f"{NAMESPACE}/permissions/{role}", ["produce", "consume"]).status == 204
    root.close()


def ask(http: Http, method: str, path: str, body: object = None) -> None:
    assert http.ask(method, path, body).status == 204


def take_all(http: Http) -> None:
    ask(http, "DELETE", f"{NAMESPACE}/permissions/app")


def leave_producing(http: Http) -> None:
    ask(http, "POST", f"{NAMESPACE}/permissions/app", ["produce"])


def leave_consuming(http: Http) -> None:
    ask(http, "POST", f"{NAMESPACE}/permissions/app", ["consume"])


def close_the_subscription(http: Http) -> None:
    ask(http, "POST", f"{NAMESPACE}/permissions/subscription/s", ["other"])


def want_prefixes(http: Http) -> None:
    ask(http, "POST", f"{NAMESPACE}/subscriptionAuthMode", "Prefix")


def opened(world: Secured, stack: ExitStack, role: str, domain: str) -> RawClient:
    """A client of ``role`` with a producer and a consumer of the same topic."""
    client = stack.enter_context(world.raw(Who(role)))
    topic = f"{domain}://acme/ns/t"
    must_succeed(client.open_producer(topic, 1))
    must_succeed(client.subscribe(topic, "s", 2, kind=CommandSubscribe.Shared, permits=100))
    return client


def told(client: RawClient) -> list[int]:
    """The kinds of commands that the client was sent until its PING is answered."""
    client.tell(commands.ping())
    kinds: list[int] = []
    while (kind := client.next_command().type) != BaseCommand.PONG:
        kinds.append(kind)
    return kinds


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
@pytest.mark.parametrize(
    ("change", "ends"),
    [
        (take_all, [BaseCommand.CLOSE_CONSUMER, BaseCommand.CLOSE_PRODUCER]),
        (leave_producing, [BaseCommand.CLOSE_CONSUMER]),
        (leave_consuming, [BaseCommand.CLOSE_PRODUCER]),
        (close_the_subscription, [BaseCommand.CLOSE_CONSUMER]),
        (want_prefixes, [BaseCommand.CLOSE_CONSUMER]),
    ],
)
def test_open_producers_and_consumers_end_with_their_right(
    world: Secured, domain: str, change: Change, ends: list[int]
) -> None:
    """Within the second that a client waits here for nothing else; one with another role goes on."""
    http = world.http(Who("boss"))
    with ExitStack() as stack:
        mine, others = opened(world, stack, "app", domain), opened(world, stack, "other", domain)
        change(http)
        mine.socket.settimeout(1)
        assert [mine.next_command().type for _ in ends] == ends
        assert BaseCommand.CLOSE_PRODUCER not in told(others)
        if BaseCommand.CLOSE_PRODUCER in ends:
            again = refused(mine.open_producer(f"{domain}://acme/ns/t", 1))
            assert again == (UNAUTHORIZED, "Client is not authorized to Produce")
        if BaseCommand.CLOSE_CONSUMER in ends:
            assert refused(mine.subscribe(f"{domain}://acme/ns/t", "s", 2))[0] == UNAUTHORIZED
    http.close()


def refused(answer: BaseCommand) -> tuple[int, str]:
    assert answer.type == BaseCommand.ERROR, answer
    return answer.error.error, answer.error.message


def test_sends_and_acks_that_come_later_do_nothing(world: Secured) -> None:
    """They cross with the CLOSE of the broker, as they may: no entry is stored, nothing is acknowledged."""
    http = world.http(Who("boss"))
    with world.raw(Who("app")) as client:
        must_succeed(client.open_producer("persistent://acme/ns/t", 1))
        must_succeed(client.subscribe("persistent://acme/ns/t", "s", 2, permits=10))
        client.send_entry(1, 0, ENTRY)
        seen = [client.next_frame(), client.next_frame()]
        message = next(each for each in map(_parsed, seen) if each.type == BaseCommand.MESSAGE)
        take_all(http)
        client.send_entry(1, 1, ENTRY)
        ack = BaseCommand(type=BaseCommand.ACK, ack={"consumer_id": 2, "ack_type": 0, "request_id": 9})
        ack.ack.message_id.append(message.message.message_id)
        client.tell(ack)
        assert BaseCommand.SEND_RECEIPT not in told(client)
    stats = http.ask("GET", "/admin/v2/persistent/acme/ns/t/stats").content
    assert (stats["msgInCounter"], stats["subscriptions"]["s"]["msgBacklog"]) == (1, 1)
    http.close()


def _parsed(frame: object) -> BaseCommand:
    return commands.parse_command(frame.command)  # type: ignore[attr-defined]


def test_messages_of_a_consumer_that_lost_its_right_go_to_others(world: Secured) -> None:
    """They were not acknowledged."""
    http = world.http(Who("boss"))
    with world.raw(Who("app")) as mine, world.raw(Who("other")) as others:
        must_succeed(mine.subscribe("persistent://acme/ns/t", "s", 2, kind=CommandSubscribe.Shared, permits=10))
        must_succeed(others.open_producer("persistent://acme/ns/t", 1))
        others.send_entry(1, 0, ENTRY)
        assert mine.next_command().type == BaseCommand.MESSAGE
        assert others.next_command().type == BaseCommand.SEND_RECEIPT
        must_succeed(others.subscribe("persistent://acme/ns/t", "s", 2, kind=CommandSubscribe.Shared, permits=10))
        take_all(http)
        assert others.next_command().type == BaseCommand.MESSAGE
    http.close()


def test_a_granted_right_brings_the_client_back(world: Secured) -> None:
    """On the same connection."""
    http = world.http(Who("boss"))
    with world.raw(Who("app")) as client:
        must_succeed(client.open_producer("persistent://acme/ns/t", 1))
        take_all(http)
        assert client.next_command().type == BaseCommand.CLOSE_PRODUCER
        ask(http, "POST", "/admin/v2/persistent/acme/ns/t/permissions/app", ["produce"])
        must_succeed(client.open_producer("persistent://acme/ns/t", 1))
        ask(http, "DELETE", "/admin/v2/persistent/acme/ns/t/permissions/app")
        assert client.next_command().type == BaseCommand.CLOSE_PRODUCER
    http.close()


def test_a_watch_of_topics_ends_with_its_right(world: Secured) -> None:
    """It tells of no topic that is made later."""
    http = world.http(Who("boss"))
    with world.raw(Who("app")) as client:
        watch = BaseCommand(
            type=BaseCommand.WATCH_TOPIC_LIST,
            watchTopicList={"namespace": "acme/ns", "topics_pattern": ".*", "watcher_id": 1, "request_id": 1},
        )
        assert client.ask(watch).type == BaseCommand.WATCH_TOPIC_LIST_SUCCESS
        ask(http, "PUT", "/admin/v2/persistent/acme/ns/before")
        assert client.next_command().type == BaseCommand.WATCH_TOPIC_UPDATE
        take_all(http)
        ask(http, "PUT", "/admin/v2/persistent/acme/ns/after")
        assert told(client) == []
        assert refused(client.ask(watch))[0] == UNAUTHORIZED
    http.close()


def test_an_administrator_who_is_none_any_more_loses_all_that_is_open(world: Secured) -> None:
    """A tenant's administrators need no grants, so that change is one of rights."""
    root = world.http(Who(SUPERUSER))
    with world.raw(Who("boss")) as client:
        must_succeed(client.open_producer("persistent://acme/ns/t", 1))
        ask(root, "POST", "/admin/v2/tenants/acme", {**TENANT, "adminRoles": ["somebody"]})
        assert client.next_command().type == BaseCommand.CLOSE_PRODUCER
    root.close()


def test_a_proxy_loses_what_the_role_loses_that_it_speaks_for(world: Secured) -> None:
    """Though its own role may do everything."""
    http = world.http(Who("boss"))
    with world.raw(Who("proxy-root", "app")) as client:
        must_succeed(client.open_producer("persistent://acme/ns/t", 1))
        take_all(http)
        assert client.next_command().type == BaseCommand.CLOSE_PRODUCER
    http.close()


def test_right_is_asked_for_again_where_a_schema_took_long(world: Secured) -> None:
    """10.13, 10.15: nobody is let in by a right that was taken away while a schema was compared."""
    large = on_wire(avro(*(f"field{number}=0" for number in range(15_000))))
    root = world.http(Who(SUPERUSER))
    with world.raw(Who("app")) as client:
        command = BaseCommand(type=BaseCommand.PRODUCER)
        command.producer.topic, command.producer.producer_id, command.producer.request_id = "acme/ns/t", 1, 1
        command.producer.schema.CopyFrom(large)
        client.tell(command)
        take_all(root)
        answer = client.next_command()
        if answer.type == BaseCommand.PRODUCER_SUCCESS:  # the machine was quicker: then it is ended as any other
            answer = client.next_command()
            assert answer.type == BaseCommand.CLOSE_PRODUCER
        else:
            assert answer.error.error == UNAUTHORIZED
    root.close()
