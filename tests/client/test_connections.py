# SPDX-License-Identifier: Apache-2.0
"""Connections and lookups against a broker that does what the test says."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from broker_core.base.errors import (
    AlreadyClosedError,
    AuthenticationError,
    ConfigError,
    ConnectionLostError,
    ConsumerBusyError,
    NotAllowedError,
    OperationTimeoutError,
    PulsarishError,
    SendUnconfirmedError,
    ServiceNotReadyError,
    TopicTerminatedError,
)
from broker_core.base.positions import Position
from broker_core.client import AsyncClient, ClientConfig
from broker_core.client.connecting import connection
from broker_core.testing.running_broker import HeldPort
from broker_core.wire.commands import close_consumer, error, ping, send_error, success
from broker_core.wire.frames import encode_command
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.helpers import WAIT_S
from tests.client.scenes import run, subscribes
from tests.client.scripted_broker import Peer, ScriptedBroker, answer, lookup_answer, scripted_broker


@pytest.fixture
def held_port() -> Iterator[HeldPort]:
    """Nobody listens there, and nobody else will."""
    held = HeldPort()
    yield held
    held.release()


def test_a_client_whose_close_is_cut_off_leaves_no_connection() -> None:
    """1.7.8 Ctrl-C while it waits for receipts: nobody can close it once more, and what was sent may be stored."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer("t")
        sending = asyncio.ensure_future(producer.send("never confirmed"))
        await broker.until(lambda: bool(broker.peers[0].sends))
        closing = asyncio.ensure_future(client.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await broker.until(lambda: all(peer.has_ended for peer in broker.peers))
        with pytest.raises(SendUnconfirmedError, match="the client was closed"):
            await sending

    run(play)


def test_the_handshake_announces_what_we_can() -> None:
    """B.2 protocol version, broker entry metadata, metadata without auto-creation."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        await client.partitions("t")
        connect = broker.peers[0].received[0].connect
        assert connect.protocol_version == 21
        assert connect.feature_flags.supports_broker_entry_metadata
        assert connect.feature_flags.supports_get_partitioned_metadata_without_auto_creation
        assert connect.client_version.startswith("Pulsarish")

    run(play)


def test_a_refused_handshake_tells_why() -> None:
    """A broker's answer to CONNECT is not taken for a lost connection."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.CONNECT] = lambda peer, command: peer.send(error(0, AuthenticationError("who?")))
        with pytest.raises(AuthenticationError, match=r"who\?"):
            await client.partitions("t")

    run(play)


def test_an_address_where_nobody_listens_is_named() -> None:
    """The error says where, why, for how long it was tried, and what to look at."""

    async def whole() -> None:
        config = ClientConfig(service_url="pulsar://127.0.0.1:1", operation_timeout_s=3)
        async with AsyncClient(config) as client:
            with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:1.*tried for 3 s.*is a broker running"):
                await client.partitions("t")

    asyncio.run(whole())


def test_what_cannot_be_the_name_of_a_host_is_told_at_once() -> None:
    """Python finds that before it asks for the address, in words about an encoding."""

    async def whole() -> None:
        async with AsyncClient(ClientConfig(service_url="pulsar://broker..example")) as client:
            with pytest.raises(ConfigError, match=r"broker\.\.example:6650: that is no name of a host"):
                await client.partitions("t")

    asyncio.run(whole())


def test_a_producer_that_is_sent_to_no_host_goes_on() -> None:
    """The lookup has a better address; the producer must not wait for ever."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        producer = await client.create_producer("t")
        moved = pb.CommandCloseProducer(
            producer_id=0, request_id=2**64 - 1, assignedBrokerServiceUrl="pulsar://broker..example:6650"
        )
        broker.peers[0].send(BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=moved))
        await broker.until(lambda: broker.peers[0].count(BaseCommand.PRODUCER) == 2)
        assert await producer.send("x")

    run(play)


@pytest.mark.parametrize("redirect", [False, True])
def test_an_address_that_a_lookup_named_is_not_blamed_on_the_service_url(held_port: HeldPort, redirect: bool) -> None:
    """Who asked whom is said, and that another broker will take over; for all that attaches, and for a redirect."""
    dead = f"pulsar://127.0.0.1:{held_port.number}"

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.LOOKUP] = lambda peer, command: peer.send(
            lookup_answer(command, dead, redirect=redirect)
        )
        for use in (client.create_producer, client.last_entry, client.create_reader):
            with pytest.raises(ConnectionLostError) as caught:
                await use("t")
            assert f"cannot connect to broker {dead}, to which a lookup at {broker.service_url} led: " in str(
                caught.value
            )
            assert "is the service URL right" not in str(caught.value)

    run(play, operation_timeout_s=1)


def test_a_silent_broker_is_a_timeout() -> None:
    """A handshake that does not end, and a request that is not answered."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.PARTITIONED_METADATA] = lambda peer, command: None
        with pytest.raises(OperationTimeoutError, match=r"cannot ask for the partitions of .*: no answer came in"):
            await client.partitions("t")
        broker.peers[-1].transport.abort()
        broker.handlers[BaseCommand.CONNECT] = lambda peer, command: None
        with pytest.raises(OperationTimeoutError, match="handshake"):
            await client.partitions("t")

    run(play, operation_timeout_s=3, connection_timeout_s=0.5)


@pytest.mark.parametrize("answers", [True, False])
def test_silence_is_answered_with_pings(answers: bool) -> None:
    """B.2 after an interval of silence a ping, after another one without a sign of life the connection is given up."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        if not answers:
            broker.handlers[BaseCommand.PING] = lambda peer, command: None
        await client.create_producer("t")
        first = broker.peers[0]
        if answers:
            await broker.until(lambda: first.count(BaseCommand.PING) >= 3)
            assert len(broker.peers) == 1
        else:
            await broker.until(lambda: len(broker.peers) == 2)
            assert first.count(BaseCommand.PING) == 1

    run(play, keep_alive_interval_s=1.5)


def test_pings_of_the_broker_are_answered() -> None:
    """B.2 the client answers the broker's pings."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        await client.partitions("t")
        broker.peers[0].send(ping())
        await broker.until(lambda: broker.peers[0].count(BaseCommand.PONG) == 1)

    run(play)


@pytest.mark.parametrize("damage", [b"\x00\x00\x00\x05\x00\x00\x00\x01\xff", b"\x7f\xff\xff\xff\x00\x00\x00\x01x"])
def test_nonsense_ends_the_connection_and_not_the_client(damage: bytes) -> None:
    """Bytes against the protocol: the connection is dropped, and a new one serves what is left to do."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        producer = await client.create_producer("t")
        broker.peers[0].transport.write(damage)
        await broker.until(lambda: len(broker.peers) == 2)
        assert await producer.send("x")

    run(play)


def test_redirects_are_followed_and_counted() -> None:
    """LOOKUP Redirect: asked again at the other broker, authoritative; a ring of redirects ends."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        async with scripted_broker() as other:
            broker.handlers[BaseCommand.LOOKUP] = lambda peer, command: peer.send(
                lookup_answer(command, other.service_url, redirect=True)
            )
            producer = await client.create_producer("t")
            assert await producer.send("x")
            asked = [c.lookupTopic for c in other.peers[0].received if c.type == BaseCommand.LOOKUP]
            assert [each.authoritative for each in asked] == [True]
            assert len(other.peers[0].sends) == 1
            other.handlers[BaseCommand.LOOKUP] = broker.handlers[BaseCommand.LOOKUP]
            with pytest.raises(PulsarishError, match="redirected 20 times"):
                await client.create_producer("t2")
            await producer.close()

    run(play)


def test_a_proxy_is_told_which_broker_is_meant() -> None:
    """proxy_through_service_url: a connection of its own to the service URL, with proxy_to_broker_url."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.LOOKUP] = lambda peer, command: peer.send(
            lookup_answer(command, "pulsar://inner:6650", proxy=True)
        )
        await client.create_producer("t")
        assert [peer.received[0].connect.proxy_to_broker_url for peer in broker.peers] == ["", "inner:6650"]

    run(play)


def test_the_next_host_is_tried() -> None:
    """A service URL with several hosts works while one of them does."""

    async def whole() -> None:
        async with scripted_broker() as broker:
            url = "pulsar://127.0.0.1:1," + broker.service_url.removeprefix("pulsar://")
            async with AsyncClient(ClientConfig(service_url=url, backoff_first_s=0.01)) as client:
                assert await client.partitions("t") == 0

    asyncio.run(whole())


def test_the_next_host_is_tried_however_many_wait_for_the_first() -> None:
    """Those who fail together step on together: two steps of two hosts lead back to the one that is not there."""

    async def whole() -> None:
        async with scripted_broker() as broker:
            url = "pulsar://127.0.0.1:1," + broker.service_url.removeprefix("pulsar://")
            async with AsyncClient(ClientConfig(service_url=url)) as client:
                lookup = client._network.lookup
                failures = await asyncio.gather(
                    lookup.service_connection(), lookup.service_connection(), return_exceptions=True
                )
                assert [type(each) for each in failures] == [ConnectionLostError] * 2
                assert (await lookup.service_connection()).is_open

    asyncio.run(whole())


def test_the_next_host_is_tried_though_nobody_waited_for_the_first_to_fail() -> None:
    """A host that drops what it gets keeps a connection waiting for longer than a call may last."""

    async def whole() -> None:
        async with scripted_broker() as silent, scripted_broker() as broker:
            silent.handlers[BaseCommand.CONNECT] = lambda peer, command: None
            url = f"{silent.service_url},{broker.service_url.removeprefix('pulsar://')}"
            async with AsyncClient(ClientConfig(service_url=url, operation_timeout_s=0.2)) as client:
                with pytest.raises(OperationTimeoutError):
                    await client.partitions("t")
                assert (await client._network.lookup.service_connection()).is_open

    asyncio.run(whole())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere 127.0.0.1 is the only one of its kind")
def test_the_next_address_of_a_name_is_tried_where_the_first_does_not_answer() -> None:
    """A machine that is off answers nothing; the name of a service has the addresses of several."""

    async def whole() -> None:
        async with scripted_broker() as broker:
            port = int(broker.service_url.rpartition(":")[2])
            with socket.create_server(("127.0.0.2", port), backlog=0) as silent, contextlib.ExitStack() as waiting:
                for _ in range(2):  # Who comes now finds the queue full.
                    waiting.enter_context(_begun(silent.getsockname()))
                found = [
                    (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))
                    for host in ("127.0.0.2", "127.0.0.1")
                ]
                asyncio.get_running_loop().getaddrinfo = _finding(found)  # type: ignore[method-assign]
                config = ClientConfig(service_url=f"pulsar://service.example:{port}", connection_timeout_s=1)
                async with AsyncClient(config) as client:
                    assert (await client._network.lookup.service_connection()).is_open

    asyncio.run(whole())


def _begun(address: tuple[str, int]) -> socket.socket:
    """A connection to ``address`` that is begun."""
    begun = socket.socket()
    begun.setblocking(False)
    begun.connect_ex(address)
    return begun


def _finding(found: list[Any]) -> Any:
    """The look-up of a name that finds what is given."""

    async def getaddrinfo(*_: object, **__: object) -> list[Any]:
        return found

    return getaddrinfo


def test_errors_that_may_pass_are_tried_again_and_others_are_not() -> None:
    """B.4 ServiceNotReady is retried until the operation timeout; ConsumerBusy is final at the first subscribe."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        refusals = [ServiceNotReadyError("soon"), ServiceNotReadyError("soon")]

        def refuse(peer: Peer, command: BaseCommand) -> None:
            if refusals:
                peer.send(error(command.subscribe.request_id, refusals.pop()))
            else:
                answer(peer, command)

        broker.handlers[BaseCommand.SUBSCRIBE] = refuse
        await (await client.subscribe("t", "s")).close()
        assert len(subscribes(broker)) == 3
        refusals.append(ConsumerBusyError("taken"))  # type: ignore[arg-type]
        with pytest.raises(ConsumerBusyError, match="taken"):
            await client.subscribe("t", "s")
        assert len(subscribes(broker)) == 4

    run(play)


def test_a_topic_that_goes_away_ends_its_consumer() -> None:
    """A refusal that will last is told to whoever receives."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s")
        broker.handlers[BaseCommand.SUBSCRIBE] = lambda peer, command: peer.send(
            error(command.subscribe.request_id, TopicTerminatedError("over"))
        )
        broker.peers[0].send(close_consumer(0, -1))
        with pytest.raises(TopicTerminatedError, match="over"):
            await consumer.receive(WAIT_S)

    run(play)


def test_closing_the_client_closes_everything() -> None:
    """What was made from a client is closed with it, and says so afterwards."""

    async def whole() -> None:
        async with scripted_broker() as broker:
            client = AsyncClient(ClientConfig(service_url=broker.service_url))
            producer = await client.create_producer("t", batching_max_publish_delay_s=60)
            consumer = await client.subscribe("t", "s")
            producer.enqueue(*_outgoing("queued"))
            await client.close()
            peer = broker.peers[0]
            assert len(peer.sends) == 1
            assert (peer.count(BaseCommand.CLOSE_PRODUCER), peer.count(BaseCommand.CLOSE_CONSUMER)) == (1, 1)
            with pytest.raises(AlreadyClosedError):
                await producer.send("x")
            with pytest.raises(AlreadyClosedError):
                await consumer.receive(0.1)
            with pytest.raises(AlreadyClosedError):
                await client.partitions("t")

    asyncio.run(whole())


def test_what_was_lost_by_several_producers_is_told_of_each(caplog: pytest.LogCaptureFixture) -> None:
    """The close of their client can raise one failure only; the others are in the log."""

    async def whole() -> None:
        async with scripted_broker() as broker:
            broker.on_send = lambda peer, sequence_id: peer.send(
                send_error(peer.producer_id, sequence_id, NotAllowedError(f"not by {peer.producer_id}"))
            )
            client = AsyncClient(ClientConfig(service_url=broker.service_url))
            for topic in ("t", "u"):
                producer = await client.create_producer(topic)
                message = producer.outgoing("lost")
                await producer.reserve(message.size_bytes)
                producer.enqueue(message, None, at_once=True)
            with pytest.raises(NotAllowedError) as raised:
                await client.close()
            assert sorted([raised.value.message, caplog.messages[-1].rpartition("=")[2]]) == ["not by 0", "not by 1"]

    asyncio.run(whole())


def _outgoing(value: str) -> tuple[Any, None]:
    from broker_core.client.messages.outgoing import outgoing

    return outgoing(value), None


def test_a_client_closes_though_its_broker_takes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is stopped or stuck keeps the socket open for ever, and what is not sent to it never leaves."""
    monkeypatch.setattr(connection, "LINGER_S", 0.01)

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        await client.partitions("t")
        shared = await client._network.lookup.service_connection()
        broker.peers[0].transport.pause_reading()
        shared.write(bytes(64 * 1024 * 1024))
        async with asyncio.timeout(WAIT_S):
            await client.close()

    run(play)


def test_a_connection_that_opens_while_the_client_closes_is_closed() -> None:
    """Nobody would close it later: a bulk reader's connection is its own."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        await client.partitions("t")
        held: list[tuple[Peer, BaseCommand]] = []
        broker.handlers[BaseCommand.CONNECT] = lambda peer, command: held.append((peer, command))
        reading = asyncio.ensure_future(client.read_entries("t", Position(1, 0), None))
        await broker.until(lambda: bool(held))
        await client.close()
        answer(*held[0])
        with pytest.raises(AlreadyClosedError):
            await reading
        await broker.until(lambda: held[0][0].has_ended)

    run(play)


def test_who_waits_for_a_connection_of_a_client_that_closes_is_told_so() -> None:
    """And is not cancelled, which nobody has asked for: a group of tasks says nothing of one that was."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.CONNECT] = lambda peer, command: None
        asking = asyncio.ensure_future(client.partitions("t"))
        await broker.until(lambda: bool(broker.peers) and broker.peers[0].count(BaseCommand.CONNECT) == 1)
        await client.close()
        with pytest.raises(AlreadyClosedError, match="the client was closed"):
            await asking

    run(play)


def test_an_unknown_answer_is_ignored() -> None:
    """An answer to a request that was given up disturbs nobody."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        await client.partitions("t")
        broker.peers[0].transport.write(encode_command(success(12345)))
        assert await client.partitions("t") == 0
        assert len(broker.peers) == 1

    run(play)
