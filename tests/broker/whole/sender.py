# SPDX-License-Identifier: Apache-2.0
"""``Sender``: a producer's client in a random history. It knows what it has sent and what was answered.

Checks by itself what holds for any producer: receipts come in the order of sends (1.7.7).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from broker_core.base.errors import ServerError
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.broker.publishing.producer import Producer
from broker_core.broker.requests import ProducerRequest
from broker_core.broker.sinks import InFlight
from broker_core.broker.topic import Topic
from broker_core.wire.heads import SendHead
from tests.broker.whole.entry import Entry


class Sender:
    """``unanswered``: sent, and the client does not know whether it is stored; ``expected``: not yet seen in the log.
    Both in the order of sending. ``on_error`` is told what was refused."""

    def __init__(self, name: str, on_error: Callable[[Sender, ServerError], None]) -> None:
        self.name = name
        self.producer: Producer | None = None
        self.unanswered: deque[Entry] = deque()
        self.expected: deque[Entry] = deque()
        self.confirmed: dict[Position, Entry] = {}
        self.next_id = 0
        self.in_flight = InFlight()
        self._on_error = on_error

    @property
    def is_connected(self) -> bool:
        return self.producer is not None and self.producer.accepting

    def connect(self, topic: Topic, **request: object) -> None:
        """Raises what the broker says if it does not want it."""
        self.producer = topic.add_producer(ProducerRequest(self.name, **request), self)  # type: ignore[arg-type]

    def cut_off(self) -> None:
        """The connection is lost; nothing is heard any more."""
        producer, self.producer = self.producer, None
        if producer is not None:
            producer.abandon()

    def send(self, entry: Entry) -> None:
        """A new one."""
        entry = entry._replace(producer=self.name, sequence_id=self.next_id)
        self.next_id += entry.messages
        self.unanswered.append(entry)
        self.expected.append(entry)
        self._transmit(entry)

    def resend(self) -> None:
        """A new connection begins with everything that was not answered."""
        for entry in list(self.unanswered):
            self._transmit(entry)

    def _transmit(self, entry: Entry) -> None:
        assert self.producer is not None
        is_chunk = entry.chunk is not None
        head = SendHead(0, entry.sequence_id, entry.messages, entry.highest_sequence_id, is_chunk)
        self.producer.send(head, entry.body())

    def stored(self, position: Position, entry: Entry) -> None:
        """It was seen in the log: nothing is missing before it, and it was not there before (1.8, I1.5)."""
        assert self.expected, f"{entry} was never sent, or is there twice"
        assert self.expected.popleft() == entry, "not what was sent, or not in its order"
        assert self.confirmed.pop(position, entry) == entry, "not what was confirmed"

    # -- ProducerSink

    def ready(self) -> None:
        """The producer has got the exclusive access that it waited for."""

    def refused(self, error: ServerError) -> None:
        """The producer will not get the exclusive access that it waited for."""
        self.producer = None

    def receipt(self, sequence_ids: Sequence[int], highest_sequence_ids: Sequence[int], first: Position) -> None:
        for number, sequence_id in enumerate(sequence_ids):
            entry = self.unanswered.popleft()
            assert sequence_id == entry.sequence_id, "receipts come in the order of sends (1.7.7)"
            if first != POSITION_EARLIEST:
                self.confirmed[first._replace(entry=first.entry + number)] = entry
            else:
                assert entry not in self.expected, "called a duplicate, but it is not stored (1.8.4)"

    def send_error(self, sequence_id: int, error: ServerError) -> None:
        self._on_error(self, error)

    def closed_by_broker(self) -> None:
        self.producer = None
