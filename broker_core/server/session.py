# SPDX-License-Identifier: Apache-2.0
"""What the broker knows of one client: what it announced, its producers, consumers and watches, and how to answer it.

A session is the shared state of the handlers; it decides nothing. It knows no socket: it writes to an ``Outbox``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from broker_core.base.clock import Clock
from broker_core.base.errors import StorageError
from broker_core.base.settings import Settings
from broker_core.broker.broker import Broker
from broker_core.server.outbox import Outbox
from broker_core.server.publish_budget import PublishBudget
from broker_core.server.recoveries import Recoveries
from broker_core.storage.commit import GroupCommit
from broker_core.wire.frames import encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

if TYPE_CHECKING:
    from broker_core.broker.topic_watches import TopicWatch
    from broker_core.server.handlers.consuming import ConsumerChannel
    from broker_core.server.handlers.producing import ProducerChannel

NO_REQUEST: Final = 2**64 - 1
"""The request id of what answers no request: -1 in an unsigned field, as Pulsar's broker sends it."""


class SessionState(Enum):
    """How far the conversation has come."""

    START = "start"
    CONNECTED = "connected"
    CLOSED = "closed"


@dataclass(slots=True)
class Node:
    """What all sessions of one broker process share. The URLs are known once the ports are bound."""

    broker: Broker
    settings: Settings
    clock: Clock
    publish_budget: PublishBudget
    commits: GroupCommit
    recoveries: Recoveries
    service_url: str = ""
    http_url: str = ""


@dataclass(frozen=True, slots=True)
class ClientFeatures:
    """What the client announced in CONNECT."""

    version: str = ""
    protocol_version: int = 0
    broker_entry_metadata: bool = False


@dataclass(slots=True, eq=False)
class Session:
    """The state of one connection, from CONNECT to its end."""

    node: Node
    outbox: Outbox
    peer_address: str
    state: SessionState = SessionState.START
    features: ClientFeatures = field(default_factory=ClientFeatures)
    producers: dict[int, ProducerChannel] = field(default_factory=dict)
    consumers: dict[int, ConsumerChannel] = field(default_factory=dict)
    watches: dict[int, TopicWatch] = field(default_factory=dict)

    def send(self, command: BaseCommand) -> None:
        """Queue a command as one frame. It leaves when all changes that it may speak of are durable."""
        commits = self.node.commits
        if not commits.recorded:
            self.outbox.hold()
            commits.when_recorded(self._recorded)
        self.outbox.put(encode_command(command))

    def _recorded(self, error: StorageError | None) -> None:
        if error is None:
            self.outbox.release()
        else:
            self.outbox.cut_off()

    def in_flight_bytes(self) -> int:
        """Published bytes that no producer of this session has answered yet."""
        return sum([channel.in_flight_bytes for channel in self.producers.values()])

    def writable_again(self) -> None:
        """The outbox has room: dispatch goes on."""
        for consumer in list(self.consumers.values()):
            consumer.writable_again()

    def close(self) -> None:
        """The connection is gone: let go of all producers, consumers and watches."""
        self.state = SessionState.CLOSED
        self.outbox.pause()  # or what one consumer had would be given to the next one, which goes as well
        producers, self.producers = self.producers, {}
        consumers, self.consumers = self.consumers, {}
        watches, self.watches = self.watches, {}
        for watch in watches.values():
            self.node.broker.unwatch_topics(watch)
        for producer in producers.values():
            producer.abandon()
        for consumer in consumers.values():
            consumer.close()
