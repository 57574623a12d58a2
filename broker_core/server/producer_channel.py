# SPDX-License-Identifier: Apache-2.0
"""One producer of one connection, between the frames and the broker: SENDs go in, receipts and refusals come out.

The order of answers is the broker's: a refusal waits for the receipts of the entries sent before it, and
CLOSE_PRODUCER is answered after the last receipt. Here nothing is queued. Knows no session: ``forget``
ends its registration there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker_core.base.errors import ServerError
from broker_core.base.positions import Position
from broker_core.broker.broker import AnyTopic
from broker_core.broker.publishing.producer import Producer
from broker_core.broker.requests import ProducerRequest
from broker_core.broker.sinks import InFlight
from broker_core.server.admission import admit_all
from broker_core.server.link import NO_REQUEST, Link
from broker_core.wire import commands
from broker_core.wire.core.hot_commands import receipt_frames
from broker_core.wire.heads import SendHead
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand


class ProducerChannel:
    """One producer of one connection: takes its SENDs, and is the broker's ``ProducerSink``."""

    __slots__ = ("_forget", "_link", "_outbox", "_producer_id", "_request_id", "in_flight", "partition", "producer")

    def __init__(
        self,
        link: Link,
        producer_id: int,
        topic: AnyTopic,
        request: ProducerRequest,
        request_id: int,
        in_flight: InFlight,
        forget: Callable[[], bool],
    ) -> None:
        """``in_flight`` is the connection's. ``forget`` is called when it is not open any more, and says whether it
        was."""
        self._link = link
        self._outbox = link.outbox
        self._forget = forget
        self._producer_id = producer_id
        self._request_id = request_id
        self.in_flight = in_flight
        self.partition = topic.name.partition_index
        self.producer: Producer = topic.add_producer(request, self)

    def send_all(self, heads: Sequence[SendHead], bodies: Sequence[bytes]) -> None:
        """SENDs that came together. Raises RemoteProtocolError if one of ``bodies`` is not an entry at all."""
        sends = zip(heads, bodies, strict=True)
        at = 0
        while at < len(heads):
            admitted: list[bytes] = []
            refusal = None
            try:
                admit_all(sends, admitted)
            except ServerError as error:
                refusal = error
            finally:
                # Before the entries behind it are answered.
                if admitted:
                    self.producer.send_all(heads[at : at + len(admitted)], admitted)
            at += len(admitted)
            if refusal is not None:
                self.producer.refuse(heads[at].sequence_id, refusal)
                at += 1

    def confirm(self, request_id: int) -> None:
        """Answer PRODUCER: it may send, or must wait for exclusive access and gets another answer then under the same
        id. The last sequence id is one that a program may go on behind, so its entry is stored by then."""
        producer = self.producer
        self._request_id = request_id
        answer = BaseCommand(type=BaseCommand.PRODUCER_SUCCESS)
        answer.producer_success.request_id = request_id
        answer.producer_success.producer_name = producer.name
        answer.producer_success.last_sequence_id = producer.last_sequence_id
        answer.producer_success.producer_ready = producer.accepting
        answer.producer_success.schema_version = b""  # Java clients up to 4.0 read it unasked, and reconnect for ever
        if producer.topic_epoch is not None:
            answer.producer_success.topic_epoch = producer.topic_epoch
        if producer.last_is_under_way:
            self._link.hold_until(producer.when_stored)
        self._link.send(answer)

    def ready(self) -> None:
        self.confirm(self._request_id)

    def refused(self, error: ServerError) -> None:
        self._forget()
        self._link.send(commands.error(self._request_id, error))

    def receipt(self, sequence_ids: Sequence[int], highest_sequence_ids: Sequence[int], first: Position) -> None:
        ledger, entry = first
        self._outbox.put(
            receipt_frames((self._producer_id,), sequence_ids, ledger, entry, self.partition, highest_sequence_ids)
        )

    def send_error(self, sequence_id: int, error: ServerError) -> None:
        self._link.send(commands.send_error(self._producer_id, sequence_id, error))

    def closed_by_broker(self) -> None:
        if self._forget():
            self._link.send(commands.close_producer(self._producer_id, NO_REQUEST))

    def close(self, on_closed: Callable[[], None]) -> None:
        """Take no more sends; ``on_closed`` is called when all are answered."""
        self.producer.close(on_closed)

    def abandon(self) -> None:
        """The connection is gone."""
        self.producer.abandon()
