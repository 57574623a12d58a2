# SPDX-License-Identifier: Apache-2.0
"""SENDs of several producers of one connection that were read together, on their way into the log together.

Takes those that need no look at all by themselves: small, whole entries of one message (``admission``), of producers of
which nothing else is to be checked (``Producer.plain_log``). All others go to their ``ProducerChannel``. The SENDs of
one producer keep their order: when one of them goes the other way, those that were gathered go first.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.base.errors import RemoteProtocolError, ServerError, StorageError
from broker_core.base.positions import Position
from broker_core.broker.publishing.joint_run import append_jointly
from broker_core.broker.publishing.producer import EntryLog, Producer
from broker_core.server.admission import is_usual
from broker_core.server.producer_channel import ProducerChannel
from broker_core.server.session import Session, SessionState
from broker_core.wire import commands
from broker_core.wire.plain_sends import PlainSends, head_of, plain_receipts


class _Gathered:
    """Entries for one log, and the ``JointSink`` of their producers. ``ids`` are theirs as they travelled."""

    __slots__ = ("_link", "_partition", "bodies", "channels", "ids", "in_flight", "producers")

    def __init__(self, session: Session, partition: int) -> None:
        self._link = session.link
        self._partition = partition
        self.in_flight = session.in_flight
        self.channels: list[ProducerChannel] = []
        self.producers: list[Producer] = []
        self.ids: list[bytes] = []
        self.bodies: list[bytes] = []

    def append(self, log: EntryLog) -> None:
        """Into ``log``; if that takes none of it, each producer is told in its turn."""
        bodies, self.bodies = self.bodies, []
        try:
            append_jointly(log, self.producers, bodies, self)
        except StorageError:
            for channel, ids, body in zip(self.channels, self.ids, bodies, strict=True):
                channel.send_all([head_of(ids)], [body])

    def receipts(self, first: Position, places: Sequence[int] | None) -> None:
        ledger, entry = first
        if places is None:
            self._link.outbox.put(plain_receipts(self.ids, ledger, entry, self._partition))
            return
        for place in places:
            self._link.outbox.put(plain_receipts([self.ids[place]], ledger, entry + place, self._partition))

    def send_errors(self, error: ServerError, places: Sequence[int] | None) -> None:
        for place in range(len(self.ids)) if places is None else places:
            head = head_of(self.ids[place])
            self._link.send(commands.send_error(head.producer_id, head.sequence_id, error))


def send_jointly(session: Session, sends: PlainSends, bodies: Sequence[bytes]) -> None:
    """Act on ``sends`` with these ``bodies``. RemoteProtocolError: one is no entry at all, or came too early."""
    if session.state is not SessionState.CONNECTED:
        raise RemoteProtocolError(f"SEND of producer {sends.producer_ids[0]} came before CONNECT")
    gathered: dict[EntryLog, _Gathered] = {}
    for producer_id, ids, body in zip(*sends, bodies, strict=True):
        channel = session.producers.get(producer_id)
        if channel is None:
            continue  # dropped, as in Pulsar, for it crosses with the broker's CLOSE_PRODUCER
        producer = channel.producer
        log = producer.plain_log
        if log is None or not is_usual(body):
            _append_all(gathered)
            channel.send_all([head_of(ids)], [body])
            continue
        into = gathered.get(log)
        if into is None:
            into = gathered[log] = _Gathered(session, channel.partition)
        into.channels.append(channel)
        into.producers.append(producer)
        into.ids.append(ids)
        into.bodies.append(body)
    _append_all(gathered)


def _append_all(gathered: dict[EntryLog, _Gathered]) -> None:
    for log, entries in gathered.items():
        entries.append(log)
    gathered.clear()
