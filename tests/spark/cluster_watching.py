# SPDX-License-Identifier: Apache-2.0
"""Who reads in the scenarios of ``takeover``: queries of Spark in several ways, consumers of the official client.

Owns what counts as delivered, to whom and when. A scenario asks after an ``Event`` when rows came again.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import pulsar
from pyspark.sql import DataFrame

from tests.spark.cluster_parts import PARTITIONS, PATIENCE_S, Rig

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

RECEIVE_MS: Final = 200
"""How often a consumer looks whether it shall end."""

RIVAL_S: Final = 0.02
"""What a rival works on a message, so that the query gets some too."""

RIVAL_QUEUE: Final = 20


class Mode(NamedTuple):
    """A way for a query to read. ``has_rival``: it shares its subscription with a consumer that is not ours, which has
    made it. ``keeps_order``: of the rows of a key."""

    name: str
    options: dict[str, str]
    has_rival: bool = False
    keeps_order: bool = True


POSITIONS: Final = Mode("positions", {"startingOffsets": "earliest"})
KEY_SHARED: Final = Mode("key_shared", {"startingOffsets": "earliest", "subscriptionType": "Key_Shared"})
SHARED: Final = Mode("shared", {"subscriptionType": "Shared"}, has_rival=True, keeps_order=False)
CLAIM: Final = Mode("shared-claim", {**SHARED.options, "queueGuarantee": "claim"}, has_rival=True, keeps_order=False)
MODES: Final = (POSITIONS, KEY_SHARED, SHARED, CLAIM)


def subscription(mode: Mode, topic: str) -> str:
    """The subscription of a query."""
    return f"{mode.name}-of-{topic}"


class Event(NamedTuple):
    """Something befell a partition at ``at``, on the monotonic clock, when ``sent`` rows had been sent."""

    at: float
    sent: int


class Row(NamedTuple):
    """A row and when it was delivered, on the monotonic clock."""

    value: int
    key: int
    partition: int
    at: float


class Rows:
    """What somebody was given, in that order. For several threads."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._came = threading.Condition(threading.RLock())

    def add(self, rows: list[Row]) -> None:
        with self._came:
            self._rows += rows
            self._came.notify_all()

    def all(self) -> list[Row]:
        with self._came:
            return self._rows.copy()

    def values(self) -> Counter[int]:
        """What was delivered, and how often."""
        return Counter(row.value for row in self.all())

    def first_after(self, event: Event) -> float | None:
        """Seconds from the event until a row that was sent later has come of each partition; None: not yet.

        Of each, for a micro-batch goes on when all are there again.
        """
        first: dict[int, float] = {}
        for row in self.all():
            if row.value >= event.sent:
                first.setdefault(row.partition, row.at - event.at)
        return max(first.values()) if len(first) == PARTITIONS else None

    def have_come_after(self, event: Event) -> bool:
        return self.first_after(event) is not None

    def are(self, count: int) -> bool:
        """Whether there are so many."""
        return len(self._rows) >= count

    def wait(
        self,
        done: Callable[[], bool],
        what: str,
        check: Callable[[], None] = lambda: None,
        within_s: float = PATIENCE_S,
    ) -> None:
        """Return when ``done`` holds; ``check`` raises where it cannot any more, TimeoutError if it never does."""
        deadline = time.monotonic() + within_s
        with self._came:
            while not done():
                check()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"in {within_s:g} s it never became true that {what}")
                self._came.wait(1.0)


class Watched:
    """A query of a whole topic, with every row that it has delivered; it may be stopped and started again."""

    def __init__(self, rig: Rig, topic: str, mode: Mode) -> None:
        self.rows = Rows()
        self.mode = mode
        self.subscription = subscription(mode, topic)
        self._rig = rig
        self._topic = topic
        self._replayed: dict[int, list[Row]] = {}
        self._query: StreamingQuery
        self.start()

    def start(self) -> None:
        """Begin, or go on from the checkpoint."""
        options = self._rig.options | self.mode.options | {"subscriptionName": self.subscription}
        frame = self._rig.spark.readStream.format("pulsarish").options(**options).load(self._topic)
        writer = frame.writeStream.foreachBatch(self._take)
        checkpoint = str(self._rig.directory / f"checkpoint-{self.subscription}")
        self._query = writer.option("checkpointLocation", checkpoint).start()

    def _take(self, frame: DataFrame, batch: int) -> None:
        """A sink that is idempotent: a batch that comes again must have the same rows, and counts once."""
        found = [
            (int(row.value), int(row.key), int(row.partition))
            for row in frame.select("value", "key", "partition").collect()
        ]
        rows = [Row(*each, time.monotonic()) for each in found]
        if (before := self._replayed.get(batch)) is not None:
            assert sorted(row[:3] for row in before) == sorted(found), f"batch {batch} was replayed with other rows"
            return
        self._replayed[batch] = rows
        self.rows.add(rows)

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Return when ``done`` holds of the rows; raises what the query failed with."""
        self.rows.wait(done, f"{what} in the query {self.subscription}", self.check)

    def check(self) -> None:
        """Raise what the query failed with, if it did."""
        if not self._query.isActive:
            raise RuntimeError(f"the query {self.subscription} ended: {self._query.exception()}")

    def stop(self) -> float:
        """How many seconds it took."""
        begun = time.monotonic()
        self._query.stop()
        return time.monotonic() - begun


@contextmanager
def streaming(rig: Rig, topic: str, mode: Mode) -> Iterator[Watched]:
    """A query of the whole topic, which must not have failed at the end."""
    query = Watched(rig, topic, mode)
    try:
        yield query
        query.check()
    finally:
        query.stop()


class Consumer:
    """An ordinary consumer of the official client: what it is given it acknowledges, on a thread of its own."""

    def __init__(self, client: pulsar.Client, topic: str, subscription: str, *, work_s: float = 0.0) -> None:
        """``work_s``: what it works on each message."""
        self.rows = Rows()
        self._work_s = work_s
        self._ending = threading.Event()
        self._consumer = client.subscribe(
            topic,
            subscription,
            consumer_type=pulsar.ConsumerType.Shared,
            receiver_queue_size=RIVAL_QUEUE if work_s else 1000,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        self._thread = threading.Thread(target=self._receive)
        self._thread.start()

    def _receive(self) -> None:
        while not self._ending.is_set():
            try:
                message = self._consumer.receive(RECEIVE_MS)
            except pulsar.Timeout:
                continue
            partition = message.message_id().partition()
            row = Row(int(message.data()), int(message.partition_key()), partition, time.monotonic())
            self.rows.add([row])
            self._consumer.acknowledge(message)
            self._ending.wait(self._work_s)

    def end(self) -> None:
        """Leave; what it was given and has not taken goes to others."""
        self._ending.set()
        self._thread.join()
        self._consumer.close()


@contextmanager
def consuming(rig: Rig, topic: str, subscription: str, *, work_s: float = 0.0) -> Iterator[Consumer]:
    """An ordinary consumer for the length of the block."""
    client = rig.official()
    try:
        consumer = Consumer(client, topic, subscription, work_s=work_s)
        try:
            yield consumer
        finally:
            consumer.end()
    finally:
        client.close()
