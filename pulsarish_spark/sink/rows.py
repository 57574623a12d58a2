# SPDX-License-Identifier: Apache-2.0
"""Rows of a task of the sink, as the client writes them, and where they go. Knows no
broker and no clock; works on whole columns.

Spark's sources give every key as bytes, Kafka's too, so the type of the column does not say whether a key goes out as
text, or as bytes, which travel as base64 with a flag. An option forces a form, a column of our source tells it, and
without both a key that is UTF-8 is text: then a copy by Spark has the keys of its original, goes to the same
partitions, and looks the same to other clients.

Delays, of a column or of an option, become times of delivery before rows are encoded. A delay counts from when its row
is sent. A time or a delay of the row beats the option; both in one row contradict each other and are refused by its
key. Pulsar cannot keep one event time, 0 milliseconds since the epoch: that means none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.errors import ConfigError, InvalidTopicNameError
from broker_core.client.columnar.entry_writer import BY_KEY
from broker_core.wire.batch import rows_by_place
from broker_core.wire.batch.columns import ByteColumn, booleans, flags_of, numbers, presence, values_of
from broker_core.wire.batch.sent_keys import is_text
from pulsarish_spark.options import DELIVER_AFTER_MS_MAX, KeyForm
from pulsarish_spark.places.topics import kept_name
from pulsarish_spark.sink.columns import MESSAGE_COLUMNS
from pulsarish_spark.sink.properties import as_texts, properties_of, row_words


def message_rows(rows: pa.RecordBatch, key_form: KeyForm) -> pa.RecordBatch:
    """The columns of ``rows`` that ``encode_entries`` takes: keys in their form, headers as properties."""
    columns = {name: rows.column(name) for name in rows.schema.names if name in MESSAGE_COLUMNS}
    properties = properties_of(rows)
    if properties is not None:
        columns["properties"] = properties
    return with_key_forms(pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)), key_form)


class Destination(NamedTuple):
    """The topic that a name means, by its full name, or one of its partitions."""

    topic: str
    partition: int = BY_KEY


class TopicRows(NamedTuple):
    """The rows of one topic, in their order. ``partitions``: that of each row, or BY_KEY; None: all by key."""

    topic: str
    rows: pa.RecordBatch
    partitions: NDArray[np.int64] | None


def split_by_topic(rows: pa.RecordBatch, topic_option: str, place_of: Callable[[str], Destination]) -> list[TopicRows]:
    """The rows of each topic, by whatever names they call it; the option topic beats the column.

    ``place_of`` says what the name of a topic means. ConfigError for a row that cannot go anywhere; whether a topic has
    the partition that its rows want is not known here.
    """
    if not rows.num_rows:
        return []
    asked = _asked_partitions(rows)
    if topic_option or "topic" not in rows.schema.names:
        topic, partition = place_of(topic_option)
        return [TopicRows(topic, rows, _combined(rows, asked, None if partition == BY_KEY else partition))]
    encoded = _topics(rows).dictionary_encode()
    name_of_row = values_of(encoded.indices)
    places = [_place(text, place_of, rows, name_of_row, at) for at, text in enumerate(encoded.dictionary.to_pylist())]
    topics: dict[str, int] = {}  # by their order
    topic_of_row = np.array([topics.setdefault(place.topic, len(topics)) for place in places])[name_of_row]
    named = np.array([place.partition for place in places], np.int64)[name_of_row]
    found = []
    for topic, numbers_of_topic in zip(topics, rows_by_place(topic_of_row, len(topics)), strict=True):
        chosen = rows if len(topics) == 1 else rows.take(numbers(numbers_of_topic))
        wanted = None if asked is None else asked[numbers_of_topic]
        found.append(TopicRows(topic, chosen, _combined(chosen, wanted, named[numbers_of_topic])))
    return found


def _topics(rows: pa.RecordBatch) -> pa.Array:
    """The column, in which no row is null."""
    topics = rows.column("topic")
    if topics.null_count:
        row = topics.is_null().index(True).as_py()
        raise ConfigError(
            f"column topic is null in {row_words(rows, row)}, so it has nowhere to go",
            hint='fill it, or send all rows to one topic: .option("topic", "flights")',
        )
    return topics


def _place(
    text: str, place_of: Callable[[str], Destination], rows: pa.RecordBatch, name_of_row: NDArray[np.int32], name: int
) -> Destination:
    """The destination that ``text`` names, name number ``name``; ConfigError names the first row that has that name."""
    try:
        return place_of(kept_name(text))
    except (InvalidTopicNameError, ValueError) as error:
        row = int(np.argmax(name_of_row == name))
        why, hint = (error.message, error.hint) if isinstance(error, InvalidTopicNameError) else (str(error), "")
        raise ConfigError(f"column topic is {text!r} in {row_words(rows, row)}: {why}", hint=hint) from error


def _asked_partitions(rows: pa.RecordBatch) -> NDArray[np.int64] | None:
    """The column partition, BY_KEY where it is null; None if all are."""
    if "partition" not in rows.schema.names:
        return None
    column = rows.column("partition").cast(pa.int64())
    given = presence(column) != 0
    asked = np.where(given, values_of(column), BY_KEY)
    wrong = np.flatnonzero(given & (asked < 0))
    if wrong.size:
        raise no_such_partition(rows, int(wrong[0]), int(asked[wrong[0]]), "there is none of a negative number")
    return asked if given.any() else None


def _combined(
    rows: pa.RecordBatch, asked: NDArray[np.int64] | None, named: NDArray[np.int64] | int | None
) -> NDArray[np.int64] | None:
    """The partition of each row, from the column and from the name of its topic, which may be that of a partition.

    By such a name there is one partition, whose number is 0, or that of its name.
    """
    if named is None:
        return asked
    named = np.broadcast_to(np.asarray(named, np.int64), rows.num_rows)
    is_named = named != BY_KEY
    if not is_named.any():
        return asked
    if asked is None:
        return named
    wrong = np.flatnonzero(is_named & (asked > 0) & (asked != named))
    if wrong.size:
        row = int(wrong[0])
        raise no_such_partition(rows, row, int(asked[row]), f"its topic is named as partition {int(named[row])}")
    return np.where(is_named, named, asked)


def no_such_partition(rows: pa.RecordBatch, row: int, partition: int, why: str) -> ConfigError:
    """The error for a row that goes nowhere."""
    return ConfigError(
        f"column partition is {partition} in {row_words(rows, row)}, but {why}",
        hint="partitions are counted from 0; without the column, or where it is null, the key decides",
    )


# -- forms of keys


def with_key_forms(rows: pa.RecordBatch, form: KeyForm) -> pa.RecordBatch:
    """``rows`` with their keys as ``encode_entries`` takes them; ConfigError for a key that must be text and cannot."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    told = columns.pop("key_is_bytes", None)
    if "key" in columns:
        keys = columns["key"].cast(pa.binary())
        if form != "auto" or (told is not None and told.null_count == len(told)):
            told = None
        if form == "bytes":
            columns["key"] = keys
        elif told is None and (texts := as_texts(keys)) is not None:
            columns["key"] = texts
        else:
            columns["key"], columns["key_is_bytes"] = keys, booleans(_sent_as_bytes(keys, told, form))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _sent_as_bytes(keys: pa.Array, told: pa.BooleanArray | None, form: KeyForm) -> NDArray[np.bool_]:
    """Whether ``told`` says so of a row, else whether its key is not UTF-8."""
    cannot_be_text = ~is_text(ByteColumn.of(keys))
    as_bytes = cannot_be_text if form == "auto" else np.zeros(len(keys), np.bool_)
    if told is not None:
        as_bytes = np.where(presence(told), flags_of(told), as_bytes)
    wrong = np.flatnonzero(cannot_be_text & ~as_bytes & (presence(keys) != 0))
    if wrong.size:
        raise ConfigError(
            f"the key {keys[int(wrong[0])].as_py()!r} is to be sent as text, but it is not UTF-8",
            hint='.option("keyForm", "bytes") sends all keys as bytes; without it and without a column key_is_bytes '
            "only those that are no text are",
        )
    return as_bytes


