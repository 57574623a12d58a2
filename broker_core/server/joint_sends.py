# SPDX-License-Identifier: Apache-2.0
"""SENDs of several producers of one connection that were read together, on their way into the log together.

Takes those that need no look at all by themselves: small, whole entries of one message (``admission``), of producers of
which nothing else is to be checked (``Producer.plain_log``). All others go to their ``ProducerChannel``. The SENDs of
one producer keep their order: when one of them goes the other way, those that were gathered go first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker_core.base.errors import RemoteProtocolError, ServerError, StorageError
from broker_core.base.positions import Position
from broker_core.broker.publishing.producer import EntryLog, Producer, append_jointly
from broker_core.server.admission import is_usual
from broker_core.server.channels import ProducerChannel
from broker_core.server.session import Session, SessionState
from broker_core.wire import commands
from broker_core.wire.core.hot_commands import receipt_frames
from broker_core.wire.heads import SendHead, send_columns

_ONE_MESSAGE: Final = SendHead(0, 0)[2:]
"""All but the ids of a SEND of one message that is neither a chunk nor in a transaction."""


class _Gathered:
    """Entries for one log, and the ``JointSink`` of their producers."""

    __slots__ = ("_link", "_partition", "bodies", "channels", "heads", "in_flight", "producers")

    def __init__(self, session: Session, partition: int) -> None:
        self._link = session.link
        self._partition = partition
        self.in_flight = session.in_flight
        self.channels: list[ProducerChannel] = []
        self.producers: list[Producer] = []
        self.heads: list[SendHead] = []
        self.bodies: list[bytes] = []

    def append(self, log: EntryLog) -> None:
        """Into ``log``; if that takes none of it, each producer is told in its turn."""
        bodies, self.bodies = self.bodies, []
        try:
            append_jointly(log, self.producers, bodies, self)
        except StorageError:
            for channel, head, body in zip(self.channels, self.heads, bodies, strict=True):
                channel.send_all([head], [body])

    def receipts(self, first: Position, places: Sequence[int] | None) -> None:
        ledger, entry = first
        columns = send_columns(self.heads)
        producer_ids, sequence_ids = columns.producer_ids, columns.sequence_ids
        if places is None:
            self._link.outbox.put(receipt_frames(producer_ids, sequence_ids, ledger, entry, self._partition))
            return
        for place in places:
            ids = producer_ids[place : place + 1], sequence_ids[place : place + 1]
            self._link.outbox.put(receipt_frames(*ids, ledger, entry + place, self._partition))

    def send_errors(self, error: ServerError, places: Sequence[int] | None) -> None:
        for place in range(len(self.heads)) if places is None else places:
            head = self.heads[place]
            self._link.send(commands.send_error(head.producer_id, head.sequence_id, error))


def send_jointly(session: Session, heads: Sequence[SendHead], bodies: Sequence[bytes]) -> None:
    """Act on SENDs with these ``bodies``. RemoteProtocolError: one is no entry at all, or came too early."""
    if session.state is not SessionState.CONNECTED:
        raise RemoteProtocolError(f"SEND of producer {heads[0].producer_id} came before CONNECT")
    gathered: dict[EntryLog, _Gathered] = {}
    at = 0
    while at < len(heads):
        head, start = heads[at], at
        producer_id = head.producer_id
        at += 1
        while at < len(heads) and heads[at].producer_id == producer_id:
            at += 1
        channel = session.producers.get(producer_id)
        if channel is None:
            continue  # dropped, as in Pulsar, for it crosses with the broker's CLOSE_PRODUCER
        log = channel.producer.plain_log
        if log is None or at - start > 1 or head[2:] != _ONE_MESSAGE or not is_usual(bodies[start]):
            _append_all(gathered)
            channel.send_all(heads[start:at], bodies[start:at])
            continue
        into = gathered.get(log)
        if into is None:
            into = gathered[log] = _Gathered(session, channel.partition)
        into.channels.append(channel)
        into.producers.append(channel.producer)
        into.heads.append(head)
        into.bodies.append(bodies[start])
    _append_all(gathered)


def _append_all(gathered: dict[EntryLog, _Gathered]) -> None:
    for log, entries in gathered.items():
        entries.append(log)
    gathered.clear()
