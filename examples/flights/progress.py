# SPDX-License-Identifier: Apache-2.0
"""Tells on stderr how far the job is: steps, and for each micro-batch the rows, rows a second and lag."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from pulsarish_spark.progress import lag, total

_POLL_S: Final = 0.2


class Progress:
    """Lines with the time since the job began."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.late_rows = 0
        """Rows that a watermark dropped, over all queries followed."""
        self._reported: defaultdict[str, int] = defaultdict(lambda: -1)
        """The last micro-batch that was told of each query."""

    @property
    def seconds(self) -> float:
        """Since the job began."""
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """One line."""
        print(f"[{self.seconds:5.1f} s] {text}", file=sys.stderr, flush=True)

    def follow(self, queries: Mapping[str, StreamingQuery]) -> None:
        """Report every micro-batch until all queries have read what was there. A query that failed raises its error."""
        with ThreadPoolExecutor(len(queries)) as pool:
            reading = [pool.submit(query.processAllAvailable) for query in queries.values()]
            while wait(reading, _POLL_S).not_done:
                self._report(queries)
        self._report(queries)
        for each in reading:
            each.result()

    def _report(self, queries: Mapping[str, StreamingQuery]) -> None:
        for name, query in queries.items():
            for batch in query.recentProgress:
                if batch["batchId"] > self._reported[name]:
                    self._reported[name] = batch["batchId"]
                    self.late_rows += sum(int(op["numRowsDroppedByWatermark"]) for op in batch["stateOperators"])
                    self.say(f"{name:5} {_batch_line(batch)}")


def _batch_line(batch: Any) -> str:
    rate, behind = batch["processedRowsPerSecond"], total(lag(batch)).messages
    shown = "unknown" if behind is None else f"{behind:7,}"
    return f"batch {batch['batchId']:2}: {batch['numInputRows']:7,} rows {rate:9,.0f} rows/s   lag {shown}"
