# SPDX-License-Identifier: Apache-2.0
"""One connection to one broker: its handshake, what leaves, and handing on what arrives.

Owns the transport and the tables that say which producer or consumer a command belongs to, how the client introduces
itself, and how a silent broker is noticed; its requests are in ``requests``. Knows nothing of topics, retries or what
an entry holds; a port in ``producers``, ``consumers``, ``topic_watches`` or ``coordinators`` is told once,
through ``detached``, when the connection or the broker ends the relation.

Life: opened by ``dialing`` (which awaits the handshake), closed once, for one reason, never reused. Everything
runs on the event loop's thread. Source: Pulsar docs, "Binary protocol"; semantics of the handshake from the official
clients' behaviour.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import os
import ssl
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from broker_core import __version__
from broker_core.base.errors import (
    AuthenticationError,
    ConnectionLostError,
    ConsumerNotFoundError,
    OperationTimeoutError,
    ProtocolError,
    PulsarishError,
    RemoteProtocolError,
    ServerError,
    server_error,
)
from broker_core.base.limits import FRAME_SLACK_BYTES, MESSAGE_BYTES_MAX_DEFAULT, PROTOCOL_VERSION
from broker_core.base.positions import to_signed64
from broker_core.base.secret import Secret
from broker_core.client.connecting.identity import Identity
from broker_core.client.connecting.requests import ANSWERS, Requests
from broker_core.client.connecting.service_url import BrokerAddress
from broker_core.client.connecting.waiting import outcome_of
from broker_core.client.credentials.tls import tls_failure
from broker_core.client.settings.config import ClientConfig
from broker_core.wire.commands import command_name, parse_command, ping, pong
from broker_core.wire.core.hot_commands import parse_message, parse_receipt
from broker_core.wire.frames import BlockFrameReader, FrameReader, encode_command
from broker_core.wire.heads import MessageHead, ReceiptHead
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

logger = logging.getLogger(__name__)

CLIENT_VERSION: Final = f"Pulsarish-Python-v{__version__}"

LINGER_S: Final = 5.0
"""Time for unsent bytes to leave when a connection is closed; a broker that is stuck never takes them."""

_live: weakref.WeakSet[Connection] = weakref.WeakSet()

_HINT_UNANSWERED: Final = "if that is its port for TLS, write pulsar+ssl://"

_REQUEST_OF_NONE: Final = 2**64 - 1
"""The request id -1 as it travels: what a broker has against the connection, and not against a request."""


class Port(Protocol):
    """A user of a connection."""

    def detached(self, connection: Connection, reason: PulsarishError, address: str) -> None:
        """The broker or the connection is gone. ``address``: service URL of the broker to go to, or ""."""
        ...


class ProducerPort(Port, Protocol):
    """The producer's side of a connection: entries that the broker has stored, or refused."""

    def receipt(self, head: ReceiptHead) -> None: ...

    def send_error(self, sequence_id: int, failure: ServerError) -> None: ...


class ConsumerPort(Port, Protocol):
    """The consumer's side of a connection."""

    def message(self, head: MessageHead, body: bytes) -> None:
        """An entry was delivered, with broker entry metadata in front if the broker sends it. On a connection that
        receives in blocks a large ``body`` is a view."""
        ...

    def active_changed(self, active: bool) -> None:
        """A Failover consumer became the active one, or ceased to be."""
        ...

    def end_of_topic(self) -> None:
        """The topic was terminated, and everything in it is acknowledged."""
        ...


class EntriesOnly:
    """The base of a consumer's port that takes entries, and cares for nothing else that a broker tells."""

    def active_changed(self, active: bool) -> None:
        """The subscription is nobody else's, or all its consumers are active."""

    def end_of_topic(self) -> None:
        """Entries of a terminated topic are read and acknowledged as always."""


class TopicWatchPort(Port, Protocol):
    """The watcher of the topics of a namespace: a topic came or went."""

    def topics_changed(self) -> None: ...


