# SPDX-License-Identifier: Apache-2.0
"""The sink, batch and stream: rows of a task become entries, and the task ends when the broker has confirmed them all.

At least once: a task that is tried again, or a micro-batch that is replayed after a failure, writes its rows again.
What an unfinished attempt wrote stays in the topic. ``commit`` and ``abort`` therefore have nothing to do on the
broker. Spark hands a task its rows in Arrow batches, and each is checked as a whole before one of its rows is
sent; a row that is refused later in the task, or in another task, comes when rows before it are stored.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from broker_core.base.clock import SystemClock
from broker_core.base.errors import ConfigError, PulsarishError, RowError, RowsUnconfirmedError
from broker_core.base.names import TopicName
from pulsarish_spark.connecting.connection import connected
from pulsarish_spark.options import WriteOptions
from pulsarish_spark.plain_errors import plain_errors
from pulsarish_spark.workers.spark_worker import SentToWorkers, freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa

    from broker_core.client import Client, EntryWriter
    from broker_core.client.columnar.entry_writer import EncodedRows
    from pulsarish_spark.sink.rows import Destination, TopicRows

logger = logging.getLogger(__name__)

_IN_CHUNKS: Final = '.option("chunkingEnabled", "true")'
"""The option of Spark for ``chunking_enabled``, which the client's hints speak of."""

_TOPICS_TOLD: Final = 10
"""Topics that the error of a task names beside the first one."""


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """The rows that one task wrote, all of them confirmed."""

    rows: int


