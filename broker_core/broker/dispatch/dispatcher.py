# SPDX-License-Identifier: Apache-2.0
"""What a subscription needs of its dispatcher, and what every dispatcher is given.

One dispatcher exists from the first consumer of a subscription to the last; its type is the subscription's type
(semantics 2.1). Everything in it is in memory: what was read, what waits to be sent again, counters. Each way of
sharing out entries is a file of its own: ``single_active`` (Exclusive, Failover), ``shared``
and ``key_shared.dispatcher``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker_core.base.clock import Clock, Timers
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.broker.consumer import Consumer, EntryAcks
from broker_core.broker.cursors.cursor import Cursor
from broker_core.broker.dispatch.log_reader import LogReader
from broker_core.broker.dispatch.passes import Turn
from broker_core.broker.dispatch.unacked_limits import BrokerUnacked
from broker_core.broker.rates import Traffic
from broker_core.broker.requests import SubscriptionType
from broker_core.storage.ledger import StoredEntry


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
        """Of entries as they were read from the log: those that may be sent now (``entries`` itself if all may)."""
        ...

    def hold_back_again(self, entries: list[StoredEntry]) -> list[StoredEntry]:
        """The same of entries that wait to be sent again; the clock may have been set back."""
        ...

    def settings_changed(self, settings: Settings) -> None:
        """A policy was changed: what is due may be decided otherwise from now on."""
        ...

    def passed_over(self, mark_delete: Position) -> None:
        """Nobody wants anything up to ``mark_delete`` any more; what is held back of it may be given all the same."""
        ...

    def close(self) -> None:
        """The dispatcher is gone: no ``wake`` any more."""
        ...


@dataclass(frozen=True, slots=True)
class DispatchContext:
    """The surroundings of a dispatcher. ``traffic`` and ``topic_traffic`` count what goes out.

    ``turn`` and ``unacked`` are the whole broker's. ``acknowledge`` is for entries that no consumer shall get.
    ``delayed``: who keeps entries that are not due; None: every entry is delivered at once.
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
    acknowledge: Callable[[Sequence[Position]], None]
    delayed: DelayedEntries | None = None


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
    def replay_entries(self) -> int:
        """Entries that were read and wait to be sent, where there are such."""
        ...

    @property
    def read_position(self) -> Position:
        """The next entry of the log that was not read yet."""
        ...

    def add(self, consumer: Consumer) -> None:
        """Let a consumer in; a ServerError leaves everything as it was."""
        ...

    def remove(self, leavers: Sequence[Consumer]) -> None:
        """Let them go, but not the last one; what they have not acknowledged will be sent to those who stay."""
        ...

    def close(self) -> None:
        """Stop for good and give up timers."""
        ...

    def permits_came(self, consumer: Consumer) -> None: ...

    def writable_again(self, consumer: Consumer) -> None: ...

    def entries_came(self) -> None:
        """The log has more durable entries."""
        ...

    def read_again(self, positions: Sequence[Position]) -> None:
        """What could not be read may be readable now; of that ``positions`` were taken out of the replay set."""
        ...

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> None: ...

    def acked(self, consumer: Consumer, position: Position, remaining: int) -> None:
        """``consumer`` acknowledged an entry individually, but for ``remaining`` messages of it."""
        ...

    def acked_entries(self, ledger: int, acks: Sequence[EntryAcks], entries: Sequence[int]) -> None:
        """``acked`` of many whole entries of one ledger, by one consumer or many; ``entries`` are those of all."""
        ...

    def acks_settled(self) -> None:
        """All acks of one request are in."""
        ...

    def settings_changed(self, settings: Settings) -> None:
        """A policy was changed: these settings are in force from now on."""
        ...

    def hold_back_with(self, delayed: DelayedEntries) -> None:
        """Delayed delivery was switched on for the first time, where the type of subscription has it."""
        ...

    def passed_over(self, mark_delete: Position) -> None:
        """Nobody wants anything up to ``mark_delete`` any more: it expired, was skipped or evicted."""
        ...
