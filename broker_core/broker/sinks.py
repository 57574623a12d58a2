# SPDX-License-Identifier: Apache-2.0
"""Sinks: the stand-ins for clients, and the values that are put into them.

Sinks never call back into the broker from inside these methods, except where it says so, and never raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from broker_core.base.errors import ServerError
from broker_core.base.positions import Position
from broker_core.broker.rate_limits import RateLimit
from broker_core.storage.ledger import StoredEntry


class InFlight:
    """Entries that a connection has sent and that are not answered yet, of all of its producers together, and the bytes
    of those that are to be stored. Entries of a producer that is gone count until they are stored, because they take
    memory until then.

    ``used_up``: limits of rates for which the connection has to wait before it is read any further. ``rated``: a
    producer of the connection has had a limit.
    """

    __slots__ = ("entries", "rated", "size_bytes", "used_up")

    def __init__(self) -> None:
        self.entries = 0
        self.size_bytes = 0
        self.used_up: set[RateLimit] = set()
        self.rated = False

    def add(self, entries: int, size_bytes: int) -> None:
        """So much more is unanswered; less, if it is negative."""
        self.entries += entries
        self.size_bytes += size_bytes


class Delivery(NamedTuple):
    """One entry on its way to a consumer. ``ack_set`` (words) masks a batch of which a part is acknowledged."""

    entry: StoredEntry
    redelivery_count: int
    ack_set: tuple[int, ...] | None


class ProducerSink(Protocol):
    """Where the answers for one producer go, in the order of its sends. ``in_flight`` counts for its connection."""

    @property
    def in_flight(self) -> InFlight: ...

    def ready(self) -> None:
        """A producer that waited for exclusive access has it now and may send."""

    def refused(self, error: ServerError) -> None:
        """A producer that waited for exclusive access will not get it."""

    def receipt(self, sequence_ids: Sequence[int], highest_sequence_ids: Sequence[int], first: Position) -> None:
        """Entries are durable: the first one at ``first``, each at the entry id after the one before.

        A single one may have been a duplicate, with POSITION_EARLIEST for ``first``. Highest sequence ids are -1 where
        there are none.
        """

    def send_error(self, sequence_id: int, error: ServerError) -> None:
        """The entry was refused, or could not be stored."""

    def closed_by_broker(self) -> None:
        """The producer is gone (topic deleted or unloaded, or replaced); the client may reconnect."""


class JointSink(Protocol):
    """Where the answers go for entries that producers of one connection have sent together (``JointRun``).

    ``places`` are the numbers of the entries, from 0 on, whose producers are still there; None: all.
    """

    @property
    def in_flight(self) -> InFlight: ...

    def receipts(self, first: Position, places: Sequence[int] | None) -> None:
        """The entries are durable: the first one at ``first``, each at the entry id after the one before."""

    def send_errors(self, error: ServerError, places: Sequence[int] | None) -> None:
        """They could not be stored."""


class ConsumerSink(Protocol):
    """Where the entries for one consumer go."""

    @property
    def writable(self) -> bool:
        """False while too much is unsent; ``Consumer.writable_again`` must be called when that has changed."""

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Entries in the order in which the client must see them."""

    def active_changed(self, active: bool) -> None:
        """Failover: this consumer is now the active one, or no longer."""

    def end_of_topic(self) -> None:
        """The topic has ended, and everything in it is acknowledged: nothing will come any more."""

    def closed_by_broker(self) -> None:
        """The consumer is gone (seek, topic deleted or unloaded); the client may subscribe again."""


class _NoClient:
    """The sink of a consumer that has left."""

    writable: Final = False

    def deliver(self, deliveries: list[Delivery]) -> None: ...
    def active_changed(self, active: bool) -> None: ...
    def end_of_topic(self) -> None: ...
    def closed_by_broker(self) -> None: ...


NO_CLIENT: Final[ConsumerSink] = _NoClient()
