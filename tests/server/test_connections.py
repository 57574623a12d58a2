# SPDX-License-Identifier: Apache-2.0
"""How connections begin, live and end: handshake, keep-alive, limits, clients that do not read."""

import socket
import struct
import time
from pathlib import Path

import httpx
import psutil
import pytest

from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire import commands
from broker_core.wire.core.hot_commands import send_frame_head
from broker_core.wire.entry import seal_entry, split_broker_entry
from broker_core.wire.frames import encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata
from tests.client.helpers import eventually

MIB = 1024 * 1024


def entry(payload: bytes) -> bytes:
    """An intact single message."""
    return seal_entry(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString(), payload)


def send_for_ever(client: RawClient, content: bytes) -> None:
    """Until the socket refuses."""
    while True:
        client.socket.sendall(content)


def rss_bytes(broker: RunningBroker) -> int:
    """Memory of the broker process."""
    return int(psutil.Process(broker.pid).memory_info().rss)


@pytest.mark.parametrize(("announced", "agreed"), [(0, 0), (12, 12), (20, 20), (21, 21), (99, 21)])
def test_the_lower_protocol_version_is_agreed_on(broker: RunningBroker, announced: int, agreed: int) -> None:
    """min(own, client's); what is left out counts as 0."""
    with RawClient(broker.service_url, connect=False) as client:
        connected = client.ask(commands.connect("old or new", announced)).connected
    assert connected.protocol_version == agreed
    assert connected.server_version.startswith("Pulsarish ")
    assert connected.max_message_size == 5 * MIB


@pytest.mark.parametrize("supported", [False, True])
def test_broker_entry_metadata_comes_only_if_the_client_supports_it(
    broker: RunningBroker, topic: str, supported: bool
) -> None:
    """PIP-70: broker time and the index of the last message in front of the entry, else the entry alone."""
    body = entry(b"x")
    with RawClient(broker.service_url, broker_entry_metadata=supported) as client:
        must_succeed(client.open_producer(topic))
        for number in range(3):
            client.send_entry(0, number, body)
            client.next_command()
        must_succeed(client.subscribe(topic, "s", permits=10))
        bodies = [client.next_frame().body for _ in range(3)]
    if not supported:
        assert bodies == [body] * 3
        return
    prefixes, entries = zip(*map(split_broker_entry, bodies), strict=True)
    assert [bytes(one) for one in entries] == [body] * 3
    assert [prefix.index for prefix in prefixes] == [0, 1, 2]
    assert all(abs(prefix.broker_timestamp - time.time_ns() // 1_000_000) < 60_000 for prefix in prefixes)


def test_a_client_that_never_says_connect_is_closed(data_dir: Path) -> None:
    """Row 31: also one that keeps pinging."""
    with (
        RunningBroker(data_dir, {"connectionHandshakeSeconds": 4}) as broker,
        RawClient(broker.service_url) as connected,
    ):
        with RawClient(broker.service_url, connect=False) as silent:
            assert "no CONNECT" in silent.next_command().error.message
            assert silent.ended_by_broker()
        assert connected.ask(commands.ping()).type == BaseCommand.PONG


def test_a_silent_client_is_pinged_and_then_closed(data_dir: Path) -> None:
    """One keep-alive interval without a byte: PING; another one: the end."""
    with (
        RunningBroker(data_dir, {"keepAliveIntervalSeconds": 2, "connectionHandshakeSeconds": 4}) as broker,
        RawClient(broker.service_url) as client,
    ):
        assert client.next_command().type == BaseCommand.PING
        client.tell(commands.pong())
        assert client.next_command().type == BaseCommand.PING
        assert "silent" in client.next_command().error.message
        assert client.ended_by_broker()


def test_more_connections_than_allowed_are_told_so(data_dir: Path) -> None:
    """maxConnections; a place becomes free when somebody leaves."""
    with RunningBroker(data_dir, {"maxConnections": 2}) as broker:
        first, second = RawClient(broker.service_url), RawClient(broker.service_url)
        with RawClient(broker.service_url, connect=False) as third:
            assert "maxConnections" in third.next_command().error.message
            assert third.ended_by_broker()
        second.close()
        deadline = time.monotonic() + 60
        while True:
            with RawClient(broker.service_url, connect=False) as again:
                if again.ask(commands.connect("again", 20)).type == BaseCommand.CONNECTED:
                    break
            assert time.monotonic() < deadline
        first.close()


def test_running_out_of_file_descriptors_is_survived(data_dir: Path) -> None:
    """Row 32: the broker serves those that it has, and new ones once others have left."""
    with RunningBroker(data_dir) as broker:
        psutil.Process(broker.pid).rlimit(psutil.RLIMIT_NOFILE, (64, 64))
        with RawClient(broker.service_url) as early:
            crowd = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(100)]
            assert early.ask(commands.ping()).type == BaseCommand.PONG
            cpu_before = sum(psutil.Process(broker.pid).cpu_times()[:2])
            assert early.ask(commands.ping()).type == BaseCommand.PONG
            for one in crowd:
                one.close()
            deadline = time.monotonic() + 60
            while True:
                try:
                    with RawClient(broker.service_url, timeout_s=10):
                        break
                except Exception:  # noqa: BLE001 - whatever a refused client meets
                    assert time.monotonic() < deadline
            assert sum(psutil.Process(broker.pid).cpu_times()[:2]) - cpu_before < 5


def test_connections_that_take_all_file_descriptors_do_not_stop_the_broker(data_dir: Path) -> None:
    """Row 32: what is published meanwhile goes into a file that has to be made; and the files of topics are opened."""
    body = seal_entry(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString(), b"x")
    with RunningBroker(data_dir) as broker:
        psutil.Process(broker.pid).rlimit(psutil.RLIMIT_NOFILE, (64, 64))
        with RawClient(broker.service_url, timeout_s=60) as early:
            crowd = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(100)]
            for number in range(20):
                must_succeed(early.open_producer(f"t{number}", number))
                early.send_entry(number, 0, body)
                assert early.next_command().type == BaseCommand.SEND_RECEIPT
            for one in crowd:
                one.close()
        broker.stop()


