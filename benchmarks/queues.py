# SPDX-License-Identifier: Apache-2.0
"""Queue mode beside the stream by positions: the same topics, triggers and columns, in turns.

The broker has its default limits, 50,000 messages without acknowledgement for each consumer, so queue mode has several
consumers and its batches are as large as those allow.
"""

from __future__ import annotations

import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.compare import Sample, Side, in_turn
from benchmarks.connectors import PulsarishConnector
from benchmarks.measure import Figure
from benchmarks.spark_cases import Rows, SparkCases, new_session
from benchmarks.spark_suite import both_rates
from broker_core.testing.running_broker import RunningBroker

COLUMNS: Final = {"columns": "key,value"}
TRIGGER_ROWS: Final = 200_000

ENTRY_OF_ONE: Final = {"batchingMaxMessages": "1"}


@dataclass(frozen=True, slots=True)
class QueueConnector(PulsarishConnector):
    """Our source in queue mode, each time on a subscription of its own."""

    guarantee: str = "commit"

    def source_options(self, topic: str) -> dict[str, str]:
        shared = {"subscriptionType": "Shared", "subscriptionName": f"queue-{uuid.uuid4().hex[:8]}"}
        shared |= {"queueGuarantee": self.guarantee, "availableNowQuietMs": "300"}
        return PulsarishConnector.source_options(self, topic) | shared


def run(*, quick: bool) -> list[Figure]:
    """Rows per second of both, of entries of many messages and of one."""
    with tempfile.TemporaryDirectory(prefix="bench-queues-") as folder, RunningBroker(Path(folder) / "data") as broker:
        session = new_session([])
        cases = SparkCases(session, Path(folder))
        readers = [
            PulsarishConnector(broker, "positions", COLUMNS),
            QueueConnector(broker, "queue, commit", COLUMNS),
            QueueConnector(broker, "queue, claim", COLUMNS, guarantee="claim"),
        ]
        figures: list[Figure] = []
        for rows, single in _cases(quick):
            if single:
                cases.fill(PulsarishConnector(broker, write_options=ENTRY_OF_ONE), rows)
            name = f"Spark queue read, {rows}, {'single' if single else 'batched'}"
            sides = {reader.side: _side(cases, reader, rows) for reader in readers}
            figures += in_turn(name, sides, 1 if quick else 3)
        session.stop()
    return figures


def _cases(quick: bool) -> list[tuple[Rows, bool]]:
    """What is read, and whether each message is an entry. Counts differ, as topics are named after them."""
    batched, single = (300_000, 60_000) if quick else (2_000_000, 400_000)
    return [(Rows(count, 100, parts), count == single) for count in (batched, single) for parts in (1, 4)]


def _side(cases: SparkCases, reader: PulsarishConnector, rows: Rows) -> Side:
    def run_once() -> Sample:
        return both_rates(cases.stream_read(reader, rows, trigger_rows=TRIGGER_ROWS))

    return run_once
