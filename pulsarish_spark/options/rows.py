# SPDX-License-Identifier: Apache-2.0
"""The options that say which columns rows have, which messages become rows, and that tasks may share them by keys."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final, Literal

from broker_core.base.errors import ConfigError
from broker_core.base.moments import parse_moment, time_text
from broker_core.base.suggest import did_you_mean
from pulsarish_spark.options.option import Option, Side, count, flag, one_of
from pulsarish_spark.rows.kept_rows import EventWindow, KeptRows, SlotRange
from pulsarish_spark.rows.schema import (
    ALL_COLUMNS,
    HEADERS_COLUMN,
    KAFKA_COLUMNS,
    KNOWN_COLUMNS,
    PULSAR_SPARK_COLUMNS,
)

TopicNames = Literal["full", "short", "as-given"]


def _columns(text: str) -> tuple[str, ...]:
    if text.strip().lower() == "all":
        return ALL_COLUMNS
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in KNOWN_COLUMNS:
            near = did_you_mean(name, KNOWN_COLUMNS, otherwise=f"there are {', '.join(KNOWN_COLUMNS)}, and all")
            raise ValueError(f"there is no column {name}; {near}")
    if not names or len(set(names)) != len(names):
        raise ValueError("it takes at least one column, and each once")
    return names


SHAPING: Final = (
    Option(
        "includeHeaders",
        flag,
        "true",
        "Source: add the column headers to the others, as in Kafka's. Sink: changes nothing, as in Kafka's.",
        sides=Side.ANY,
    ),
    Option(
        "columns",
        _columns,
        "key,value,message_id",
        "The columns to read, comma separated, in this order; or all: every one below but raw_value, bad_record and "
        "those of pulsar-spark's names, which begin with __. Default: the seven of Spark's Kafka source, key to "
        "timestampType. A column that is not read is not decoded either.",
    ),
    Option(
        "columnNames",
        one_of(("pulsarish", "pulsar-spark")),
        "pulsar-spark",
        "Whose names the columns have. pulsar-spark: value, __key, __topic, __messageId, __publishTime, __eventTime "
        "and __messageProperties, unless columns says otherwise; the sink takes these too, __eventTime also as "
        "milliseconds, and leaves __messageId and __publishTime out. Default pulsarish.",
        sides=Side.ANY,
    ),
    Option(
        "topicNames",
        one_of(("full", "short", "as-given")),
        "as-given",
        "What the column topic says: full (default), persistent://tenant/namespace/topic; short, the topic alone in "
        "public/default, else tenant/namespace/topic; as-given, what the option that named it says, as filters of "
        "Kafka jobs expect, else short.",
        fills="topic_names",
    ),
)


def columns_of(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns of the source."""
    default = PULSAR_SPARK_COLUMNS if given.get("columnNames") == "pulsar-spark" else KAFKA_COLUMNS
    columns: tuple[str, ...] = given.get("columns") or default
    if given.get("includeHeaders") and HEADERS_COLUMN not in columns:
        columns = (*columns, HEADERS_COLUMN)
    return columns


KEY_RANGES_MAX: Final = 1024
"""Each of them reads all of its partition."""

_SLOT_MAX: Final = 65_535

_CUTTING: Final = ("minPartitions", "inputPartitions", "maxRecordsPerPartition")
"""Options that put messages of one key into several tasks, or several ranges of keys into one."""


def _key_ranges(text: str) -> int:
    if (ranges := count(text)) > KEY_RANGES_MAX:
        raise ValueError(f"it takes at most {KEY_RANGES_MAX}, for each of them reads all of its partition")
    return ranges


def _slots(text: str) -> tuple[SlotRange, ...]:
    found = sorted(_slot_range(part.strip()) for part in text.split(","))
    for before, after in pairwise(found):
        if after.first <= before.last:
            raise ValueError(f"{before} and {after} overlap")
    return tuple(found)


def _slot_range(text: str) -> SlotRange:
    first, dash, last = text.partition("-")
    if not first.strip().isdecimal() or not (last if dash else first).strip().isdecimal():
        raise ValueError("it takes ranges of slots, first-last, separated by commas")
    found = SlotRange(int(first), int(last if dash else first))
    if not found.first <= found.last <= _SLOT_MAX:
        raise ValueError(f"{found} is no range of slots, which go from 0 to {_SLOT_MAX}")
    return found


FILTERING: Final = (
    Option(
        "keyRanges",
        _key_ranges,
        "4",
        "So many tasks for each partition, each with the rows of its range of key hashes, so that the rows of a key "
        "come in their order in one task. Each of them reads all of its partition, which costs so many times the "
        "reading; messages without a key are all in one.",
        fills="key_ranges",
    ),
    Option(
        "keyHashRange",
        _slots,
        "0-16383,49152-65535",
        "Only messages whose key is in these slots of 0 to 65535: the slots of a Key_Shared subscription, murmur3 of "
        "the ordering key, else of the key. All others are read, dropped, and acknowledged by a stream.",
    ),
    Option(
        "startingEventTime",
        parse_moment,
        "2026-01-01T00:00:00Z",
        "Only messages with this event time or a later one (ms, ISO 8601, or -1h); none without an event time. Event "
        "times have no order in a topic, so all between start and end is fetched, which startingTimestamp and "
        "endingTimestamp narrow; a single message outside is dropped before it is decompressed, a batch is decoded.",
    ),
    Option(
        "endingEventTime",
        parse_moment,
        "2026-02-01T00:00:00Z",
        "Only messages with an event time before this one; as startingEventTime. It does not end a stream.",
    ),
)


def kept_rows_of(given: Mapping[str, Any], now_ms: int) -> KeptRows:
    """The filter of rows; ConfigError for options that contradict each other."""
    moments = (given.get(option) for option in ("startingEventTime", "endingEventTime"))
    start_ms, end_ms = (None if moment is None else moment.at(now_ms) for moment in moments)
    if start_ms is not None and end_ms is not None and start_ms > end_ms:
        raise ConfigError(
            f"startingEventTime, {time_text(start_ms)}, is after endingEventTime, {time_text(end_ms)}", hint="swap them"
        )
    return KeptRows(given.get("keyHashRange", ()), EventWindow(start_ms, end_ms))


def check_key_ranges(given: Mapping[str, Any]) -> None:
    """ConfigError where another option cuts partitions too."""
    if "keyRanges" in given and (cutting := next((option for option in _CUTTING if option in given), "")):
        raise ConfigError(
            f"keyRanges keeps the rows of a key in one task, and {cutting} cuts partitions otherwise",
            hint="give one of them",
        )
