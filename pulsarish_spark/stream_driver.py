# SPDX-License-Identifier: Apache-2.0
"""What Spark asks of a stream, in its order. ``stream_reader`` calls this and knows nothing else of a driver.

How the messages of a batch are chosen is the driver's business: ``position_driver`` takes ranges between positions.
"""

from __future__ import annotations

from typing import Protocol

from pulsarish_spark.places.offsets import SourceOffset
from pulsarish_spark.tasks.task import ReadTask


class StreamDriver(Protocol):
    """State of one running query on the driver. Used by one thread."""

    def bound_to_now(self) -> None:
        """AvailableNow: read no further than what is there at the first ``latest``."""
        ...

    def initial(self) -> SourceOffset:
        """Where a query without a checkpoint starts; the same answer each time."""
        ...

    def latest(self, start: SourceOffset, limit: int | None) -> SourceOffset:
        """How far the next batch from ``start`` goes, in at most ``limit`` messages; ``start`` if nothing is new."""
        ...

    def newest(self) -> SourceOffset | None:
        """The ends as last seen, for the progress report."""
        ...

    def tasks(self, start: SourceOffset, end: SourceOffset) -> list[ReadTask]:
        """The tasks of the batch between two offsets. A batch that is replayed has the same messages."""
        ...

    def commit(self, end: SourceOffset) -> None:
        """Spark will never ask for anything before ``end`` again."""
        ...

    def close(self) -> None:
        """Leave the subscription; it stays on the broker."""
        ...
