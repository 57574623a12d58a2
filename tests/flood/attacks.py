# SPDX-License-Identifier: Apache-2.0
"""What one client may send to keep a broker from everybody else. ``size`` scales the number of things; 1 is all."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from contextlib import ExitStack
from typing import Final

from broker_core.base.errors import PulsarishError
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.wire.core.hot_commands import send_frame_head
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandSubscribe,
    KeySharedMode,
    MessageMetadata,
    Schema,
)
from tests.flood.common import (
    Attack,
    blast,
    command_of,
    connect,
    connect_http,
    entry,
    fill,
    frames_of,
    listed_in,
    ping,
    sends,
    subscribing,
)
from tests.flood.memory import MIB
from tests.flood.target import Target

ATTACKS: Final[dict[str, Attack]] = {}
attack = listed_in(ATTACKS)

_PERSISTENT: Final = "persistent://public/default/"


# -- many small things


@attack
def a_million_tiny_sends(target: Target, size: float) -> None:
    count = int(1_000_000 * size)
    with connect(target) as client:
        must_succeed(client.open_producer("sends"))
        blast(client, sends(count, entry()), count)


@attack
def half_a_million_acks(target: Target, size: float) -> None:
    count = int(500_000 * size)
    fill(target, "acks", count)
    with connect(target) as client:
        must_succeed(client.subscribe("acks", "s", kind=CommandSubscribe.Shared, permits=1))
        first = client.next_command().message.message_id
        acks = []
        for entry in range(count):
            ack = command_of(BaseCommand.ACK, consumer_id=0, ack_type=CommandAck.Individual)
            ack.ack.message_id.add(ledgerId=first.ledgerId, entryId=entry)
            acks.append(ack)
        blast(client, frames_of(acks), 0)


def _many(kind: int, answers: bool, count: int, **fields: object) -> Attack:
    def send(target: Target, size: float) -> None:
        number = int(count * size)
        with connect(target) as client:
            commands = []
            for request in range(number):
                command = command_of(kind, **fields)
                part = command.ListFields()[1][1]
                if "request_id" in part.DESCRIPTOR.fields_by_name:
                    part.request_id = request
                commands.append(command)
            blast(client, frames_of(commands), number if answers else 0)

    return send


ATTACKS["lookups"] = _many(BaseCommand.LOOKUP, True, 100_000, topic=_PERSISTENT + "somewhere")
ATTACKS["partition_questions"] = _many(BaseCommand.PARTITIONED_METADATA, True, 100_000, topic=_PERSISTENT + "some")
ATTACKS["refused_lookups"] = _many(BaseCommand.LOOKUP, True, 100_000, topic="a/b/c/d/e")
ATTACKS["pings"] = _many(BaseCommand.PING, True, 200_000)
ATTACKS["flows_of_nobody"] = _many(BaseCommand.FLOW, False, 300_000, consumer_id=9, messagePermits=2**31)


@attack
def refused_acks(target: Target, size: float) -> None:
    with connect(target) as client:
        must_succeed(client.subscribe("refused", "s", kind=CommandSubscribe.Shared))
        ack = command_of(BaseCommand.ACK, consumer_id=0, ack_type=CommandAck.Individual)
        ack.ack.message_id.add(ledgerId=9_999_999, entryId=1)
        blast(client, frames_of([ack]) * int(100_000 * size), 0)


@attack
def connections(target: Target, size: float) -> None:
    for _ in range(int(2_000 * size)):
        with connect(target) as client:
            _reset_when_closed(client)


def _reset_when_closed(client: RawClient) -> None:
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


# -- large commands


def _long_list(kind: str, size_bytes: int, *, partition: bool = False, ack_set: bool = False) -> bytes:
    """One command of up to ``size_bytes`` that names as many messages as there is room for: its ids differ in the entry
    only, or in more."""
    command = command_of(
        getattr(BaseCommand, kind),
        consumer_id=0,
        **({"ack_type": 0} if kind == "ACK" else {}),
    )
    part = command.ListFields()[1][1]
    ids = part.message_id if kind == "ACK" else part.message_ids
    left, number = size_bytes - command.ByteSize(), 0
    while left > _ID_BYTES_MAX:
        each = ids.add(ledgerId=1 + number % 2 if partition else 0, entryId=number % 100_000)
        if partition:
            each.partition = number % 3
        if ack_set and number % 2:
            each.ack_set.append(number)
        left -= each.ByteSize() + 2
        number += 1
    return frames_of([command])


_ID_BYTES_MAX: Final = 32
"""No id of these lists is longer, and so much is left for the lengths of what holds them."""


def _large_list(kind: str, size_bytes: int, times: int, **form: bool) -> Attack:
    def send(target: Target, size: float) -> None:
        fill(target, "lists", int(100_000 * size))
        with connect(target) as client:
            must_succeed(client.subscribe("lists", "s", kind=CommandSubscribe.Shared, permits=1))
            frame = _long_list(kind, max(70_000, int(size_bytes * size)), **form)
            blast(client, frame * times, 0)

    return send


def _large_schemas(text_bytes: int, fields: int) -> Attack:
    """Commands as large as a frame: of one long text, or of very many fields."""

    def send(target: Target, size: float) -> None:
        command = command_of(BaseCommand.GET_OR_CREATE_SCHEMA, request_id=1, topic="schemas")
        command.getOrCreateSchema.schema.CopyFrom(Schema(name="s", schema_data=b"x" * text_bytes, type=Schema.Avro))
        for _ in range(fields):
            command.getOrCreateSchema.schema.properties.add(key="", value="")
        for _ in range(max(1, int(20 * size))):
            with contextlib.suppress(OSError, PulsarishError), connect(target) as client:
                client.ask(command)

    return send


ATTACKS["schemas_of_5_mb"] = _large_schemas(5_200_000, 0)
ATTACKS["schemas_of_a_million_properties"] = _large_schemas(0, 800_000)

_FRAME_BYTES: Final = 5 * MIB
_READ_AS_A_WHOLE_BYTES: Final = 60 * 1024
_REDELIVERY: Final = "REDELIVER_UNACKNOWLEDGED_MESSAGES"

# 5 MiB hold some 650,000 of the shortest ids, 520,000 with a partition, 440,000 with an ack set each other time.
ATTACKS["an_ack_of_5_mib_of_ids"] = _large_list("ACK", _FRAME_BYTES, 3)
ATTACKS["an_ack_of_5_mib_of_odd_ids"] = _large_list("ACK", _FRAME_BYTES, 3, partition=True)
ATTACKS["an_ack_of_5_mib_of_ack_sets"] = _large_list("ACK", _FRAME_BYTES, 3, ack_set=True)
ATTACKS["a_redelivery_of_5_mib_of_ids"] = _large_list(_REDELIVERY, _FRAME_BYTES, 3, partition=True)
ATTACKS["acks_of_60_kib_of_ids"] = _large_list("ACK", _READ_AS_A_WHOLE_BYTES, 50)
ATTACKS["acks_of_60_kib_of_odd_ids"] = _large_list("ACK", _READ_AS_A_WHOLE_BYTES, 50, partition=True)


@attack
def redeliveries_of_60_kib_of_ids(target: Target, size: float) -> None:
    """Of what the consumer has, so that all of it is sent again each time."""
    count = int(50_000 * size)
    fill(target, "again", count)
    with connect(target) as client:
        must_succeed(client.subscribe("again", "s", kind=CommandSubscribe.Shared, permits=count))
        client.skip_frames(count)
        blast(client, _long_list(_REDELIVERY, _READ_AS_A_WHOLE_BYTES) * max(2, int(50 * size)), 0)


@attack
def an_ack_set_of_5_mb(target: Target, size: float) -> None:
    fill(target, "sets", 10)
    with connect(target) as client:
        must_succeed(client.subscribe("sets", "s", kind=CommandSubscribe.Shared))
        ack = command_of(BaseCommand.ACK, consumer_id=0, ack_type=CommandAck.Individual)
        ack.ack.message_id.add(ledgerId=0, entryId=1).ack_set.extend(range(int(1_000_000 * size)))
        blast(client, frames_of([ack]), 0)


@attack
def a_subscribe_of_400_000_properties(target: Target, size: float) -> None:
    for field in ("metadata", "subscription_properties"):
        with connect(target) as client:
            command = subscribing("properties", 1)
            for _ in range(int(400_000 * size)):
                getattr(command.subscribe, field).add(key="a", value="")
            blast(client, frames_of([command]), 1)
        with connect(target) as client:
            command = subscribing("properties", 1)
            for _ in range(80_000):
                getattr(command.subscribe, field).add(key="a", value="")
            blast(client, frames_of([command]), 1)


@attack
def entries_of_large_metadata(target: Target, size: float) -> None:
    with connect(target) as client:
        must_succeed(client.open_producer("metadata"))
        metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
        for _ in range(150_000):
            metadata.properties.add(key="a", value="")
        body = seal_entry(metadata.SerializeToString(), b"x")
        blast(client, sends(max(3, int(40 * size)), body), max(3, int(40 * size)))


@attack
def key_ranges_without_number(target: Target, size: float) -> None:
    with connect(target) as client:
        for number in range(max(2, int(20 * size))):
            command = subscribing("ranges", number, CommandSubscribe.Key_Shared)
            meta = command.subscribe.keySharedMeta
            meta.keySharedMode = KeySharedMode.STICKY
            for start in range(4000):
                meta.hashRanges.add(start=4000 * number * 0 + 16 * start + number % 16, end=16 * start + number % 16)
            client.ask(command)


# -- topics and subscriptions


@attack
def making_10_000_topics(target: Target, size: float) -> None:
    count = int(10_000 * size)
    with connect(target) as client:
        commands = [
            command_of(BaseCommand.PRODUCER, topic=f"made-{number}", producer_id=number, request_id=number)
            for number in range(count)
        ]
        blast(client, frames_of(commands), count)


@attack
def watching_10_000_topics(target: Target, size: float) -> None:
    making_10_000_topics(target, size)
    patterns = [
        ".*",
        "public/default/made-.*",
        "(a|b|c|d|e|m)*.*(x|y|z)?.*(1|2|3)*",
        ".*.*.*.*.*.*.*.*.*.*.*9",
        "[" * 49,
    ]
    with connect(target) as client:
        commands = [
            command_of(
                BaseCommand.WATCH_TOPIC_LIST,
                namespace="public/default",
                topics_pattern=patterns[number % len(patterns)],
                watcher_id=number,
                request_id=number,
            )
            for number in range(int(100 * size) or 5)
        ]
        blast(client, frames_of(commands), len(commands))
        names = [
            command_of(BaseCommand.GET_TOPICS_OF_NAMESPACE, namespace="public/default", request_id=number)
            for number in range(int(200 * size) or 5)
        ]
        blast(client, frames_of(names), len(names))
        making_10_000_topics(target, 0.01)


@attack
def making_4_000_subscriptions(target: Target, size: float) -> None:
    count = int(4_000 * size)
    with connect(target) as client:
        blast(client, frames_of(subscribing("many", number, name=f"s{number}") for number in range(count)), count)


@attack
def a_message_to_4_000_subscriptions(target: Target, size: float) -> None:
    """Each of them has a consumer that waits for it."""
    count = int(4_000 * size)
    with connect(target) as client:
        blast(client, frames_of(subscribing("fan", number, name=f"s{number}") for number in range(count)), count)
        flows = [command_of(BaseCommand.FLOW, consumer_id=number, messagePermits=10) for number in range(count)]
        blast(client, frames_of(flows), 0)
        must_succeed(client.open_producer("fan"))
        blast(client, sends(3, entry()), 3 * (count + 1))


@attack
def a_thousand_connections_that_end_at_once(target: Target, size: float) -> None:
    with ExitStack() as stack:
        _have_many_connections(target, size, stack)


@attack
def a_thousand_connections_that_are_reset_at_once(target: Target, size: float) -> None:
    with ExitStack() as stack:
        for client in _have_many_connections(target, size, stack):
            _reset_when_closed(client)


def _have_many_connections(target: Target, size: float, stack: ExitStack) -> list[RawClient]:
    """Each with a consumer and a producer."""
    clients = [stack.enter_context(connect(target)) for _ in range(int(1_000 * size))]
    for number, client in enumerate(clients):
        must_succeed(client.subscribe("ends", "s", kind=CommandSubscribe.Shared, permits=10))
        must_succeed(client.open_producer("ends", producer_id=number))
    return clients


@attack
def key_shared_joins_among_100_000_messages(target: Target, size: float) -> None:
    """Two consumers have the messages of a few hundred keys, and a hundred others come and go."""
    count = int(50_000 * size)
    with connect(target) as client:
        must_succeed(client.subscribe("moves", "k", kind=CommandSubscribe.Key_Shared, permits=count))
        must_succeed(client.subscribe("moves", "k", kind=CommandSubscribe.Key_Shared, permits=count, consumer_id=1))
        with connect(target) as sender:
            must_succeed(sender.open_producer("moves"))
            bodies = [entry(partition_key=f"k{number}") for number in range(300)]
            frames = [send_frame_head(0, n, 1, len(bodies[n % 300])) + bodies[n % 300] for n in range(2 * count)]
            blast(sender, b"".join(frames), 2 * count)
        others = range(2, int(100 * size) + 4)
        with connect(target) as crowd:
            joins = [subscribing("moves", number, CommandSubscribe.Key_Shared, "k") for number in others]
            leaving = [command_of(BaseCommand.CLOSE_CONSUMER, consumer_id=n, request_id=n) for n in others]
            blast(crowd, frames_of([*joins, *leaving]), 2 * len(others))


@attack
def joining_key_shared_1_500_times(target: Target, size: float) -> None:
    count = int(1_500 * size)
    fill(target, "keys", 1000)
    with connect(target) as client:
        commands = [subscribing("keys", number, CommandSubscribe.Key_Shared, "k") for number in range(count)]
        blast(client, frames_of(commands), count)
        leaving = [command_of(BaseCommand.CLOSE_CONSUMER, consumer_id=n, request_id=n) for n in range(0, count, 2)]
        blast(client, frames_of(leaving), len(leaving))


@attack
def consumers_that_leave_with_their_messages(target: Target, size: float) -> None:
    count, each = 200, int(500 * size)
    fill(target, "leaving", count * each)
    with connect(target) as client:
        blast(client, frames_of(subscribing("leaving", number, name="s") for number in range(count)), count)
        flows = [command_of(BaseCommand.FLOW, consumer_id=number, messagePermits=each) for number in range(count)]
        blast(client, frames_of(flows), count * each)
        leaving = [command_of(BaseCommand.CLOSE_CONSUMER, consumer_id=n, request_id=n) for n in range(count)]
        blast(client, frames_of(leaving), count)


@attack
def subscribing_and_leaving(target: Target, size: float) -> None:
    fill(target, "loops", 100)
    with connect(target) as client:
        both = [subscribing("loops", 1), command_of(BaseCommand.CLOSE_CONSUMER, consumer_id=1, request_id=1)]
        count = int(5_000 * size)
        blast(client, frames_of(both) * count, 2 * count)


@attack
def seeking_for_ever(target: Target, size: float) -> None:
    fill(target, "seeks", int(20_000 * size))
    with connect(target) as client:
        for _ in range(int(500 * size) or 5):
            client.tell(
                subscribing("seeks", 1),
                command_of(BaseCommand.SEEK, consumer_id=1, request_id=2, message_publish_time=1),
            )
        ping(client)


@attack
def permits_without_end(target: Target, size: float) -> None:
    """Then nothing is read, and all is asked for again and again."""
    fill(target, "permits", int(100_000 * size))
    with connect(target) as client:
        must_succeed(client.subscribe("permits", "s", kind=CommandSubscribe.Shared))
        flow = command_of(BaseCommand.FLOW, consumer_id=0, messagePermits=2**31)
        again = command_of(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0)
        client.tell(*([flow, again] * int(2_000 * size)))
        deadline = time.monotonic() + 10 * size
        while time.monotonic() < deadline:
            client.next_frame()


@attack
def nacks_of_50_000(target: Target, size: float) -> None:
    count = int(50_000 * size)
    fill(target, "nacks", count)
    with connect(target) as client:
        must_succeed(client.subscribe("nacks", "s", kind=CommandSubscribe.Shared, permits=count))
        for _ in range(3):
            client.skip_frames(count)
            client.tell(command_of(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0))
            client.flow(0, count)


@attack
def passing_over_100_000_messages(target: Target, size: float) -> None:
    """Half of them out at a consumer, the other half too, and taken back."""
    count = int(50_000 * size)
    fill(target, "passed", 2 * count)
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(target)) for _ in range(2)]
        for client in clients:
            must_succeed(client.subscribe("passed", "s", kind=CommandSubscribe.Shared, permits=count))
            client.skip_frames(count)
        clients[0].tell(command_of(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=0))
        with connect_http(target) as http:
            http.post("/persistent/public/default/passed/subscription/s/skip_all").raise_for_status()


# -- memory


@attack
def consumers_of_5_mb_of_metadata(target: Target, size: float) -> None:
    with ExitStack() as stack:
        for number in range(int(150 * size) or 3):
            client = stack.enter_context(connect(target))
            command = subscribing("fat", number)
            command.subscribe.metadata.add(key="k", value="x" * (5 * MIB - 1000))
            blast(client, frames_of([command]), 1)
        with connect_http(target) as http:
            http.get("/persistent/public/default/fat/stats")


@attack
def subscriptions_of_5_mb_of_properties(target: Target, size: float) -> None:
    for number in range(25):
        with connect(target) as client:
            command = subscribing("properties", number, name=f"s{number}")
            command.subscribe.subscription_properties.add(key="k", value="x" * int(5 * MIB * size))
            blast(client, frames_of([command]), 1)


@attack
def frames_that_never_end(target: Target, size: float) -> None:
    body = entry(bytes(5 * MIB))
    frame = send_frame_head(0, 0, 1, len(body)) + body
    with ExitStack() as stack:
        for _ in range(int(200 * size)):
            client = stack.enter_context(connect(target))
            client.socket.settimeout(0.2)
            with contextlib.suppress(OSError):
                client.socket.sendall(frame[:-10])


@attack
def large_sends_of_many(target: Target, size: float) -> None:
    """Honest ones: each of 200 clients sends one message of 5 MiB, and all get their receipts."""
    body = entry(bytes(5 * MIB))
    frame = send_frame_head(0, 0, 1, len(body)) + body
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(target)) for _ in range(int(200 * size))]
        for client in clients:
            must_succeed(client.open_producer("large"))
        senders = [threading.Thread(target=client.socket.sendall, args=(frame,)) for client in clients]
        for sender in senders:
            sender.start()
        for client in clients:
            must_succeed(client.next_command())
        for sender in senders:
            sender.join()


@attack
def answers_that_nobody_reads(target: Target, size: float) -> None:
    making_10_000_topics(target, size / 10)
    names = (
        frames_of([command_of(BaseCommand.GET_TOPICS_OF_NAMESPACE, namespace="public/default", request_id=1)]) * 2_000
    )
    with ExitStack() as stack:
        for _ in range(int(40 * size) or 2):
            client = stack.enter_context(connect(target))
            client.socket.settimeout(0.5)
            with contextlib.suppress(OSError):
                client.socket.sendall(names)


@attack
def messages_that_nobody_reads(target: Target, size: float) -> None:
    with connect(target) as client:
        must_succeed(client.open_producer("unread"))
        blast(client, sends(int(500 * size), entry(bytes(100_000))), int(500 * size))
    with ExitStack() as stack:
        for number in range(int(60 * size) or 2):
            client = stack.enter_context(connect(target))
            must_succeed(client.subscribe("unread", f"s{number}", permits=1_000_000))
        time.sleep(5 * size)
