# SPDX-License-Identifier: Apache-2.0
"""One process of a query in queue mode, which kills itself at a step: what ``queue_rig`` starts again and again.

``run_query`` is all of it; the rig forks processes that run it from one that has imported everything. It calls the
stream reader in Spark's order, with offset log, commit log and sink as files of a folder, each written at once and
synced. At a step of a batch it ends by SIGKILL, and waits for messages until then; with the step ``never`` it ends when
nothing comes any more. The sink is idempotent: a batch that is run again replaces its file, and the former
rows stay beside it to be compared.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, Final, Literal, get_args

from pulsarish_spark.options import Side, read_options
from pulsarish_spark.rows.schema import spark_schema
from pulsarish_spark.stream_reader import PulsarishStreamReader

Step = Literal["given", "noted", "planned", "read", "sunk", "committed"]
STEPS: Final[tuple[Step, ...]] = get_args(Step)
NEVER: Final = "never"

SUBSCRIPTION: Final = "work"
BATCH_MESSAGES: Final = 200
QUIET_MS: Final = 2_000


def options_of(service_url: str, topic: str, guarantee: str) -> dict[str, str]:
    """What a user says of the query."""
    return {
        "service.url": service_url,
        "topic": topic,
        "subscriptionType": "Shared",
        "subscriptionName": SUBSCRIPTION,
        "queueGuarantee": guarantee,
        "maxOffsetsPerTrigger": str(BATCH_MESSAGES),
        "availableNowQuietMs": str(QUIET_MS),
    }


def reader_of(options: dict[str, str]) -> PulsarishStreamReader:
    """The source as Spark makes it."""
    raw = {name.lower(): value for name, value in options.items()}
    return PulsarishStreamReader(raw, spark_schema(read_options(raw, Side.STREAM_READ, {}).columns))


def store(folder: Path, name: str, what: object) -> None:
    """Write ``what`` as JSON, whole or not at all."""
    path = folder / name
    with path.with_suffix(".new").open("w") as file:
        json.dump(what, file)
        file.flush()
        os.fsync(file.fileno())
    path.with_suffix(".new").rename(path)


def store_rows(folder: Path, number: int, rows: list[int]) -> None:
    """What the sink was given as batch ``number``, beside what it was given as that batch before."""
    attempt = sum(1 for _ in folder.glob(f"rows-{number:04}-*"))
    store(folder, f"rows-{number:04}-{attempt}", rows)


class Query:
    """``folder``: its checkpoint and its sink."""

    def __init__(self, reader: PulsarishStreamReader, folder: Path, step: str, batch: int) -> None:
        self._reader = reader
        self._folder = folder
        self._step = step
        self._batch = batch

    def run(self) -> None:
        """Go on from the checkpoint to the end."""
        if self._step == NEVER:
            self._reader.prepareForTriggerAvailableNow()
        number = sum(1 for _ in self._folder.glob("commit-*"))
        while True:
            start = self._offset(number - 1)
            end = self._noted(number)
            if end is None:
                end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
                (self._folder / "attached").touch()
                if end == start and self._step == NEVER:
                    return
                if end == start:
                    continue
                self._pass("given", number)
                store(self._folder, f"offset-{number:04}", end)
                self._pass("noted", number)
                if number:
                    self._reader.commit(start)
            tasks = self._reader.partitions(start, end)
            self._pass("planned", number)
            batches = [batch for task in tasks for batch in self._reader.read(task)]
            rows = [int(value) for batch in batches for value in batch["value"].to_pylist()]
            self._pass("read", number)
            store_rows(self._folder, number, rows)
            self._pass("sunk", number)
            store(self._folder, f"commit-{number:04}", {})
            self._pass("committed", number)
            number += 1

    def _offset(self, number: int) -> Any:
        return self._reader.initialOffset() if number < 0 else self._noted(number)

    def _noted(self, number: int) -> Any:
        path = self._folder / f"offset-{number:04}"
        return json.loads(path.read_text()) if path.exists() else None

    def _pass(self, step: Step, number: int) -> None:
        if step == self._step and number == self._batch:
            os.kill(os.getpid(), signal.SIGKILL)


def run_query(service_url: str, topic: str, folder: str, guarantee: str, step: str, batch: int) -> None:
    """The query, to its end or to ``step`` of ``batch``."""
    assert step in (*STEPS, NEVER)
    Query(reader_of(options_of(service_url, topic, guarantee)), Path(folder), step, batch).run()
