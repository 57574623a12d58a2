# SPDX-License-Identifier: Apache-2.0
"""From decoded messages to the columns of the source, a whole column at a time. Knows no ranges and no clients.

Ids are text, ``ledger:entry:partition[:batch]``, or the binary form of the official clients, a serialised
``MessageIdData``: its fields are in the order of their numbers, and fields that an id does not have are left out, so
that the bytes of one id are the same everywhere. Arrow's own functions make text slower than messages are decoded.
Source: Pulsar's PulsarApi.proto.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from broker_core.base.names import TopicName
from broker_core.wire.batch.columns import booleans, numbers, presence, validity, values_of
from broker_core.wire.core.rows import write_id_bytes, write_id_texts
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.rows.schema import BAD_RECORD_COLUMN, RAW_VALUE_COLUMN, REDELIVERY_COLUMN, TopicColumns

logger = logging.getLogger(__name__)

_US: Final = pa.timestamp("us", tz="UTC")
_INT32_MAX: Final = 2**31 - 1
_US_PER_MS: Final = 1000
_MS_MAX: Final = (2**63 - 1) // _US_PER_MS
"""The last time, before or after 1970, that Spark can show: it counts microseconds in 64 bits."""
_ID_TEXT_BYTES_MAX: Final = 20 + 1 + 20 + 1 + 11 + 1 + 11
"""Two 64-bit numbers, two 32-bit ones, and the colons between."""
_ID_BYTES_MAX: Final = 2 * (1 + 10) + 3 * (1 + 5)
"""Two 64-bit numbers and three positive 32-bit ones, each behind its tag."""


class ColumnMaker:
    """Makes batches for one topic partition. What is the same in every row is made once and sliced."""

    def __init__(self, key: TopicPartition, columns: TopicColumns, *, partitioned: bool) -> None:
        self._schema = columns.arrow_schema()
        self._shown_topic = columns.shown_topic or key.topic
        # The number of a partition that is read as a topic, as other clients see it; -1 of a topic that is none.
        named = TopicName.parse(key.topic).partition_index
        named = named if named <= _INT32_MAX else -1
        self._full_name = str(TopicName.parse(key.topic).partition(key.partition)) if partitioned else key.topic
        self._partition = key.partition if partitioned else max(named, 0)
        self._id_partition = key.partition if partitioned else named
        self._made_times: pa.Array | None = None
        self._has_told = False
        self._constant_rows = 0
        self._constants: dict[str, pa.Array] = {}
        makers: dict[str, Callable[[pa.RecordBatch], pa.Array]] = {
            "topic": lambda rows: self._constant("topic", rows.num_rows),
            "partition": lambda rows: self._constant("partition", rows.num_rows),
            "offset": lambda rows: rows.column("index"),
            "timestamp": self._publish_times,
            "timestampType": lambda rows: self._constant("timestampType", rows.num_rows),
            "message_id": lambda rows: id_texts(rows, self._id_partition),
            "publish_time": self._publish_times,
            "event_time": partial(self._times, "event_time"),
            "properties": partial(self._properties, "properties"),
            REDELIVERY_COLUMN: partial(_added, REDELIVERY_COLUMN, pa.int32()),
            RAW_VALUE_COLUMN: lambda rows: rows.column("value"),
            BAD_RECORD_COLUMN: partial(_added, BAD_RECORD_COLUMN, pa.string()),
            "headers": self._headers,
            "__key": lambda rows: rows.column("key"),
            "__topic": lambda rows: self._constant("__topic", rows.num_rows),
            "__messageId": lambda rows: id_bytes(rows, self._id_partition),
            "__publishTime": self._publish_times,
            "__eventTime": partial(self._times, "event_time"),
            "__messageProperties": partial(self._properties, "__messageProperties"),
        }
        self._makers = [makers.get(name) or partial(pa.RecordBatch.column, i=name) for name in columns.names]

    def make(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The source's columns for decoded ``rows``."""
        self._made_times = None
        return pa.RecordBatch.from_arrays([maker(rows) for maker in self._makers], schema=self._schema)

    def _constant(self, name: str, rows: int) -> pa.Array:
        if rows > self._constant_rows:
            self._constants = {
                "topic": _repeated(self._shown_topic.encode(), rows),
                "__topic": _repeated(self._full_name.encode(), rows),
                "partition": numbers(np.full(rows, self._partition, np.int32)),
                "timestampType": numbers(np.zeros(rows, np.int32)),
            }
            self._constant_rows = rows
        return self._constants[name].slice(0, rows)

    def _publish_times(self, rows: pa.RecordBatch) -> pa.Array:
        if self._made_times is None:  # two columns have them
            self._made_times = self._times("publish_time", rows)
        return self._made_times

    def _times(self, name: str, rows: pa.RecordBatch) -> pa.Array:
        """The times of a column in microseconds, as Spark counts them; null, which is logged once, beyond what Spark
        can count."""
        column = rows.column(name)
        values = values_of(column)
        if column.offset or not -_MS_MAX <= values.min(initial=0) <= values.max(initial=0) <= _MS_MAX:
            return self._shown(name, column)
        return pa.Array.from_buffers(_US, len(values), [column.buffers()[0], pa.py_buffer(values * _US_PER_MS)])

    def _shown(self, name: str, column: pa.Array) -> pa.Array:
        values, known = values_of(column), presence(column) != 0
        shown = known & (values >= -_MS_MAX) & (values <= _MS_MAX)
        beyond = values[known & ~shown]
        if beyond.size and not self._has_told:
            self._has_told = True
            logger.warning(
                "times that no timestamp can hold are null topic=%s column=%s first_ms=%d advice=%s",
                self._full_name,
                name,
                beyond[0],
                "perhaps a producer gives nanoseconds where Pulsar counts milliseconds",
            )
        microseconds = np.where(shown, values, 0) * _US_PER_MS
        return pa.Array.from_buffers(_US, len(values), [validity(shown), pa.py_buffer(microseconds)])

    def _properties(self, name: str, rows: pa.RecordBatch) -> pa.Array:
        column = rows.column("properties")
        wanted = self._schema.field(name).type
        return column if column.type == wanted else column.cast(wanted)

    def _headers(self, rows: pa.RecordBatch) -> pa.Array:
        """Kafka's form of the properties: null where there are none."""
        pairs: pa.ListArray = rows.column("property_pairs")
        offsets = pairs.offsets
        wanted = self._schema.field("headers").type
        mask = booleans(np.diff(values_of(offsets)) == 0)
        return pa.ListArray.from_arrays(offsets, pairs.values, type=wanted, mask=mask)


