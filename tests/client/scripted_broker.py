# SPDX-License-Identifier: Apache-2.0
"""A broker that does exactly what a test says: real sockets and frames, no storage, no rules.

It answers the handshake, lookups and registrations by itself; a test replaces single answers by handlers and sends
whatever it likes on the newest connection. Everything runs on the test's own event loop.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from broker_core.base.errors import NotAllowedError
from broker_core.base.positions import to_signed64
from broker_core.wire.commands import close_consumer, connected, error, parse_command, pong, success
from broker_core.wire.entry import seal_entry
from broker_core.wire.frames import Frame, FrameReader, encode_command
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.wire.single_frames import message_frame_head, parse_send, receipt_frame

FRAME_BYTES_MAX = 6 * 1024 * 1024

Handler = Callable[["Peer", BaseCommand], None]


class Peer(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.received: list[BaseCommand] = []
        self.sends: list[tuple[int, Frame]] = []
        self.producer_id = 0
        """The producer id of the newest SEND."""
        self._reader = FrameReader(FRAME_BYTES_MAX)
        self.transport: asyncio.Transport
        self.has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.broker.peers.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.has_ended = True
        self.broker.changed.set()

    def data_received(self, data: bytes) -> None:
        while data:
            view = self._reader.get_buffer()
            count = min(len(view), len(data))
            view[:count] = data[:count]
            data = data[count:]
            for frame in self._reader.buffer_updated(count):
                self._on_frame(frame)

    def _on_frame(self, frame: Frame) -> None:
        serialised, _body = frame
        send = parse_send(serialised)
        if send is not None:
            self.sends.append((send.sequence_id, frame))
            self.producer_id = send.producer_id
            self.broker.on_send(self, send.sequence_id)
        else:
            command = parse_command(serialised)
            self.received.append(command)
            self.broker.handlers.get(command.type, answer)(self, command)
        self.broker.changed.set()

    def send(self, command: BaseCommand) -> None:
        self.transport.write(encode_command(command))

    def receipt(self, sequence_id: int, entry: int, producer_id: int | None = None) -> None:
        """``producer_id``: that of the newest SEND if it is not given."""
        self.transport.write(
            receipt_frame(self.producer_id if producer_id is None else producer_id, sequence_id, 1, entry)
        )

    def deliver(self, entry: int, body: bytes, consumer_id: int = 0, *, epoch: int = -1) -> None:
        head = message_frame_head(consumer_id, 1, entry, -1, 0, None, len(body), epoch)
        self.transport.write(head + body)

    def count(self, kind: int) -> int:
        """How many commands of one type came."""
        return sum(command.type == kind for command in self.received)


class ScriptedBroker:
    """What all connections share."""

    def __init__(self) -> None:
        self.service_url = ""
        self.peers: list[Peer] = []
        self.handlers: dict[int, Handler] = {}
        self.on_send: Callable[[Peer, int], None] = lambda peer, sequence_id: peer.receipt(sequence_id, sequence_id)
        self.changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when ``condition`` holds; it is looked at whenever something arrives."""
        async with asyncio.timeout(30):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def scripted_broker(tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedBroker]:
    """A listening broker on a free port; with ``tls`` by the name localhost."""
    broker = ScriptedBroker()
    server = await asyncio.get_running_loop().create_server(lambda: Peer(broker), "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    broker.service_url = f"pulsar+ssl://localhost:{port}" if tls else f"pulsar://127.0.0.1:{port}"
    try:
        yield broker
    finally:
        server.close()
        for peer in broker.peers:
            peer.transport.abort()
        await server.wait_closed()


def answer(peer: Peer, command: BaseCommand) -> None:
    """What a friendly broker says."""
    kind = command.type
    if kind == BaseCommand.CONNECT:
        peer.send(connected("scripted", 21, 5 * 1024 * 1024))
    elif kind == BaseCommand.PING:
        peer.send(pong())
    elif kind == BaseCommand.LOOKUP:
        peer.send(lookup_answer(command, peer.broker.service_url))
    elif kind == BaseCommand.PARTITIONED_METADATA:
        partitions(0)(peer, command)
    elif kind == BaseCommand.PRODUCER:
        made = pb.CommandProducerSuccess(request_id=command.producer.request_id, producer_name="scripted-0")
        peer.send(BaseCommand(type=BaseCommand.PRODUCER_SUCCESS, producer_success=made))
    elif kind == BaseCommand.SUBSCRIBE:
        peer.send(success(command.subscribe.request_id))
    elif kind == BaseCommand.SEEK:
        peer.send(success(command.seek.request_id))
    elif kind in (BaseCommand.CLOSE_PRODUCER, BaseCommand.CLOSE_CONSUMER):
        closed = command.close_producer if kind == BaseCommand.CLOSE_PRODUCER else command.close_consumer
        peer.send(success(to_signed64(closed.request_id)))


def seek_by_closing(peer: Peer, command: BaseCommand) -> None:
    """The answer to a SEEK as Apache Pulsar gives it: the consumer is closed first, and comes back."""
    peer.send(close_consumer(0, -1))
    peer.send(success(command.seek.request_id))


def durable(subscription: str) -> Handler:
    """The answer about any subscription where there is a durable one of this name."""

    def tell(peer: Peer, command: BaseCommand) -> None:
        asked = command.subscribe
        if asked.subscription == subscription and not asked.durable:
            peer.send(error(asked.request_id, NotAllowedError("there is a durable one of that name")))
        else:
            answer(peer, command)

    return tell


def partitions(count: int) -> Handler:
    """The answer about a topic with so many partitions."""

    def tell(peer: Peer, command: BaseCommand) -> None:
        kind = pb.CommandPartitionedTopicMetadataResponse
        request_id = command.partitionMetadata.request_id
        said = kind(request_id=request_id, partitions=count, response=kind.Success)
        peer.send(BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=said))

    return tell


