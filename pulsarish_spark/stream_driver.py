# SPDX-License-Identifier: Apache-2.0
"""What Spark asks of a stream, in its order. ``stream_reader`` calls this and knows nothing else of a driver.

How the messages of a batch are chosen is the driver's business, and so is what an offset says: ``position_driver``
takes ranges between positions, ``queue_driver`` what the broker gives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from pulsarish_spark.tasks.task import ReadTask


class StreamOffset(Protocol):
    """What one offset of a query says. Offsets that are equal have the same JSON."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, in the one order: Spark compares offsets as text."""
        ...


O = TypeVar("O", bound=StreamOffset)  # noqa: E741 - as usual for a type variable, one letter


class StreamDriver(Protocol[O]):
    """State of one running query on the driver. Used by one thread."""

    def offset(self, document: Mapping[str, Any]) -> O:
        """Read ``to_json()`` of an offset back; UsageError for one that this driver has not made."""
        ...

    def bound_to_now(self) -> None:
        """AvailableNow: read no further than what is there at the first ``latest``."""
        ...

    def initial(self) -> O:
        """Where a query without a checkpoint starts; the same answer each time."""
        ...

    def latest(self, start: O, limit: int | None) -> O:
        """How far the next batch from ``start`` goes, in at most ``limit`` messages; ``start`` if there is none.

        ``limit`` None: the trigger takes all that there is, whatever the options say.
        """
        ...

    def newest(self) -> StreamOffset | None:
        """What the progress report shows as newest: the ends as last seen, or what else says how much is left."""
        ...

    def tasks(self, start: O, end: O) -> list[ReadTask]:
        """The tasks of the batch between two offsets. A batch that is replayed has the same messages."""
        ...

    def commit(self, end: O) -> None:
        """Spark will never ask for anything before ``end`` again."""
        ...

    def close(self) -> None:
        """Leave the subscription; it stays on the broker."""
        ...
