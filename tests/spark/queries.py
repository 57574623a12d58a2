# SPDX-License-Identifier: Apache-2.0
"""Running streaming queries in tests: what each micro-batch delivered, with deadlines instead of sleeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

DEADLINE_S: Final = 400
"""Far more than is needed: a machine that is busy must not fail a test."""


class Collector:
    """A ``foreachBatch`` sink that keeps the values of every batch, by batch id. A replayed batch is kept beside."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}
        self.replays: list[tuple[int, list[int]]] = []
        self._changed = threading.Condition()

    def __call__(self, frame: DataFrame, batch: int) -> None:
        found = [int(row[0]) for row in frame.select("value").collect()]
        with self._changed:
            if batch in self.batches:
                self.replays.append((batch, found))
            else:
                self.batches[batch] = found
            self._changed.notify_all()

    @property
    def values(self) -> list[int]:
        """Everything delivered, sorted."""
        return sorted(value for batch in self.batches.values() for value in batch)

    @property
    def sizes(self) -> list[int]:
        """Rows of each batch that had any, in order."""
        return [len(rows) for _, rows in sorted(self.batches.items()) if rows]

    def wait_for(self, count: int) -> None:
        """Return when ``count`` values have been delivered."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.values) >= count, DEADLINE_S):
                raise TimeoutError(f"only {len(self.values)} of {count} values came")


def drain(frame: DataFrame, checkpoint: Path, sink: Callable[[DataFrame, int], None]) -> list[dict[str, Any]]:
    """Run an AvailableNow query to its end; returns its progress reports."""
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    finish(query)
    return [dict(progress) for progress in query.recentProgress]


def follow(frame: DataFrame, checkpoint: Path, sink: Callable[[DataFrame, int], None]) -> StreamingQuery:
    """Start a query with the default trigger."""
    return frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint)).start()


def finish(query: StreamingQuery) -> None:
    """Wait for the end of a query that ends by itself."""
    if not query.awaitTermination(DEADLINE_S):
        query.stop()
        raise TimeoutError(f"the query did not end in {DEADLINE_S} s")


def eventually(check: Callable[[], bool], what: str) -> None:
    """Return when ``check`` holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"in {DEADLINE_S} s it never became true that {what}")
        time.sleep(0.02)