def test_a_client_that_asks_but_never_reads_is_bounded_and_closed(data_dir: Path) -> None:
    """Row 33: a small request with a large answer, over and over: memory stays bounded, then the connection ends."""
    settings = {"writeBufferHighBytes": 65_536, "keepAliveIntervalSeconds": 0.3, "connectionHandshakeSeconds": 4}
    with RunningBroker(data_dir, settings) as broker:
        with httpx.Client(base_url=f"{broker.http_url}/admin/v2/persistent/public/default", timeout=60) as http:
            assert http.put("/wide/partitions", content="1000").status_code == 204
        client = RawClient(broker.service_url, timeout_s=60)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        before = rss_bytes(broker)
        question = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE)
        question.getTopicsOfNamespace.request_id = 1
        question.getTopicsOfNamespace.namespace = "public/default"
        questions = encode_command(question) * 10_000
        with pytest.raises(OSError, match=r"reset|[Bb]roken"):
            send_for_ever(client, questions)
        client.close()
        assert rss_bytes(broker) - before < 32 * MIB
        with RawClient(broker.service_url) as other:
            assert other.ask(commands.ping()).type == BaseCommand.PONG


@pytest.mark.parametrize("how", ["a frame that cannot be", "a half-closed socket"])
def test_a_connection_that_ends_with_answers_unread_holds_up_nobody(data_dir: Path, how: str) -> None:
    """Rows 16, 33: its place is free at once, and a broker that stops does not wait until the client reads."""
    settings = {"writeBufferHighBytes": 64 * MIB}  # so that nothing of the client waits to be read
    with RunningBroker(data_dir, settings) as broker, RawClient(broker.service_url) as client:
        with httpx.Client(base_url=f"{broker.http_url}/admin/v2/persistent/public/default", timeout=60) as http:
            assert http.put("/wide/partitions", content="1000").status_code == 204
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        must_succeed(client.subscribe("t", "s"))
        question = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE)
        question.getTopicsOfNamespace.request_id = 1
        question.getTopicsOfNamespace.namespace = "public/default"
        client.tell(*[question] * 200)
        client.next_command()
        if how == "a half-closed socket":
            client.socket.shutdown(socket.SHUT_WR)
        else:
            client.socket.sendall(b"\xff" * 8)

        def place_is_free() -> bool:
            with RawClient(broker.service_url) as other:
                return other.subscribe("t", "s").type == BaseCommand.SUCCESS

        eventually(place_is_free, "the subscription has no consumer")
        broker.stop()


def test_requests_wait_while_answers_are_unread_and_none_is_lost(data_dir: Path) -> None:
    """The client reads late, but it reads: every request is answered, in order."""
    with RunningBroker(data_dir, {"writeBufferHighBytes": 65_536}) as broker, RawClient(broker.service_url) as client:
        with httpx.Client(base_url=f"{broker.http_url}/admin/v2/persistent/public/default", timeout=60) as http:
            assert http.put("/wide/partitions", content="1000").status_code == 204
        questions = []
        for request_id in range(500):
            question = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE)
            question.getTopicsOfNamespace.request_id = request_id
            question.getTopicsOfNamespace.namespace = "public/default"
            questions.append(question)
        client.tell(*questions)
        answers = [client.next_command().getTopicsOfNamespaceResponse for _ in questions]
        assert [answer.request_id for answer in answers] == list(range(500))


