# SPDX-License-Identifier: Apache-2.0
"""The topics that one task of the sink writes to: rows are checked, encoded, and sent to the partitions they name."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from broker_core.base.clock import SystemClock
from broker_core.base.errors import ConfigError, RowError, RowsUnconfirmedError
from broker_core.base.names import TopicName
from broker_core.client import Client, EntryWriter, Transaction
from broker_core.client.columnar.entry_writer import BY_KEY, EncodedRows
from broker_core.client.connecting.send_window import SendWindow
from broker_core.client.settings.config import WriterConfig
from pulsarish_spark.connecting.side_by_side import side_by_side
from pulsarish_spark.options import WriteOptions
from pulsarish_spark.options.guarantee import AT_LEAST_ONCE
from pulsarish_spark.sink.columns import with_own_names
from pulsarish_spark.sink.payloads import Payloads
from pulsarish_spark.sink.properties import row_words
from pulsarish_spark.sink.rows import (
    Destination,
    TopicRows,
    message_rows,
    no_such_partition,
    row_at_zero,
    split_by_topic,
    with_delivery_times,
)

if TYPE_CHECKING:
    from pulsarish_spark.sink.value_schemas import ValueSchemas

logger = logging.getLogger(__name__)

_IN_CHUNKS: Final = '.option("chunkingEnabled", "true")'
"""The option of Spark for ``chunking_enabled``, which the client's hints speak of."""

_TOPICS_TOLD: Final = 10
"""Topics that the error of a task names beside the first one."""


class Targets:
    """The entry writers of one task, one for each topic whatever rows call it, opened when first needed.

    They share one window: it bounds what the task has in flight, however many topics and partitions it writes to.
    """

    def __init__(
        self,
        client: Client,
        options: WriteOptions,
        txn: Transaction | None = None,
        schemas: ValueSchemas | None = None,
    ) -> None:
        """``txn``: the transaction of all rows. ``schemas``: of their values, None if these are bytes."""
        self._client = client
        self._txn = txn
        self._options = options
        self._writing = options.writing
        self._window = SendWindow(0, WriterConfig.of(self._writing).window_bytes_max)
        self._writers: dict[str, EntryWriter] = {}
        self._places: dict[str, Destination] = {}
        self._payloads = Payloads(client, schemas) if schemas is not None else None
        self._has_told_zero = False

    def write(self, rows: pa.RecordBatch) -> None:
        """Send ``rows``, after every check of every row."""
        rows = with_own_names(rows, self._options.column_names)
        self._tell_zero_time(rows)
        rows = with_delivery_times(rows, self._options.deliver_after_ms, SystemClock().now_ms())
        parts = [(part, self._messages(part)) for part in split_by_topic(rows, self._options.topic, self._place_of)]
        self._open([part for part, _ in parts if part.topic not in self._writers])
        for part, _ in parts:
            self._check_partitions(part)
        encoded = [(self._writers[part.topic], self._encoded(part, rows)) for part, rows in parts]
        for writer, entries in encoded:
            writer.send(entries)

    def _messages(self, part: TopicRows) -> pa.RecordBatch:
        """The columns of messages: values are bytes then, and so are keys."""
        if self._payloads is None:
            return message_rows(part.rows, self._options.key_form)
        try:
            made = self._payloads.made(part.topic, part.rows)
        except RowError as error:
            raise ConfigError(f"{row_words(part.rows, error.row)} {error.flaw}", hint=error.hint) from error
        return message_rows(made, self._payloads.key_form(part.topic, self._options.key_form))

    def _tell_zero_time(self, rows: pa.RecordBatch) -> None:
        """Warn, once in a task, of an event time that is read back as null."""
        if self._has_told_zero or (row := row_at_zero(rows)) is None:
            return
        self._has_told_zero = True
        logger.warning(
            "event time is not kept what=%s effect=%s",
            f"column event_time is 1970-01-01T00:00:00Z in {row_words(rows, row)}, and perhaps in others",
            "Pulsar's 0 means none, so it is read as null; keep that time in a property or in the value",
        )

    def _place_of(self, name: str) -> Destination:
        if name not in self._places:
            topic = TopicName.parse(name)
            if self._txn is not None and not topic.persistent:
                raise ConfigError(
                    f"{topic} keeps nothing, so no row is there exactly once", hint=f"use {AT_LEAST_ONCE}"
                )
            index = topic.partition_index
            is_partition = 0 <= index < self._client.partitions(str(topic.base))
            self._places[name] = Destination(str(topic.base), index) if is_partition else Destination(str(topic))
        return self._places[name]

    def _open(self, parts: Sequence[TopicRows]) -> None:
        """Have a writer for each of ``parts``, opened side by side. Where one fails, those that are open stay until all
        are closed."""
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
        named = part.partitions is not None and bool((part.partitions != BY_KEY).all())
        lazy = named and self._client.partitions(part.topic) > 0
        return self._client.write_rows(
            part.topic,
            self._window,
            txn=self._txn,
            **self._writing,
            lazy_start_partitioned_producers=lazy,
            schema=None if self._payloads is None else self._payloads.schema_of(part.topic),
        )

    def _check_partitions(self, part: TopicRows) -> None:
        """ConfigError for the first row that wants a partition which its topic does not have."""
        if part.partitions is not None:
            writer = self._writers[part.topic]
            wrong = (part.partitions >= writer.partitions).nonzero()[0]
            if wrong.size:
                row = int(wrong[0])
                why = f"topic {part.topic} has {writer.partitions}"
                raise no_such_partition(part.rows, row, int(part.partitions[row]), why)

    def _encoded(self, part: TopicRows, rows: pa.RecordBatch) -> list[EncodedRows]:
        """The entries of ``part``, whose messages are ``rows``."""
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
