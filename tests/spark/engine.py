# SPDX-License-Identifier: Apache-2.0
"""What Spark asks of a stream source, in its order and in this process: for tests of positions that need no session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pulsarish_spark.options import Side, read_options
from pulsarish_spark.rows.schema import spark_schema
from pulsarish_spark.stream_reader import PulsarishStreamReader
from pulsarish_spark.typed.target_schema import with_typed_values

_TRIGGERS_MAX: Final = 100


class Engine:
    """One query from the beginning of its topics; each ``trigger`` is a micro-batch, noted if it succeeds."""

    def __init__(self, service_url: str, **options: str | int) -> None:
        self._options: dict[str, str | int] = {"service.url": service_url, "startingOffsets": "earliest", **options}
        self.end: dict[str, Any] | None = None
        """The end of the last batch that succeeded: what the checkpoint would say."""
        self._begun: dict[str, Any] | None = None
        """The end of a batch that the checkpoint has noted, and that has not succeeded."""
        self._reader = self._new_reader()

    def restart(self, **options: str | int) -> None:
        """Stop, and go on from the checkpoint with other options."""
        self._reader.stop()
        self._options |= options
        self._reader = self._new_reader()

    def bound_to_now(self) -> None:
        """Be an AvailableNow query from now on, until a restart."""
        self._reader.prepareForTriggerAvailableNow()

    def initial(self) -> None:
        """Find where a new query begins, as Spark does before the first batch."""
        self._reader.initialOffset()

    def trigger(self) -> list[int] | None:
        """Run one batch if there is something new, or the one that was begun and not committed; returns its values."""
        values = self.attempt()
        if values is not None:
            self.note()
        return values

    def attempt(self) -> list[int] | None:
        """The same, but the query dies before the batch is committed: the next attempt replays its range."""
        tasks = self.plan()
        return None if tasks is None else [*self.values(tasks)]

    def plan(self) -> list[InputPartition] | None:
        """The tasks of such a batch."""
        start = _json(self._reader.initialOffset() if self.end is None else self.end)
        if self._begun is None:
            end = _json(self._reader.latestOffset(start, self._reader.getDefaultReadLimit()))
            if end == start:
                return None
            if self.end is not None:
                self._reader.commit(self.end)
            self._begun = end
        return self._reader.partitions(start, self._begun)

    def values(self, tasks: list[InputPartition]) -> Iterator[int]:
        """What tasks read, as they read it."""
        for task in tasks:
            for batch in self.batches(task):
                yield from map(int, batch.column("value").to_pylist())

    def batches(self, task: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        return self._reader.read(task)

    def note(self) -> None:
        """The batch that was planned has succeeded."""
        self.end, self._begun = self._begun, None

    @property
    def known_partitions(self) -> set[int]:
        """Numbers of the partitions that the checkpoint names."""
        places = [found for topic, found in (self.end or {}).items() if "://" in topic]
        return {int(number) for found in places for number in found}

    def drain(self) -> list[int]:
        """Run batches until there is nothing new; returns all their values, sorted."""
        found: list[int] = []
        for _ in range(_TRIGGERS_MAX):
            if (values := self.trigger()) is None:
                return sorted(found)
            found += values
        raise AssertionError(f"there was something new in each of {_TRIGGERS_MAX} triggers")

    def progress(self) -> dict[str, Any]:
        """What Spark would report of the last batch."""
        return {"sources": [{"endOffset": self.end, "latestOffset": _json(self._reader.reportLatestOffset())}]}

    def stop(self) -> None:
        self._reader.stop()

    def _new_reader(self) -> PulsarishStreamReader:
        raw = {name.lower(): str(value) for name, value in self._options.items()}
        checked = with_typed_values(read_options(raw, Side.STREAM_READ, {}))
        return PulsarishStreamReader(raw, spark_schema(checked.columns, checked.typed), checked.typed)


def _json(offset: Any) -> dict[str, Any]:
    """As it comes back from Spark, which keeps offsets as text."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found