def test_a_slow_consumer_costs_bounded_memory_and_gets_everything_in_the_end(data_dir: Path) -> None:
    """Row 20: dispatch pauses while its socket is full and goes on when it reads."""
    with RunningBroker(data_dir, {"writeBufferHighBytes": MIB, "managedLedgerCacheSizeMbytes": 1}) as broker:
        with RawClient(broker.service_url) as producer:
            must_succeed(producer.open_producer("slow"))
            body = entry(bytes(100_000))
            for number in range(600):
                producer.send_entry(0, number, body)
                producer.next_command()
        before = rss_bytes(broker)
        with RawClient(broker.service_url, broker_entry_metadata=False) as slow:
            must_succeed(slow.subscribe("slow", "s", permits=10_000))
            with RawClient(broker.service_url) as other:
                for _ in range(200):
                    assert other.ask(commands.ping()).type == BaseCommand.PONG
            assert rss_bytes(broker) - before < 24 * MIB
            assert [slow.next_frame().body == body for _ in range(600)] == [True] * 600


def test_a_flood_of_publishes_is_slowed_down_not_hoarded(data_dir: Path) -> None:
    """Row 13: what waits for the disk is bounded; every entry is answered in order all the same."""
    with (
        RunningBroker(data_dir, {"maxMessagePublishBufferSizeInMB": 4}) as broker,
        RawClient(broker.service_url) as client,
    ):
        must_succeed(client.open_producer("flood"))
        body = entry(bytes(200_000))
        before = rss_bytes(broker)
        client.socket.setblocking(True)
        frames = [send_frame_head(0, number, 1, len(body)) + body for number in range(400)]
        peak = 0
        for number, frame in enumerate(frames):
            client.socket.sendall(frame)
            if number % 20 == 0:
                peak = max(peak, rss_bytes(broker) - before)
        answers = [client.next_command().send_receipt.sequence_id for _ in frames]
        assert answers == list(range(400))
        assert peak < 48 * MIB


def test_an_ack_with_a_request_id_is_answered(broker: RunningBroker, topic: str) -> None:
    """3.1.9: and only such an ack; an ack that cannot be right gets the reason."""
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        client.send_entry(0, 0, entry(b"x"))
        where = client.next_command().send_receipt.message_id
        must_succeed(client.subscribe(topic, "s", permits=10))
        client.next_frame()
        ack = BaseCommand(type=BaseCommand.ACK, ack={"consumer_id": 0, "ack_type": 0, "message_id": [where]})
        client.tell(ack, commands.ping())
        assert client.next_command().type == BaseCommand.PONG
        ack.ack.request_id = 0
        answer = client.ask(ack).ackResponse
        assert (answer.consumer_id, answer.request_id, answer.HasField("error")) == (0, 0, False)
        ack.ack.message_id[0].entryId = 77
        ack.ack.request_id = 1
        refusal = client.ask(ack).ackResponse
        assert refusal.HasField("error")
        assert refusal.request_id == 1


def test_connections_that_are_reset_in_full_flight_leave_no_trace(broker: RunningBroker, topic: str) -> None:
    """Row 27: producers and consumers vanish without a word, over and over; the others notice nothing."""
    body = entry(bytes(2000))
    frames = b"".join(send_frame_head(0, number, 1, len(body)) + body for number in range(500))
    descriptors = psutil.Process(broker.pid).num_fds()
    for number in range(30):
        with RawClient(broker.service_url) as client:
            must_succeed(client.open_producer(topic))
            must_succeed(client.subscribe(topic, f"s{number % 3}", permits=100_000))
            client.socket.sendall(frames)
            client.skip_frames(1 + 10 * number)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with RawClient(broker.service_url) as client:
        must_succeed(client.subscribe(topic, "last", permits=1))
        assert client.next_command().type == BaseCommand.MESSAGE
        process = psutil.Process(broker.pid)
        eventually(lambda: process.num_fds() <= descriptors + 4, "their descriptors are free")


def test_consumer_statistics_count_permits_and_backlog(broker: RunningBroker, topic: str) -> None:
    """CONSUMER_STATS, as the C++ client asks for them."""
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        for number in range(5):
            client.send_entry(0, number, entry(b"x"))
            client.next_command()
        must_succeed(client.subscribe(topic, "s", 7, permits=3))
        for _ in range(3):
            client.next_frame()
        stats = client.ask(
            BaseCommand(type=BaseCommand.CONSUMER_STATS, consumerStats={"consumer_id": 7, "request_id": 9})
        ).consumerStatsResponse
    assert (stats.request_id, stats.availablePermits, stats.msgBacklog, stats.type) == (9, 0, 5, "Exclusive")
    assert stats.address.startswith("127.0.0.1:")


def test_a_failing_connection_takes_its_producers_and_consumers_along(broker: RunningBroker, topic: str) -> None:
    """Names and places are free for the next connection."""
    with RawClient(broker.service_url) as first:
        must_succeed(first.open_producer(topic, name="mine"))
        must_succeed(first.subscribe(topic, "s"))
        first.socket.sendall(b"\xff" * 8)
        assert first.ended_by_broker()
    with RawClient(broker.service_url) as second:
        must_succeed(second.open_producer(topic, name="mine"))
        must_succeed(second.subscribe(topic, "s"))
