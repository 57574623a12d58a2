# SPDX-License-Identifier: Apache-2.0
"""``Dispatcher``: the base of every dispatcher, and the surroundings that each is given.

One dispatcher exists from the first consumer of a subscription to the last; its type is the subscription's type
(semantics 2.1). Everything in it is in memory: what was read, what waits to be sent again, counters. There are
two: ``single_active`` (Exclusive, Failover) and ``many_consumers`` (Shared, Key_Shared).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from broker_core.base.clock import Clock, Timers
from broker_core.base.invariants import invariant
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.base.turns import Turns
from broker_core.broker.consumer import Consumer
from broker_core.broker.cursors.acknowledgement import Acknowledgement
from broker_core.broker.cursors.cursor import Cursor
from broker_core.broker.cursors.open_messages import OpenMessages
from broker_core.broker.delayed.tracker import DelayedTracker
from broker_core.broker.dispatch.key_shared.draining import KeyStats
from broker_core.broker.dispatch.log_reader import LogReader
from broker_core.broker.dispatch.unacked_limits import BrokerUnacked
from broker_core.broker.rate_limits import RateLimit
from broker_core.broker.rates import Traffic
from broker_core.broker.requests import KeySharedPolicy
from broker_core.broker.transactions.pending_acks import CumulativeAck

NO_TYPE: Final = "None"
"""The type of a subscription without consumers (semantics 2.1.1)."""


class DispatchHost(Protocol):
    """The topic, as a dispatcher sees it. ``turns`` and ``unacked`` are the whole broker's."""

    name: TopicName
    clock: Clock
    timers: Timers
    turns: Turns
    unacked: BrokerUnacked
    traffic_out: Traffic
    dispatch_rate: RateLimit


@dataclass(frozen=True, slots=True)
class DispatchContext:
    """The surroundings of a dispatcher. ``traffic`` counts what goes out, as the host's ``traffic_out`` does.

    ``open`` knows which messages may be sent. ``settings`` are those with which the dispatcher begins. ``track_delays``
    makes what holds entries back that are not due; None: delayed delivery is switched off. ``rate``: the limit of what
    is sent to all its consumers. ``serve`` is called with the consumer that is the active one from now on, before it is
    read for.
    """

    host: DispatchHost
    subscription: str
    cursor: Cursor
    open: OpenMessages
    reader: LogReader
    settings: Settings
    traffic: Traffic
    acks: Acknowledgement
    track_delays: Callable[[], DelayedTracker | None]
    rate: RateLimit
    serve: Callable[[Consumer], None]


@dataclass(frozen=True, slots=True)
class DispatchStats:
    """Statistics of a dispatcher. The defaults are those of a subscription without consumers."""

    type: str = NO_TYPE
    active_consumer: str = ""
    """The name of the only consumer that is served, where the type has one."""
    unacked_messages: int = 0
    """Given out and not acknowledged, where that is counted."""
    blocked: bool = False
    """Stopped because too many messages are unacknowledged."""
    replay_entries: int = 0
    """Entries that were read and wait to be sent."""
    delayed_entries: int = 0
    """Entries that are held back because they are not due."""
    key_shared: KeySharedPolicy | None = None
    keys: Mapping[Consumer, KeyStats] = field(default_factory=dict)
    """Statistics of consumers of Key_Shared alone."""


class Dispatcher:
    """Decides which consumer gets which entry, and when. A dispatcher that remembers single entries is an
    ``AckListener``, too.

    A dispatcher exists from the first consumer to the last. This class itself stands in its place the rest of the time:
    nothing is read.
    """

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    @property
    def consumers(self) -> Sequence[Consumer]:
        return ()

    @property
    def read_position(self) -> Position:
        """The next entry of the log that was not read yet."""
        return self._cursor.first_unacked()

    @property
    def unacked_messages(self) -> int:
        """Messages that were given out and are not acknowledged, where that is counted."""
        return 0

    @property
    def blocked(self) -> bool:
        """Whether dispatch is stopped because too many messages are unacknowledged."""
        return False

    @property
    def delayed_entries(self) -> int:
        """Entries that are held back because they are not due."""
        return 0

    def add(self, consumer: Consumer) -> None:
        """Let a consumer in; a ServerError leaves everything as it was."""
        invariant(False, "consumer %s joined a subscription that has no dispatcher", consumer.name)

    def remove(self, leavers: Sequence[Consumer]) -> None:
        """Let consumers go, but not the last one; the others are sent what these have not acknowledged."""

    def close(self) -> None:
        """Stop for good and give up timers."""

    def can_take_more(self, consumer: Consumer) -> None:
        """The consumer gave permits, or its connection has room again."""

    def entries_came(self) -> None:
        """Entries may be there to read: new ones are durable, or an entry that stopped reading was acknowledged."""

    def read_again(self, positions: Sequence[Position]) -> None:
        """Entries that could not be read may be readable now; ``positions`` were taken out of the replay set."""

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> None:
        """Send entries again that ``consumer`` has not acknowledged: these positions, or all (None)."""

    # -- transactions

    def set_aside(self, position: Position, left: int) -> None:
        """All messages of an entry but ``left``, as bits, are acknowledged, some of them in a transaction."""

    def acks_settled(self) -> None:
        """All acknowledgements of this request were reported."""

    def give_back(self, messages: Mapping[Position, int], cumulative: CumulativeAck | None) -> None:
        """Messages, as bits by entry, are open again: a transaction was aborted that had acknowledged them. Of what it
        had acknowledged cumulatively only that is sent which was kept from the present consumers."""

    def settings_changed(self, settings: Settings) -> None:
        """A policy was changed: these settings are in force from now on."""

    def stats(self) -> DispatchStats:
        """Computed by each call."""
        return DispatchStats()
