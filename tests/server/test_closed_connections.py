# SPDX-License-Identifier: Apache-2.0
"""A connection that has ended leaves no circle of objects behind. Python finds circles only when it looks at all
objects, which the broker does when nobody is connected; until then each would stay in memory."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
import pytest
import uvloop

from broker_core.base.settings import Settings
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.sim_disk import SimDisk
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandSubscribe, MessageMetadata, ProducerAccessMode
from tests.server.certificates import Authority
from tests.server.credentials import PASSWORD, connect, settings, token
from tests.server.server_thread import ServerThread

TOPIC: Final = "persistent://public/default/t"
UNSTORED: Final = "non-persistent://public/default/t"
SUBSCRIPTION_TYPES: Final = (
    CommandSubscribe.Exclusive,
    CommandSubscribe.Shared,
    CommandSubscribe.Failover,
    CommandSubscribe.Key_Shared,
)
TIMES: Final = 4
OURS: Final = ("broker_core.", "h11", "starlette")


class World(NamedTuple):
    """A broker with tokens, passwords, rights and TLS, and what a client needs."""

    server: ServerThread
    token: str
    tls: ssl.SSLContext

    def client(self, *, tls: bool = False) -> RawClient:
        """A client that may do everything."""
        url = self.server.service_url_tls if tls else self.server.service_url
        return RawClient(url, token=self.token, tls=self.tls if tls else None)

    def stranger(self) -> RawClient:
        """A client that has said nothing yet."""
        return RawClient(self.server.service_url, connect=False)

    def http(self, *, tls: bool = False) -> socket.socket:
        """A connection to the admin REST."""
        url = urlsplit(self.server.http_url_tls if tls else self.server.http_url)
        assert url.hostname is not None
        plain = socket.create_connection((url.hostname, url.port or 0), 60)
        return self.tls.wrap_socket(plain, server_hostname=url.hostname) if tls else plain


@pytest.fixture(scope="module", params=[uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("broker")
    authority = Authority(folder)
    pair = authority.issue("server", "127.0.0.1")
    secured = settings(
        folder,
        authorizationEnabled=True,
        superUserRoles=["root"],
        brokerServicePortTls=0,
        webServicePortTls=0,
        tlsCertificateFilePath=pair.certificate,
        tlsKeyFilePath=pair.key,
    )
    with ServerThread(SimDisk(), msgspec.convert(secured, Settings), request.param) as server:
        world = World(server, token("root"), authority.client())
        produces(world)  # for those that consume
        yield world


def entry() -> bytes:
    """A message with a key."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, partition_key="k")
    return seal_entry(metadata.SerializeToString(), b"x")


# -- clients, each for one connection or two


def says_nothing(world: World) -> None:
    world.stranger().close()


def says_connect(world: World) -> None:
    world.client().close()


def says_connect_over_tls(world: World) -> None:
    world.client(tls=True).close()


def speaks_no_tls(world: World) -> None:
    with RawClient(world.server.service_url_tls, connect=False) as client:
        client.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
        client.ended_by_broker()


def speaks_no_pulsar(world: World) -> None:
    with world.stranger() as client:
        client.socket.sendall(b"\xff" * 100)
        assert client.ended_by_broker()


def shows_a_bad_token(world: World) -> None:
    with world.stranger() as client:
        assert client.ask(connect("token", "nonsense")).type == BaseCommand.ERROR


def shows_a_bad_password(world: World) -> None:
    with world.stranger() as client:
        assert client.ask(connect("basic", "basil:wrong")).type == BaseCommand.ERROR


def shows_a_password(world: World) -> None:
    with world.stranger() as client:
        assert client.ask(connect("basic", f"basil:{PASSWORD}")).type == BaseCommand.CONNECTED


def leaves_while_its_password_is_checked(world: World) -> None:
    with world.stranger() as client:
        client.tell(connect("basic", f"basil:{PASSWORD}"))


def stays_until_its_token_has_expired(world: World) -> None:
    with world.stranger() as client:
        client.ask(connect("token", token("root", lives_s=0.1)))
        assert client.ended_by_broker()


def asks_what_it_has_no_right_to(world: World) -> None:
    with RawClient(world.server.service_url, token=token("nobody")) as client:
        assert client.open_producer(TOPIC).type == BaseCommand.ERROR
        assert client.subscribe(TOPIC, "s").type == BaseCommand.ERROR


def produces(world: World) -> None:
    with world.client() as client:
        must_succeed(client.open_producer(TOPIC))
        client.send_entry(0, 0, entry())
        assert client.next_command().type == BaseCommand.SEND_RECEIPT


def produces_with_many_producers(world: World) -> None:
    with world.client() as client:
        for number in range(3):
            must_succeed(client.open_producer(TOPIC, number))
        for number in range(3):
            client.send_entry(number, 0, entry())
        for _ in range(3):
            assert client.next_command().type == BaseCommand.SEND_RECEIPT


def leaves_before_its_receipt(world: World) -> None:
    with world.client() as client:
        must_succeed(client.open_producer(TOPIC))
        client.send_entry(0, 0, entry())
        client.tell(BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer={"producer_id": 0, "request_id": 1}))


def waits_for_exclusive_access(world: World) -> None:
    with world.client() as first, world.client() as client:
        must_succeed(first.open_producer(TOPIC + "-exclusive"))
        command = BaseCommand(type=BaseCommand.PRODUCER)
        command.producer.topic, command.producer.producer_id, command.producer.request_id = TOPIC + "-exclusive", 0, 1
        command.producer.producer_access_mode = ProducerAccessMode.AccessWaitForExclusive
        must_succeed(client.ask(command))


