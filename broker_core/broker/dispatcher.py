# SPDX-License-Identifier: Apache-2.0
"""What a subscription needs of its dispatcher, and what every dispatcher is given.

One dispatcher exists from the first consumer of a subscription to the last; its type is the subscription's type
(semantics 2.1). Everything in it is in memory: what was read, what waits to be sent again, counters. Each way of
sharing out entries is a file of its own: ``dispatch_single_active`` (Exclusive, Failover) and ``dispatch_shared``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from broker_core.base.clock import Clock, Timers
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.broker.consumer import Consumer
from broker_core.broker.cursor import Cursor
from broker_core.broker.log_reader import LogReader
from broker_core.broker.rates import Traffic
from broker_core.broker.requests import SubscriptionType


@dataclass(frozen=True, slots=True)
class DispatchContext:
    """The surroundings of a dispatcher. ``traffic`` and ``topic_traffic`` count what goes out."""

    topic: TopicName
    subscription: str
    cursor: Cursor
    reader: LogReader
    clock: Clock
    timers: Timers
    settings: Settings
    traffic: Traffic
    topic_traffic: Traffic


class Dispatcher(Protocol):
    """Decides which consumer gets which entry, and when."""

    @property
    def kind(self) -> SubscriptionType: ...

    @property
    def consumers(self) -> Sequence[Consumer]: ...

    @property
    def active(self) -> Consumer | None:
        """The only consumer that is served, where there is such a thing."""
        ...

    @property
    def unacked_messages(self) -> int:
        """Given out and not acknowledged, where that is counted."""
        ...

    @property
    def blocked(self) -> bool:
        """Stopped because too much is unacknowledged."""
        ...

    @property
    def read_position(self) -> Position:
        """The next entry of the log that was not read yet."""
        ...

    def add(self, consumer: Consumer) -> None:
        """Let a consumer in; a ServerError leaves everything as it was."""
        ...

    def remove(self, consumer: Consumer) -> None:
        """Let it go; what it has not acknowledged will be sent to others."""
        ...

    def close(self) -> None:
        """Stop for good and give up timers."""
        ...

    def permits_came(self, consumer: Consumer) -> None: ...

    def writable_again(self, consumer: Consumer) -> None: ...

    def entries_came(self) -> None:
        """The log has more durable entries."""
        ...

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> None: ...

    def acked(self, consumer: Consumer, position: Position, remaining: int) -> None:
        """``consumer`` acknowledged an entry individually, but for ``remaining`` messages of it."""
        ...

    def acks_settled(self) -> None:
        """All acks of one request are in."""
        ...
