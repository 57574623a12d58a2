# SPDX-License-Identifier: Apache-2.0
"""One play of a stream from a queue to a sink, beside a rival on the same subscription.

Messages are locked, and acknowledged by the decision about the rows that are made of them. The rival is an ordinary
consumer; what it takes it has processed. While no driver is there, it takes more than a driver can have had of the
broker without a lock. In the end each message must be there once: as a row that a read-committed consumer sees, or with
the rival. Where the broker is killed, the rival takes nothing before: what becomes of its own acknowledgements is its
own affair.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from broker_core.base.names import TopicName
from broker_core.client import Client
from broker_core.client.admin import AdminApi
from tests.kill.once_drivers import TIMEOUT_S, HangingError
from tests.kill.once_job import ROWS, SUBSCRIPTION, Job
from tests.kill.once_play import Kind, Place, Play
from tests.kill.once_points import NEVER
from tests.kill.once_verification import Seen, look
from tests.kill.queue_rival import QUEUE_SIZE, Rival

MESSAGES: Final = 600
LAST: Final = 40
"""Messages that come when all is over."""
RIVAL_AT_FIRST: Final = 100
HELD: Final = 2 * ROWS + 2 * QUEUE_SIZE
"""More than a driver can hold of the broker without a lock, and the rival has on its way then."""


class QueuePlay(Play):
    """The protocol of both."""

    killed_batch = 2  # The first one of a process is without rows.

    def __init__(self, place: Place, kind: Kind, seed: int) -> None:
        super().__init__(place, kind, seed)
        self._queue = f"{self._topic}-in"
        self._client = Client(place.server.service_url, operation_timeout_s=60)
        self._rival: Rival | None = None

    def _played(self) -> Seen:
        self._prepare()
        with AdminApi(self._place.server.http_url, timeout_s=60) as admin:
            admin.create_topic(TopicName.parse(self._queue), 0)
        rival = self._rival = self._new_rival()
        self._send(0, MESSAGES)
        self._strike()
        self._go_through(0)
        rival.go_on()
        self._send(MESSAGES, MESSAGES + LAST)
        self._go_through(0)
        rival.end()
        self._go_through(0)  # What the rival had been given and not taken.
        expected = map(str, range(MESSAGES + LAST))
        return look(self._job(NEVER), self._place.server.http_url, expected, map(str, rival.processed))

    def _new_rival(self) -> Rival:
        return Rival(self._client, self._queue, SUBSCRIPTION, 0 if self._kind.victim == "broker" else RIVAL_AT_FIRST)

    def _send(self, first: int, end: int) -> None:
        with self._client.create_producer(self._queue, batching_enabled=False) as producer:
            for number in range(first, end):
                producer.send_async(str(number), key=f"k{number}")
            producer.flush()

    def _while_away(self) -> None:
        rival = self._rival
        assert rival is not None
        rival.go_on()
        wanted = min(len(rival.processed) + HELD, MESSAGES - 3 * ROWS)
        try:
            rival.wait_until(lambda seen: len(seen) >= wanted, TIMEOUT_S)
        except TimeoutError as failure:
            raise HangingError(f"the rival is given nothing: {failure}") from failure

    def _job(self, step: str, batches: int = 0) -> Job:
        return replace(super()._job(step, batches), queue=self._queue)

    def _clear_away(self) -> None:
        super()._clear_away()
        if self._rival is not None:
            self._rival.end()
        self._client.close()