def watches_topics(world: World) -> None:
    with world.client() as client:
        command = BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST)
        watch = command.watchTopicList
        watch.namespace, watch.topics_pattern, watch.watcher_id, watch.request_id = "public/default", ".*", 1, 1
        assert client.ask(command).type == BaseCommand.WATCH_TOPIC_LIST_SUCCESS


def reads(world: World) -> None:
    with world.client() as client:
        command = BaseCommand(type=BaseCommand.SUBSCRIBE)
        subscribe = command.subscribe
        subscribe.topic, subscribe.subscription, subscribe.subType = TOPIC, "reader", CommandSubscribe.Exclusive
        subscribe.consumer_id, subscribe.request_id, subscribe.durable = 0, 1, False
        subscribe.initialPosition = CommandSubscribe.Earliest
        must_succeed(client.ask(command))
        client.flow(0, 10)
        assert client.next_command().type == BaseCommand.MESSAGE


def consumes(kind: CommandSubscribe.SubType, topic: str = TOPIC) -> Callable[[World], None]:
    """A client that leaves with what it was given, and another one that comes before it leaves."""

    def consume(world: World) -> None:
        with world.client() as client:
            must_succeed(client.subscribe(topic, f"s{kind}", kind=kind, permits=10))
            if topic.startswith("persistent"):
                while client.next_command().type != BaseCommand.MESSAGE:
                    pass
            with world.client() as other:
                other.subscribe(topic, f"s{kind}", kind=kind, permits=10)

    return consume


def is_sent_away(world: World) -> None:
    with world.client() as client:
        must_succeed(client.subscribe(TOPIC, "seeks"))
        seek = BaseCommand(type=BaseCommand.SEEK, seek={"consumer_id": 0, "request_id": 1, "message_publish_time": 1})
        client.tell(seek)
        answers = {client.next_command().type, client.next_command().type}
        assert answers == {BaseCommand.SUCCESS, BaseCommand.CLOSE_CONSUMER}


def unsubscribes(world: World) -> None:
    with world.client() as client:
        must_succeed(client.subscribe(TOPIC, "gone"))
        command = BaseCommand(type=BaseCommand.UNSUBSCRIBE, unsubscribe={"consumer_id": 0, "request_id": 1})
        assert client.ask(command).type == BaseCommand.SUCCESS


def requests(method: str, path: str, *, tls: bool = False) -> Callable[[World], None]:
    """An HTTP client that reads its answer to the end."""

    def request(world: World) -> None:
        with world.http(tls=tls) as client:
            head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {world.token}\r\n"
            client.sendall(f"{head}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
            while client.recv(65536):
                pass

    return request


def leaves_before_its_answer(world: World) -> None:
    with world.http() as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")


def sends_no_request(world: World) -> None:
    world.http().close()


def sends_no_http(world: World) -> None:
    with world.http() as client:
        client.sendall(b"\x00\x01\r\n\r\n")
        client.recv(65536)


KINDS: Final[dict[str, Callable[[World], None]]] = {
    **{
        each.__name__: each
        for each in (
            says_nothing, says_connect, says_connect_over_tls, speaks_no_tls, speaks_no_pulsar, shows_a_bad_token,
            shows_a_bad_password, shows_a_password, leaves_while_its_password_is_checked,
            stays_until_its_token_has_expired, asks_what_it_has_no_right_to, produces, produces_with_many_producers,
            leaves_before_its_receipt, waits_for_exclusive_access, watches_topics, reads, is_sent_away, unsubscribes,
            leaves_before_its_answer, sends_no_request, sends_no_http,
        )
    },
    **{f"consumes {CommandSubscribe.SubType.Name(kind)}": consumes(kind) for kind in SUBSCRIPTION_TYPES},
    **{
        f"consumes {CommandSubscribe.SubType.Name(kind)} what is not stored": consumes(kind, UNSTORED)
        for kind in SUBSCRIPTION_TYPES
    },
    "requests": requests("GET", "/admin/v2/tenants"),
    "requests over TLS": requests("GET", "/admin/v2/tenants", tls=True),
    "requests metrics": requests("GET", "/metrics"),
    "requests what is not there": requests("GET", "/admin/v2/persistent/public/default/nothing/stats"),
    "requests statistics": requests("GET", "/admin/v2/persistent/public/default/t/stats"),
    "requests no path": requests("PATCH", "/nowhere"),
    "makes a subscription": requests("PUT", "/admin/v2/persistent/public/default/t/subscription/made"),
    "deletes a subscription": requests("DELETE", "/admin/v2/persistent/public/default/t/subscription/made"),
}  # fmt: skip


@pytest.fixture
def garbage() -> Iterator[Callable[[], list[object]]]:
    """Circles that came to be in the test: those of before are gone, and none is looked for meanwhile."""

    def found() -> list[object]:
        gc.collect()
        return list(gc.garbage)

    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("kind", KINDS)
def test_a_connection_that_has_ended_leaves_no_circles(
    world: World, garbage: Callable[[], list[object]], kind: str
) -> None:
    """Whatever a client was and did, nothing of it waits for a look at all objects."""
    for _ in range(TIMES):
        KINDS[kind](world)
    world.server.until_nobody_is_connected()
    left = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in garbage())
    assert not {name: count for name, count in left.items() if name.startswith(OURS)}
