# SPDX-License-Identifier: Apache-2.0
"""Rows of a task of the sink, as the client writes them, and where they go. Knows no broker; works on whole columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.base.errors import ConfigError, InvalidTopicNameError
from broker_core.base.names import TopicName
from pulsarish_spark.options import KeyForm
from pulsarish_spark.sink.columns import MESSAGE_COLUMNS
from pulsarish_spark.sink.keys import with_key_forms
from pulsarish_spark.sink.properties import properties_of, row_words


def message_rows(rows: pa.RecordBatch, key_form: KeyForm) -> pa.RecordBatch:
    """What ``encode_entries`` takes of ``rows``: keys in their form, headers as properties."""
    columns = {name: rows.column(name) for name in rows.schema.names if name in MESSAGE_COLUMNS}
    properties = properties_of(rows)
    if properties is not None:
        columns["properties"] = properties
    return with_key_forms(pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)), key_form)


def split_by_target(rows: pa.RecordBatch, topic_option: str) -> Iterator[tuple[str, int | None, pa.RecordBatch]]:
    """Topic, partition (None: by key) and rows of each target in ``rows``; the option topic beats the column."""
    names = rows.schema.names
    if topic_option or "topic" not in names:
        topics = [(topic_option, rows)]
    else:
        topics_of_rows = rows.column("topic")
        if topics_of_rows.null_count:
            row = topics_of_rows.is_null().index(True).as_py()
            raise ConfigError(
                f"column topic is null in {row_words(rows, row)}, so it has nowhere to go",
                hint='fill it, or send all rows to one topic: .option("topic", "flights")',
            )
        topics = list(_split_by(rows, "topic"))
        for topic, of_topic in topics:
            _check_topic(topic, of_topic)
    for topic, of_topic in topics:
        if "partition" not in names:
            yield topic, None, of_topic
        else:
            for partition, chosen in _split_by(of_topic, "partition"):
                yield topic, partition, chosen


def _check_topic(topic: str, rows: pa.RecordBatch) -> None:
    """ConfigError names the first of ``rows``, which say that they go to ``topic``."""
    try:
        TopicName.parse(topic)
    except InvalidTopicNameError as error:
        raise ConfigError(
            f"column topic is {topic!r} in {row_words(rows, 0)}: {error.message}", hint=error.hint
        ) from error


def _split_by(rows: pa.RecordBatch, name: str) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Each value of a column, null among them, and its rows in their order.

    Arrow's ``group_by`` and its conversions from Python values would be shorter, but import pandas.
    """
    column = rows.column(name)
    values = column.unique()
    for number, value in enumerate(values.to_pylist()):
        only = len(values) == 1
        yield value, rows if only else rows.filter(pc.is_in(column, value_set=values.slice(number, 1)))
