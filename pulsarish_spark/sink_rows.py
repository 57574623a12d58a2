# SPDX-License-Identifier: Apache-2.0
"""Rows of a task of the sink, as the client writes them, and where they go. Knows no broker; works on whole columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.base.errors import ConfigError
from pulsarish_spark.options import KeyForm
from pulsarish_spark.sink_columns import MESSAGE_COLUMNS
from pulsarish_spark.sink_keys import with_key_forms


def message_rows(rows: pa.RecordBatch, key_form: KeyForm) -> pa.RecordBatch:
    """The columns of ``rows`` that make messages, keys in their form, headers as properties."""
    columns, names = [], []
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if name in MESSAGE_COLUMNS:
            columns.append(column)
            names.append(name)
        elif name == "headers":
            columns.append(_as_properties(column))
            names.append("properties")
    return with_key_forms(pa.RecordBatch.from_arrays(columns, names=names), key_form)


def _as_properties(headers: pa.ListArray) -> pa.ListArray:
    """Kafka's headers with their values as text; order and duplicates are kept."""
    entries = headers.values
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
    try:
        pairs = pa.StructArray.from_arrays(
            [entries.field(name).cast(pa.string()) for name in ("key", "value")], fields=list(kind.value_type.fields)
        )
    except pa.ArrowInvalid as error:
        raise ConfigError(
            "a header holds bytes that are not UTF-8, and properties of messages are text", hint="encode it, say base64"
        ) from error
    return pa.ListArray.from_arrays(headers.offsets, pairs, type=kind, mask=headers.is_null())


def split_by_target(rows: pa.RecordBatch, topic_option: str) -> Iterator[tuple[str, int | None, pa.RecordBatch]]:
    """Topic, partition (None: by key) and rows of each target in ``rows``; the option topic beats the column."""
    names = rows.schema.names
    if topic_option or "topic" not in names:
        topics = [(topic_option, rows)]
    else:
        if rows.column("topic").null_count:
            raise ConfigError(
                "column topic is null in a row, so it has nowhere to go",
                hint='fill it, or send all rows to one topic: .option("topic", "flights")',
            )
        topics = list(_split_by(rows, "topic"))
    for topic, of_topic in topics:
        if "partition" not in names:
            yield topic, None, of_topic
        else:
            for partition, chosen in _split_by(of_topic, "partition"):
                yield topic, partition, chosen


def _split_by(rows: pa.RecordBatch, name: str) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Each value of a column, null among them, and its rows in their order.

    Arrow's ``group_by`` and its conversions from Python values would be shorter, but import pandas.
    """
    column = rows.column(name)
    values = column.unique()
    for number, value in enumerate(values.to_pylist()):
        only = len(values) == 1
        yield value, rows if only else rows.filter(pc.is_in(column, value_set=values.slice(number, 1)))
