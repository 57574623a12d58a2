# SPDX-License-Identifier: Apache-2.0
"""``JointRun``: entries of several producers of one connection that go into a log together.

Many producers that do not batch bring an entry or two each at a time. Their entries follow one another in the log, as
those of a run of one producer do, and become durable together, so most of what an append and an answer cost is paid
once for all of them. Each producer holds a place for each of its entries, so its other answers keep their order.

Knows nothing of what an answer looks like: the sink has what the client wants to read in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.base.errors import StorageError
from broker_core.base.positions import POSITION_EARLIEST
from broker_core.broker.publishing.producer import EntryLog, Producer, not_stored
from broker_core.broker.sinks import JointSink


def append_jointly(log: EntryLog, producers: Sequence[Producer], bodies: Sequence[bytes], sink: JointSink) -> None:
    """Append ``bodies``, small entries of one message, each of the producer at the same place; at least one.

    ``log`` is the ``plain_log`` of all ``producers``. StorageError: the log took none of it, and nothing has changed.
    """
    run = JointRun(producers, list(map(len, bodies)), sink)
    run.first = log.append_all(bodies, [1] * len(bodies), run.durable)
    run.begin()


class JointRun:
    """Entries of several producers in flight together. ``first``: the position of the first one."""

    __slots__ = ("_producers", "_sink", "_size_bytes", "_sizes", "first")

    def __init__(self, producers: Sequence[Producer], sizes: Sequence[int], sink: JointSink) -> None:
        self._producers = producers
        self._sizes = sizes
        self._size_bytes = sum(sizes)
        self._sink = sink
        self.first = POSITION_EARLIEST

    def begin(self) -> None:
        """It was appended."""
        for producer, size in zip(self._producers, self._sizes, strict=True):
            producer.joined(size)
        self._sink.in_flight.add(len(self._sizes), self._size_bytes)
        traffic = self._producers[0].topic_traffic
        traffic.messages += len(self._sizes)
        traffic.bytes += self._size_bytes

    def durable(self, error: StorageError | None) -> None:
        """Report the outcome. Producers that have left meanwhile get no answer, as for a run of their own."""
        present = [producer.wants_answers for producer in self._producers]
        places = None if all(present) else [place for place, wanted in enumerate(present) if wanted]
        if error is None:
            self._sink.receipts(self.first, places)
        else:
            self._sink.send_errors(not_stored(error), places)
        self._sink.in_flight.add(-len(self._sizes), -self._size_bytes)
        for producer, size in zip(self._producers, self._sizes, strict=True):
            producer.joined_one_answered(size)