class _Targets:
    """The entry writers of one task, one for each topic whatever rows call it, opened when first needed.

    They share one window: it bounds what the task has in flight, however many topics and partitions it writes to.
    """

    def __init__(self, client: Client, options: WriteOptions) -> None:
        from broker_core.client.connecting.send_window import SendWindow
        from broker_core.client.settings.config import WriterConfig

        self._client = client
        self._options = options
        self._writing = options.writing
        self._window = SendWindow(0, WriterConfig.of(self._writing).window_bytes_max)
        self._writers: dict[str, EntryWriter] = {}
        self._places: dict[str, Destination] = {}
        self._has_told_zero = False

    def write(self, rows: pa.RecordBatch) -> None:
        """Send ``rows``, after every check of every row."""
        from pulsarish_spark.sink.columns import with_own_names
        from pulsarish_spark.sink.row_times import with_delivery_times
        from pulsarish_spark.sink.rows import message_rows, split_by_topic

        rows = with_own_names(rows, self._options.column_names)
        self._tell_zero_time(rows)
        rows = with_delivery_times(rows, self._options.deliver_after_ms, SystemClock().now_ms())
        parts = [
            (part, message_rows(part.rows, self._options.key_form))
            for part in split_by_topic(rows, self._options.topic, self._place_of)
        ]
        self._open([part for part, _ in parts if part.topic not in self._writers])
        for part, _ in parts:
            self._check_partitions(part)
        encoded = [(self._writers[part.topic], self._encoded(part, rows)) for part, rows in parts]
        for writer, entries in encoded:
            writer.send(entries)

    def _tell_zero_time(self, rows: pa.RecordBatch) -> None:
        """Warn, once in a task, of an event time that is read back as null."""
        from pulsarish_spark.sink.properties import row_words
        from pulsarish_spark.sink.row_times import row_at_zero

        if self._has_told_zero or (row := row_at_zero(rows)) is None:
            return
        self._has_told_zero = True
        logger.warning(
            "event time is not kept what=%s effect=%s",
            f"column event_time is 1970-01-01T00:00:00Z in {row_words(rows, row)}, and perhaps in others",
            "Pulsar's 0 means none, so it is read as null; keep that time in a property or in the value",
        )

    def _place_of(self, name: str) -> Destination:
        from pulsarish_spark.sink.rows import Destination

        if name not in self._places:
            topic = TopicName.parse(name)
            index = topic.partition_index
            is_partition = 0 <= index < self._client.partitions(str(topic.base))
            self._places[name] = Destination(str(topic.base), index) if is_partition else Destination(str(topic))
        return self._places[name]

    def _open(self, parts: Sequence[TopicRows]) -> None:
        """Have a writer for each of ``parts``, opened side by side. Where one fails, those that are open stay until all
        are closed."""
        from pulsarish_spark.connecting.side_by_side import side_by_side

        opened: dict[str, EntryWriter] = {}

        def open_one(part: TopicRows) -> None:
            opened[part.topic] = self._new_writer(part)

        try:
            side_by_side(open_one, parts)
        finally:
            self._writers |= {part.topic: opened[part.topic] for part in parts if part.topic in opened}

    def _new_writer(self, part: TopicRows) -> EntryWriter:
        """A writer that has the partitions which the rows of ``part`` want. Called by several threads.

        Where all rows name one, as those of a task that copies a partition do, it registers at no others. Not so on a
        topic that is made for it: an Apache Pulsar makes each partition when somebody registers there.
        """
        from broker_core.client.columnar.entry_writer import BY_KEY

        named = part.partitions is not None and bool((part.partitions != BY_KEY).all())
        lazy = named and self._client.partitions(part.topic) > 0
        return self._client.write_rows(part.topic, self._window, **self._writing, lazy_start_partitioned_producers=lazy)

    def _check_partitions(self, part: TopicRows) -> None:
        """ConfigError for the first row that wants a partition which its topic does not have."""
        from pulsarish_spark.sink.rows import no_such_partition

        if part.partitions is not None:
            writer = self._writers[part.topic]
            wrong = (part.partitions >= writer.partitions).nonzero()[0]
            if wrong.size:
                row = int(wrong[0])
                why = f"topic {part.topic} has {writer.partitions}"
                raise no_such_partition(part.rows, row, int(part.partitions[row]), why)

    def _encoded(self, part: TopicRows, rows: pa.RecordBatch) -> list[EncodedRows]:
        """The entries of ``part``, whose messages are ``rows``."""
        from pulsarish_spark.sink.properties import row_words

        try:
            return self._writers[part.topic].encode(rows, part.partitions)
        except RowError as error:
            hint = error.hint.replace("chunking_enabled", _IN_CHUNKS)
            raise ConfigError(f"{row_words(part.rows, error.row)} {error.flaw}", hint=hint) from error

    def flush(self) -> None:
        """Return when everything written is confirmed."""
        for writer in self._writers.values():
            writer.flush()

    @property
    def rows_confirmed(self) -> int:
        """Rows of the task that the brokers have stored."""
        return sum(writer.rows_confirmed for writer in self._writers.values())

    def close(self) -> None:
        """Leave all of them, whatever the others say: the worker's client, which has them, goes on to the next task."""
        failures: dict[str, RowsUnconfirmedError] = {}
        with contextlib.ExitStack() as leaving:
            for topic in reversed(self._writers):
                leaving.callback(self._close_one, topic, failures)
        if failures:
            raise _joined(failures)

    def _close_one(self, topic: str, failures: dict[str, RowsUnconfirmedError]) -> None:
        try:
            self._writers[topic].close()
        except RowsUnconfirmedError as failure:
            failures[topic] = failure


def _joined(failures: Mapping[str, RowsUnconfirmedError]) -> RowsUnconfirmedError:
    """The first of them, which tells of the others too."""
    first, *others = failures.values()
    if not others:
        return first
    told = [f"{topic} ({len(each.unknown_rows)})" for topic, each in failures.items()][1 : 1 + _TOPICS_TOLD]
    more = f", and {len(others) - _TOPICS_TOLD} more" if len(others) > _TOPICS_TOLD else ""
    return RowsUnconfirmedError(
        f"{first.message}; other topics failed too (and so many of their rows may or may not be stored): "
        f"{', '.join(told)}{more}",
        hint=first.hint,
        unknown_rows=first.unknown_rows,
    )


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
    written = 0
    with connected(options.address) as client:
        targets = _Targets(client, options)
        try:
            for rows in _chain(first, batches):
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


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


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
