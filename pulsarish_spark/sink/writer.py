# SPDX-License-Identifier: Apache-2.0
"""The sink, batch and stream: rows of a task become entries, and the task ends when the broker has confirmed them all.

At least once: a task that is tried again, or a micro-batch that is replayed after a failure, writes its rows again.
What an unfinished attempt wrote stays in the topic. ``commit`` and ``abort`` therefore have nothing to do on the
broker.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from broker_core.base.clock import SystemClock
from broker_core.base.errors import ConfigError, RowError
from pulsarish_spark.connecting.connection import connected
from pulsarish_spark.options import WriteOptions
from pulsarish_spark.plain_errors import plain_errors
from pulsarish_spark.workers.spark_worker import SentToWorkers, freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa

    from broker_core.client import Client, EntryWriter
    from broker_core.client.columnar.entry_writer import EncodedRows

logger = logging.getLogger(__name__)

_IN_CHUNKS: Final = '.option("chunkingEnabled", "true")'
"""How users of Spark say ``chunking_enabled``, which the client's hints speak of."""


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What one task wrote, all of it confirmed."""

    rows: int


class _Targets:
    """The entry writers of one task, one for each topic or explicit partition, opened when first needed."""

    def __init__(self, client: Client, options: WriteOptions) -> None:
        self._client = client
        self._options = options
        self._writers: dict[str, EntryWriter] = {}
        self._partitions: dict[str, Sequence[str]] = {}

    def write(self, rows: pa.RecordBatch) -> None:
        """All that can be wrong with ``rows`` is found before one of them is sent."""
        from pulsarish_spark.sink.column_names import with_own_names
        from pulsarish_spark.sink.delivery import with_delivery_times
        from pulsarish_spark.sink.rows import message_rows, split_by_target

        rows = with_own_names(rows, self._options.column_names)
        rows = with_delivery_times(rows, self._options.deliver_after_ms, SystemClock().now_ms())
        parts = [
            (topic if partition is None else self._partition_name(topic, partition, chosen), chosen)
            for topic, partition, chosen in split_by_target(rows, self._options.topic)
        ]
        ready = [(name, chosen, message_rows(chosen, self._options.key_form)) for name, chosen in parts]
        for name, _, _ in ready:
            if name not in self._writers:
                self._writers[name] = self._client.write_rows(name, **self._options.writing())
        encoded = [(self._writers[name], self._encoded(name, chosen, rows)) for name, chosen, rows in ready]
        for writer, entries in encoded:
            writer.send(entries)

    def _encoded(self, name: str, chosen: pa.RecordBatch, rows: pa.RecordBatch) -> list[EncodedRows]:
        from pulsarish_spark.sink.properties import row_words

        try:
            return self._writers[name].encode(rows)
        except RowError as error:
            hint = error.hint.replace("chunking_enabled", _IN_CHUNKS)
            raise ConfigError(f"{row_words(chosen, error.row)} {error.flaw}", hint=hint) from error

    def flush(self) -> None:
        """Return when everything written is confirmed."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Leave all of them, whatever the others say: the worker's client, which has them, goes on to the next task."""
        with contextlib.ExitStack() as leaving:
            for writer in self._writers.values():
                leaving.callback(writer.close)

    def _partition_name(self, topic: str, partition: int, rows: pa.RecordBatch) -> str:
        from pulsarish_spark.sink.properties import row_words

        names = self._partitions.get(topic)
        if names is None:
            names = self._partitions[topic] = self._client.partition_names(topic)
        if not 0 <= partition < len(names):
            raise ConfigError(
                f"column partition is {partition} in {row_words(rows, 0)}, but topic {topic} has {len(names)}",
                hint="partitions are counted from 0; without the column, or where it is null, the key decides",
            )
        return names[partition]


def write_rows(batches: Iterator[pa.RecordBatch], options: WriteOptions) -> Written:
    """Write all rows of a task; returns when they are confirmed."""
    first = next(batches, None)
    if first is None:
        return Written(0)
    written = 0
    with connected(options.address) as client:
        targets = _Targets(client, options)
        try:
            for rows in _chain(first, batches):
                targets.write(rows)
                written += rows.num_rows
            targets.flush()
        finally:
            targets.close()
    freeze_imports()
    return Written(written)


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _total(messages: Sequence[WriterCommitMessage | None]) -> int:
    return sum(message.rows for message in messages if isinstance(message, Written))


class PulsarishBatchWriter(SentToWorkers, DataSourceArrowWriter):
    """The batch sink."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = replace(options, address=options.address.for_executors())

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        logger.info("batch written topic=%s rows=%d", self._options.topic, _total(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        logger.warning("batch aborted topic=%s rows_left_min=%d", self._options.topic, _total(messages))


class PulsarishStreamWriter(SentToWorkers, DataSourceStreamArrowWriter):
    """The stream sink. Spark makes a new one for each micro-batch, and another one to commit it."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = replace(options, address=options.address.for_executors())

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        logger.info("batch written batch=%d topic=%s rows=%d", batchId, self._options.topic, _total(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        logger.warning(
            "batch aborted batch=%d topic=%s rows_left_min=%d", batchId, self._options.topic, _total(messages)
        )
