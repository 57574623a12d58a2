# SPDX-License-Identifier: Apache-2.0
"""What a subscription needs of its dispatcher, and what every dispatcher is given.

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
from broker_core.broker.consumer import Consumer
from broker_core.broker.cursors.acknowledgement import Acknowledgement
from broker_core.broker.cursors.cursor import Cursor
from broker_core.broker.dispatch.key_shared.key_stats import KeyStats
from broker_core.broker.dispatch.log_reader import LogReader
from broker_core.broker.dispatch.passes import Turn
from broker_core.broker.dispatch.unacked_limits import BrokerUnacked
from broker_core.broker.rates import Traffic
from broker_core.broker.requests import KeySharedPolicy
from broker_core.storage.ledger import StoredEntry

NO_TYPE: Final = "None"
"""The type of a subscription without consumers (semantics 2.1.1)."""


class DelayedEntries(Protocol):
    """Holds entries back that are not due, for a dispatcher of Shared or Key_Shared (semantics 6.2).

    Made when the dispatcher is, closed with it. What it gives may be acknowledged or sent already if it was known from
    before a restart, which the dispatcher checks.
    """

    @property
    def paused(self) -> bool:
        """Nothing new may be read now; ``wake`` is called when that has changed."""
        ...

    @property
    def delayed_entries(self) -> int:
        """How many are held back."""
        ...

    def start(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` from a timer whenever something has become due that ``take_due`` has not given yet."""
        ...

    def take_due(self, entries_max: int, read_position: Position) -> Sequence[Position]:
        """Take out the positions that are due, earliest first. ``read_position``: the next entry to be read."""
        ...

    def skip_held(self, start: Position) -> Position:
        """``start``, or a later place if all entries before that are known to be held back."""
        ...

    def hold_back(self, entries: list[StoredEntry]) -> list[StoredEntry]:
        """The ones of ``entries``, as they were read from the log, that may be sent now (``entries`` itself if all
        may)."""
        ...

    def hold_back_again(self, entries: list[StoredEntry]) -> list[StoredEntry]:
        """As ``hold_back``, of entries that wait to be sent again; the clock may have been set back."""
        ...

    def settings_changed(self, settings: Settings) -> None:
        """A policy was changed: what is due may be decided otherwise from now on."""
        ...

    def passed_over(self, mark_delete: Position) -> None:
        """Everything up to ``mark_delete`` is acknowledged; what is held back of it may be given all the same."""
        ...

    def close(self) -> None:
        """The dispatcher is gone: no ``wake`` any more."""
        ...


@dataclass(frozen=True, slots=True)
class DispatchContext:
    """The surroundings of a dispatcher. ``traffic`` and ``topic_traffic`` count what goes out.

    ``turn`` and ``unacked`` are the whole broker's. ``track_delays`` makes what holds entries back that are not due;
    None: delayed delivery is switched off.
    """

    topic: TopicName
    subscription: str
    cursor: Cursor
    reader: LogReader
    clock: Clock
    timers: Timers
    turn: Turn
    settings: Settings
    traffic: Traffic
    topic_traffic: Traffic
    unacked: BrokerUnacked
    acks: Acknowledgement
    track_delays: Callable[[], DelayedEntries | None]


@dataclass(frozen=True, slots=True)
class DispatchStats:
    """What can be seen of a dispatcher from outside. The defaults are those of a subscription without consumers."""

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
    """What is special to consumers of Key_Shared."""


class Dispatcher(Protocol):
    """Decides which consumer gets which entry, and when. One that remembers single entries is an ``AckListener``, too.

    It exists from the first consumer to the last; ``NoConsumers`` stands in its place the rest of the time.
    """

    @property
    def consumers(self) -> Sequence[Consumer]: ...

    @property
    def read_position(self) -> Position:
        """The next entry of the log that was not read yet."""
        ...

    def add(self, consumer: Consumer) -> None:
        """Let a consumer in; a ServerError leaves everything as it was."""
        ...

    def remove(self, leavers: Sequence[Consumer]) -> None:
        """Let them go, but not the last one; what they have not acknowledged will be sent to those that stay."""
        ...

    def close(self) -> None:
        """Stop for good and give up timers."""
        ...

    def can_take_more(self, consumer: Consumer) -> None:
        """It gave permits, or its connection has room again."""
        ...

    def entries_came(self) -> None:
        """There may be entries to read: new ones are durable, or what stopped reading was acknowledged."""
        ...

    def read_again(self, positions: Sequence[Position]) -> None:
        """What could not be read may be readable now; of that ``positions`` were taken out of the replay set."""
        ...

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> None:
        """Send what ``consumer`` has not acknowledged again: these positions, or all (None)."""
        ...

    def settings_changed(self, settings: Settings) -> None:
        """A policy was changed: these settings are in force from now on."""
        ...

    def stats(self) -> DispatchStats:
        """Computed by each call."""
        ...


class NoConsumers:
    """In the place of the dispatcher while a subscription has no consumers: nothing is read."""

    consumers: Sequence[Consumer] = ()

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    @property
    def read_position(self) -> Position:
        """Where a dispatcher would begin."""
        return self._cursor.first_unacked()

    def add(self, consumer: Consumer) -> None:
        invariant(False, "consumer %s joined a subscription that has no dispatcher", consumer.name)

    def remove(self, leavers: Sequence[Consumer]) -> None: ...

    def close(self) -> None: ...

    def can_take_more(self, consumer: Consumer) -> None: ...

    def entries_came(self) -> None: ...

    def read_again(self, positions: Sequence[Position]) -> None: ...

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> None: ...

    def settings_changed(self, settings: Settings) -> None: ...

    def stats(self) -> DispatchStats:
        return DispatchStats()