def _added(name: str, kind: pa.DataType, rows: pa.RecordBatch) -> pa.Array:
    """A column that is no part of an entry: the reader of entries that a broker gave adds redelivery counts to the
    rows, and the decoder of values the reasons of bad records."""
    at = rows.schema.get_field_index(name)
    return rows.column(at) if at >= 0 else pa.nulls(rows.num_rows, kind)


def _repeated(text: bytes, rows: int) -> pa.Array:
    offsets = np.arange(rows + 1, dtype=np.int32) * len(text)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text * rows))


def id_texts(decoded: pa.RecordBatch, partition: int) -> pa.Array:
    """One text for each row of ``decoded``; batch_index -1 marks a message that is an entry of its own."""
    ledger, entry, batch_index = (values_of(decoded.column(name)) for name in ("ledger", "entry", "batch_index"))
    rows = decoded.num_rows
    offsets = np.empty(rows + 1, np.int32)
    data = np.empty(rows * _ID_TEXT_BYTES_MAX, np.uint8)
    used = write_id_texts(ledger, entry, batch_index, partition, offsets, data)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(data[:used]))


def id_bytes(decoded: pa.RecordBatch, partition: int) -> pa.Array:
    """One id for each row of ``decoded``, from its columns ledger, entry, batch_index (-1: the message is an entry of
    its own) and batch_size; ``partition`` -1: there are none."""
    ledger, entry, batch_index, batch_size = (
        values_of(decoded.column(name)) for name in ("ledger", "entry", "batch_index", "batch_size")
    )
    rows = decoded.num_rows
    offsets = np.empty(rows + 1, np.int32)
    data = np.empty(rows * _ID_BYTES_MAX, np.uint8)
    used = write_id_bytes(ledger, entry, batch_index, batch_size, partition, offsets, data)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data[:used])])