class Introduction:
    """Introduces one client to the broker at ``address``, beginning with ``credential``."""

    def __init__(self, address: BrokerAddress, identity: Identity, credential: Secret) -> None:
        self._address = address
        self._identity = identity
        self._credential = credential
        """The credential that the broker was told last."""
        self._loop = asyncio.get_running_loop()
        self._renewal: asyncio.Task[None] | None = None

    def connect_command(self) -> BaseCommand:
        """The CONNECT command."""
        connect = pb.CommandConnect(
            client_version=CLIENT_VERSION,
            protocol_version=PROTOCOL_VERSION,
            auth_method_name=self._identity.method(self._credential),
            auth_data=self._credential.reveal().encode() or None,
            feature_flags=pb.FeatureFlags(
                supports_auth_refresh=True,
                supports_broker_entry_metadata=True,
                supports_get_partitioned_metadata_without_auto_creation=True,
            ),
        )
        if self._address.proxied_for:
            connect.proxy_to_broker_url = self._address.proxied_for
        return BaseCommand(type=BaseCommand.CONNECT, connect=connect)

    def renew(self, answer: Callable[[BaseCommand], None], fail: Callable[[PulsarishError], None]) -> None:
        """The broker does not take the credential for much longer: ``answer`` with another one, or ``fail``."""
        if self._renewal is None or self._renewal.done():
            self._renewal = self._loop.create_task(self._renew(answer, fail))

    async def _renew(self, answer: Callable[[BaseCommand], None], fail: Callable[[PulsarishError], None]) -> None:
        try:
            self._credential = await self._identity.credential(self._address, instead_of=self._credential)
        except PulsarishError as failure:
            fail(failure)
            return
        data = pb.AuthData(
            auth_method_name=self._identity.method(self._credential), auth_data=self._credential.reveal().encode()
        )
        said = pb.CommandAuthResponse(client_version=CLIENT_VERSION, response=data, protocol_version=PROTOCOL_VERSION)
        answer(BaseCommand(type=BaseCommand.AUTH_RESPONSE, authResponse=said))

    def refused(self, answer: AuthenticationError) -> AuthenticationError:
        """The error that a user sees where the broker does not take us any more."""
        return self._identity.refused(self._address, self._credential, answer)

    def stop(self) -> None:
        """The connection has ended, perhaps by a renewal that failed."""
        if self._renewal is not None and self._renewal is not asyncio.current_task(self._loop):
            self._renewal.cancel()


class KeepAlive:
    """Notices that the broker of one connection is silent, from ``start`` to ``stop``: a ping, then the end."""

    def __init__(self, connection: Connection, interval_s: float) -> None:
        self._connection = connection
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._ping_pending = False
        self._timer: asyncio.TimerHandle | None = None
        self.heard = False
        """Whether anything has come in this interval; set by who receives."""

    def start(self) -> None:
        """Begin an interval."""
        self.heard = False
        self._timer = self._loop.call_later(self._interval_s, self._check)

    def stop(self) -> None:
        """The connection has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        """Ping after one interval of silence, give up after a second one. While we refuse to read, silence is ours."""
        silent = not self.heard and not self._connection.is_paused
        if silent and self._ping_pending:
            reason = f"{self._connection.address} has not answered a ping for {self._interval_s:g} s"
            self._connection.close(ConnectionLostError(reason))
            return
        self._ping_pending = silent
        if silent:
            self._connection.send(ping())
        self.start()


class _Ports:
    """The producers, consumers, watches and coordinators of one connection, and the commands that are for one of
    them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.producers: dict[int, ProducerPort] = {}
        self.consumers: dict[int, ConsumerPort] = {}
        self.topic_watches: dict[int, TopicWatchPort] = {}
        self.coordinators: dict[int, Port] = {}

    def handlers(self) -> dict[int, Callable[[BaseCommand], None]]:
        """Handlers of all commands but the two hot ones."""
        return {
            BaseCommand.SEND_ERROR: self._on_send_error,
            BaseCommand.CLOSE_PRODUCER: self._on_close_producer,
            BaseCommand.CLOSE_CONSUMER: self._on_close_consumer,
            BaseCommand.ACTIVE_CONSUMER_CHANGE: self._on_active_change,
            BaseCommand.REACHED_END_OF_TOPIC: self._on_end_of_topic,
            BaseCommand.WATCH_TOPIC_UPDATE: self._on_topic_update,
        }

    def detach_all(self, reason: PulsarishError) -> None:
        """The connection has ended. Ports may register elsewhere, or ask for a new connection, while they are told."""
        tables: list[dict[int, Any]] = [self.producers, self.consumers, self.topic_watches, self.coordinators]
        ports: list[Port] = [port for table in tables for port in table.values()]
        for table in tables:
            table.clear()
        for port in ports:
            port.detached(self._connection, reason, "")

    def _on_send_error(self, command: BaseCommand) -> None:
        refused = command.send_error
        producer = self.producers.get(refused.producer_id)
        if producer is not None:
            producer.send_error(to_signed64(refused.sequence_id), server_error(refused.error, refused.message))

    def _on_close_producer(self, command: BaseCommand) -> None:
        closed = command.close_producer
        if (producer := self.producers.pop(closed.producer_id, None)) is not None:
            producer.detached(self._connection, self._moved("producer"), self._new_address(closed))

    def _on_close_consumer(self, command: BaseCommand) -> None:
        closed = command.close_consumer
        if (consumer := self.consumers.pop(closed.consumer_id, None)) is not None:
            consumer.detached(self._connection, self._moved("consumer"), self._new_address(closed))
            self._connection.fail_requests_of(closed.consumer_id, self._moved("consumer"))

    def _on_active_change(self, command: BaseCommand) -> None:
        change = command.active_consumer_change
        if (consumer := self.consumers.get(change.consumer_id)) is not None:
            consumer.active_changed(change.is_active)

    def _on_end_of_topic(self, command: BaseCommand) -> None:
        if (consumer := self.consumers.get(command.reachedEndOfTopic.consumer_id)) is not None:
            consumer.end_of_topic()

    def _on_topic_update(self, command: BaseCommand) -> None:
        if (watch := self.topic_watches.get(command.watchTopicUpdate.watcher_id)) is not None:
            watch.topics_changed()

    def _new_address(self, closed: pb.CommandCloseProducer | pb.CommandCloseConsumer) -> str:
        tls = self._connection.address.tls
        return closed.assignedBrokerServiceUrlTls if tls else closed.assignedBrokerServiceUrl

    def _moved(self, what: str) -> ConnectionLostError:
        return ConnectionLostError(f"{self._connection.address} closed the {what}")