def last_message(entry: int, mark_delete: int | None = None, *, ledger: int = 1) -> Handler:
    """The answer about a topic's last message, entry -1 for none; and how far the subscription is, if that is told."""

    def tell(peer: Peer, command: BaseCommand) -> None:
        last = pb.MessageIdData(ledgerId=ledger, entryId=entry % 2**64)
        said = pb.CommandGetLastMessageIdResponse(request_id=command.getLastMessageId.request_id, last_message_id=last)
        if mark_delete is not None:
            stands = pb.MessageIdData(ledgerId=ledger, entryId=mark_delete % 2**64)
            said.consumer_mark_delete_position.CopyFrom(stands)
        peer.send(BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=said))

    return tell


def lookup_answer(command: BaseCommand, url: str, *, redirect: bool = False, proxy: bool = False) -> BaseCommand:
    """The broker of a topic."""
    kind = pb.CommandLookupTopicResponse
    response = kind(
        request_id=command.lookupTopic.request_id,
        brokerServiceUrl=url if url.startswith("pulsar:") else "",
        brokerServiceUrlTls=url if url.startswith("pulsar+ssl:") else "",
        response=kind.Redirect if redirect else kind.Connect,
        authoritative=True,
        proxy_through_service_url=proxy,
    )
    return BaseCommand(type=BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=response)


def plain_entry(value: bytes, sequence_id: int = 0) -> bytes:
    """The entry of one message."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1_700_000_000_000)
    return seal_entry(metadata.SerializeToString(), value)


def batch_entry(members: Iterable[pb.SingleMessageMetadata]) -> bytes:
    """The entry of a batch of messages that all have the value "v", where they state a size of 1."""
    parts = []
    for member in members:
        head = member.SerializeToString()
        parts.append(len(head).to_bytes(4, "big") + head + b"v" * member.payload_size)
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1_700_000_000_000, num_messages_in_batch=len(parts)
    )
    return seal_entry(metadata.SerializeToString(), b"".join(parts))