# -- times


def with_delivery_times(rows: pa.RecordBatch, option_ms: int, now_ms: int) -> pa.RecordBatch:
    """``rows`` with ``deliver_at`` instead of ``deliver_after``; ConfigError for a row whose delay cannot be.

    ``option_ms``: the delay of rows that say nothing, 0 for none. ``now_ms``: when they are sent, since the epoch.
    """
    if "deliver_after" not in rows.schema.names and not option_ms:
        return rows
    at, has_at = _milliseconds(rows, "deliver_at")
    after, has_after = _milliseconds(rows, "deliver_after")
    _check_delays(rows, has_at, has_after, after)
    times = np.where(has_at, at, now_ms + np.where(has_after, after, option_ms))
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns.pop("deliver_after", None)
    columns["deliver_at"] = numbers(times, has_at | has_after | (option_ms > 0))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _milliseconds(rows: pa.RecordBatch, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """A column, cut to milliseconds, 0 where it is null; and whether each row has it."""
    if name not in rows.schema.names:
        return np.zeros(rows.num_rows, np.int64), np.zeros(rows.num_rows, np.bool_)
    column = rows.column(name)
    if pa.types.is_duration(column.type):
        column = column.cast(pa.duration("ms"), safe=False)
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    column = column.cast(pa.int64())
    given = presence(column) != 0
    return np.where(given, values_of(column), 0), given


def _check_delays(
    rows: pa.RecordBatch, has_at: NDArray[np.bool_], has_after: NDArray[np.bool_], after: NDArray[np.int64]
) -> None:
    both = np.flatnonzero(has_at & has_after)
    if both.size:
        raise ConfigError(
            f"{row_words(rows, int(both[0]))} has both deliver_at and deliver_after",
            hint="leave one of them null, or drop the column that is not meant",
        )
    wrong = np.flatnonzero((after < 0) | (after > DELIVER_AFTER_MS_MAX))
    if wrong.size:
        row = int(wrong[0])
        raise ConfigError(
            f"{row_words(rows, row)} has a deliver_after of {int(after[row])} milliseconds",
            hint=f"it takes 0 to {DELIVER_AFTER_MS_MAX}, which is a century; deliver_at takes a time",
        )


def row_at_zero(rows: pa.RecordBatch) -> int | None:
    """The first row whose event time, cut to milliseconds, is 0; None if no row has it."""
    if "event_time" not in rows.schema.names:
        return None
    column = rows.column("event_time")
    unit = 1000 if pa.types.is_timestamp(column.type) else 1  # Spark's timestamps have microseconds.
    found = np.flatnonzero((presence(column) != 0) & (values_of(column.cast(pa.int64())) // unit == 0))
    return int(found[0]) if found.size else None
