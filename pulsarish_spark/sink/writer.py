# SPDX-License-Identifier: Apache-2.0
"""The sink, batch and stream: rows of a task become entries, and the task ends when the broker has confirmed them all.

At least once: a task that is tried again, or a micro-batch that is replayed after a failure, writes its rows again.
What an unfinished attempt wrote stays in the topic. ``commit`` and ``abort`` therefore have nothing to do on the
broker. Spark hands a task its rows in Arrow batches, and each is checked as a whole before one of its rows is
sent; a row that is refused later in the task, or in another task, comes when rows before it are stored.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from broker_core.base.errors import PulsarishError, RowsUnconfirmedError
from pulsarish_spark.connecting.connection import connected
from pulsarish_spark.options import WriteOptions
from pulsarish_spark.plain_errors import plain_errors
from pulsarish_spark.workers.spark_worker import SentToWorkers, freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """The rows that one task wrote, all of them confirmed."""

    rows: int


def stored_words(rows: int) -> str:
    """The rows that a task leaves behind which was refused in the middle: those before are not taken back."""
    if not rows:
        return "no row of this task is stored, those of other tasks may be"
    return f"{rows} rows of this task were sent before and are stored, those of other tasks may be"


def write_rows(batches: Iterator[pa.RecordBatch], options: WriteOptions) -> Written:
    """Write all rows of a task; returns when they are confirmed."""
    first = next(batches, None)
    if first is None:
        return Written(0)
    from pulsarish_spark.sink.targets import Targets  # A process that only plans a write needs no arrays.

    written = 0
    with connected(options.address) as client:
        targets = Targets(client, options)
        try:
            for rows in itertools.chain([first], batches):
                targets.write(rows)
                written += rows.num_rows
            targets.flush()
        except RowsUnconfirmedError:
            raise
        except PulsarishError as refused:
            targets.flush()
            refused.message += f"; {stored_words(targets.rows_confirmed)}"
            raise
        finally:
            targets.close()
    freeze_imports()
    return Written(written)


def _total(messages: Sequence[WriterCommitMessage | None]) -> int:
    return sum(message.rows for message in messages if isinstance(message, Written))


class _Writer(SentToWorkers):
    """The tasks of both sinks."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = replace(options, address=options.address.for_executors())

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(iterator, self._options)


class PulsarishBatchWriter(_Writer, DataSourceArrowWriter):
    """The batch sink."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        logger.info("batch written topic=%s rows=%d", self._options.topic, _total(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        logger.warning("batch aborted topic=%s rows_left_min=%d", self._options.topic, _total(messages))


class PulsarishStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The stream sink. Spark makes a new one for each micro-batch, and another one to commit it."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        logger.info("batch written batch=%d topic=%s rows=%d", batchId, self._options.topic, _total(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        logger.warning(
            "batch aborted batch=%d topic=%s rows_left_min=%d", batchId, self._options.topic, _total(messages)
        )