class Connection(asyncio.BufferedProtocol):
    """A connection after its handshake. Made by ``dialing.open_connection`` only."""

    def __init__(self, address: BrokerAddress, config: ClientConfig, identity: Identity, credential: Secret) -> None:
        self.address = address
        self.max_message_size = MESSAGE_BYTES_MAX_DEFAULT
        self.features = pb.FeatureFlags()
        self.server_version = ""
        self.is_paused = False
        """Whether we refuse to read."""
        self._ports = _Ports(self)
        self.producers = self._ports.producers
        self.consumers = self._ports.consumers
        self.topic_watches = self._ports.topic_watches
        self.coordinators = self._ports.coordinators
        self._config = config
        self._introduction = Introduction(address, identity, credential)
        self._loop = asyncio.get_running_loop()
        self._handshake: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._end_reason: PulsarishError | None = None
        self._transport: asyncio.Transport | None = None
        self._reader: FrameReader | BlockFrameReader = FrameReader(MESSAGE_BYTES_MAX_DEFAULT + FRAME_SLACK_BYTES)
        self._outgoing: list[bytes | memoryview] = []
        self._requests = Requests(self._loop)
        self.next_request_id = itertools.count().__next__
        self._keep_alive = KeepAlive(self, config.keep_alive_interval_s)
        self._abortion: asyncio.TimerHandle | None = None
        self._handlers = {
            BaseCommand.PING: lambda _: self.send(pong()),
            BaseCommand.PONG: lambda _: None,
            BaseCommand.AUTH_CHALLENGE: lambda _: self._introduction.renew(self.send, self.close),
            **self._ports.handlers(),
        }
        """Handlers of the commands that are neither an answer nor one of the two hot ones."""

    # -- for our own side

    @property
    def is_open(self) -> bool:
        """Whether commands can still be sent."""
        return self._end_reason is None

    def send(self, command: BaseCommand) -> None:
        """Send a command that has no answer. Does nothing on a closed connection."""
        self.write(encode_command(command))

    def write(self, *buffers: bytes | memoryview) -> None:
        """Send buffers, together with all others of this turn of the event loop. Nothing on a closed connection."""
        if self._end_reason is not None:
            return
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.extend(buffers)

    async def request(
        self,
        command: BaseCommand,
        request_id: int,
        timeout_s: float | None = None,
        *,
        behind: BaseCommand | None = None,
        consumer_id: int | None = None,
    ) -> BaseCommand:
        """Send a request, and the command ``behind`` it that has no answer; return the request's answer.

        Raises the ServerError that the broker answers, ConnectionLostError, or OperationTimeoutError after
        ``timeout_s`` (default: the client's operation timeout; math.inf: never). ``consumer_id``: the consumer that it
        is for; ConnectionLostError as soon as the broker has closed that.
        """
        limit_s = self._config.operation_timeout_s if timeout_s is None else timeout_s
        future = self.start_request(command, request_id, consumer_id)
        if behind is not None:
            self.send(behind)
        # Not asyncio.timeout, which costs a tenth of a request: a planner makes thousands.
        timer = None if limit_s == math.inf else self._loop.call_later(limit_s, self._give_up, future, command, limit_s)
        try:
            return await future
        except ConsumerNotFoundError as crossed:
            if consumer_id is None:
                raise
            raise ConnectionLostError(f"{self.address} has closed the consumer: {crossed.message}") from crossed
        finally:
            if timer is not None:
                timer.cancel()
            self._requests.forget(request_id)

    def start_request(
        self, command: BaseCommand, request_id: int, consumer_id: int | None = None
    ) -> asyncio.Future[BaseCommand]:
        """Send a request now; the future has its answer or failure, that of ``consumer_id`` among them."""
        failure = self._end_reason
        if failure is None and consumer_id is not None and consumer_id not in self.consumers:
            failure = ConnectionLostError(f"{self.address} has closed the consumer")
        if failure is not None:
            future = self._loop.create_future()
            future.set_exception(failure)
            return future
        future = self._requests.expect(request_id, consumer_id)
        self.send(command)
        return future

    def fail_requests_of(self, consumer_id: int, reason: PulsarishError) -> None:
        """The broker has closed a consumer: what was asked for it fails with ``reason``."""
        self._requests.fail_of(consumer_id, reason)

    def take_back(self, request_id: int, leave: Callable[[], None]) -> None:
        """Call ``leave`` if that request is answered after all, and not with an error.

        Apache Pulsar may handle a CLOSE that follows right behind a SUBSCRIBE or PRODUCER before that, find no
        consumer, and then register one that is not there any more, for as long as the connection lasts.
        """
        if self._end_reason is None:
            self._requests.take_back(request_id, leave)

    def receive_in_blocks(self, new_block: Callable[[int], Any]) -> None:
        """Receive large bodies as views of blocks from now on, as ``BlockFrameReader`` says."""
        if isinstance(self._reader, FrameReader):
            frame_bytes_max = self.max_message_size + FRAME_SLACK_BYTES
            self._reader = BlockFrameReader(frame_bytes_max, new_block, self._reader.pending)

    def pause_reading(self) -> None:
        """Stop taking bytes from the socket, for all users of the connection, so that the broker must wait."""
        if not self.is_paused and self._transport is not None and self.is_open:
            self.is_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on after ``pause_reading``."""
        if self.is_paused and self._transport is not None:
            self.is_paused = False
            if self.is_open:
                self._transport.resume_reading()

    def close(self, reason: PulsarishError | None = None) -> None:
        """End the connection; what waits for answers fails with ``reason``. Harmless if closed."""
        if self._end_reason is not None:
            return
        self._flush()
        self._finish(reason or ConnectionLostError(f"the connection to {self.address} was closed by this client"))
        if self._transport is not None:
            if reason is None:
                self._transport.close()
                self._abortion = self._loop.call_later(LINGER_S, self._transport.abort)
            else:
                self._transport.abort()

    async def wait_closed(self) -> None:
        """Return when the socket is closed."""
        await outcome_of(self._ended)

    def disown(self) -> None:
        """Let go of the parent's socket, in a forked child, without a word to the broker."""
        inherited = self._transport.get_extra_info("socket") if self._transport is not None else None
        if inherited is not None and inherited.fileno() >= 0:
            # The descriptor stays valid, so that a later close does not hit a descriptor of something else.
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, inherited.fileno())
            os.close(nowhere)

    async def handshake(self) -> None:
        """Return when the broker has accepted us, else raise."""
        # Not shielded: when its only waiter gives up, nothing is left that would look at how it ended.
        await self._handshake

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        _live.add(self)
        self.send(self._introduction.connect_command())
        self._keep_alive.start()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._keep_alive.heard = True
        try:
            for command, body in self._reader.buffer_updated(nbytes):
                self._dispatch(command, cast("bytes", body))  # views only for the port that asked for them
        except ProtocolError as failure:
            logger.warning("connection protocol error peer=%s error=%s", self.address, failure)
            self.close(type(failure)(f"{failure.message} ({self.address})", hint=failure.hint))

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError):  # Of the client's certificate a broker says only then that it is none.
            self._finish(tls_failure(exc, str(self.address)))
        why = f": {exc}" if exc else ""
        hint = "" if self._handshake.done() or self.address.tls else _HINT_UNANSWERED
        self._finish(ConnectionLostError(f"{self.address} closed the connection{why}", hint=hint))
        if self._abortion is not None:
            self._abortion.cancel()
        if not self._ended.done():
            self._ended.set_result(None)

    # -- inside

    def _flush(self) -> None:
        if self._outgoing and self._transport is not None:
            outgoing, self._outgoing = self._outgoing, []
            # A transport may know that the peer is gone before it tells us; some then refuse to be written to.
            if not self._transport.is_closing():
                self._transport.writelines(outgoing)

    def _dispatch(self, command: bytes, body: bytes) -> None:
        if (delivered := parse_message(command)) is not None:
            consumer = self.consumers.get(delivered.consumer_id)
            if consumer is not None:
                consumer.message(delivered, body)
            return
        if (receipt := parse_receipt(command)) is not None:
            producer = self.producers.get(receipt.producer_id)
            if producer is not None:
                producer.receipt(receipt)
            return
        parsed = parse_command(command)
        if not self._handshake.done():
            self._on_handshake(parsed)
        elif parsed.type in ANSWERS:
            self._on_answer(parsed)
        elif (handler := self._handlers.get(parsed.type)) is not None:
            handler(parsed)
        else:
            raise RemoteProtocolError(f"{self.address} sent {command_name(parsed)}, which a client does not expect")

    def _on_handshake(self, command: BaseCommand) -> None:
        if command.type == BaseCommand.ERROR:
            self._on_refusal(command)
            return
        if command.type != BaseCommand.CONNECTED:
            raise RemoteProtocolError(f"{self.address} answered CONNECT with {command_name(command)}")
        connected = command.connected
        self.features = connected.feature_flags
        self.server_version = connected.server_version
        if connected.max_message_size > 0:
            self.max_message_size = connected.max_message_size
            # Nothing can be half read here: a broker says no more before it is asked.
            self._reader = FrameReader(connected.max_message_size + FRAME_SLACK_BYTES)
        self._handshake.set_result(None)

    def _on_refusal(self, command: BaseCommand) -> None:
        """The broker refuses the client itself, which is the end of the connection."""
        refusal = server_error(command.error.error, command.error.message)
        if isinstance(refusal, AuthenticationError) and self._handshake.done():
            refusal = self._introduction.refused(refusal)
        self.close(refusal)

    def _give_up(self, future: asyncio.Future[BaseCommand], command: BaseCommand, limit_s: float) -> None:
        if not future.done():
            late = f"{command_name(command)} was not answered by {self.address} in {limit_s:g} s"
            future.set_exception(OperationTimeoutError(late))

    def _on_answer(self, command: BaseCommand) -> None:
        if command.type == BaseCommand.ERROR and command.error.request_id == _REQUEST_OF_NONE:
            self._on_refusal(command)
        else:
            self._requests.answered(command)

    def _finish(self, reason: PulsarishError) -> None:
        """Fail what waits for answers, and tell all ports, once."""
        if self._end_reason is not None:
            return
        self._end_reason = reason
        self._keep_alive.stop()
        self._introduction.stop()
        if not self._handshake.done():
            self._handshake.set_exception(reason)
            self._handshake.exception()  # Looked at, or asyncio would log it where nobody waits for it any more.
        self._requests.fail(reason)
        self._ports.detach_all(reason)


def disown_sockets() -> None:
    """Let go of every connection of the parent process, in a forked child."""
    for connection in list(_live):
        connection.disown()
    _live.clear()
