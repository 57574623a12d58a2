# SPDX-License-Identifier: Apache-2.0
"""The options that say which columns there are, and how topics are called in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pulsarish_spark.options.option import Option, Side
from pulsarish_spark.options.parsing import flag, one_of
from pulsarish_spark.rows.schema import ALL_COLUMNS, DEFAULT_COLUMNS, HEADERS_COLUMN, PULSAR_SPARK_COLUMNS

TopicNames = Literal["full", "short", "as-given"]
TOPIC_NAMES: Final[tuple[TopicNames, ...]] = ("full", "short", "as-given")
COLUMN_NAMES: Final = ("pulsarish", "pulsar-spark")


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in ALL_COLUMNS:
            raise ValueError(f"there is no column {name}; there are {', '.join(ALL_COLUMNS)}")
    if not names or len(set(names)) != len(names):
        raise ValueError("it takes at least one column, and each once")
    return names


SHAPING: Final = (
    Option(
        "includeHeaders",
        Side.ANY,
        flag,
        "true",
        "Source: add the column headers. Sink: as in Kafka's; changes nothing.",
    ),
    Option(
        "columns",
        Side.READ,
        _columns,
        "key,value,timestamp",
        'Read only these columns, in this order. Those marked "by name" below are read only if they are named here.',
    ),
    Option(
        "columnNames",
        Side.ANY,
        one_of(*COLUMN_NAMES),
        "pulsar-spark",
        "Whose names the columns have. pulsar-spark: value, __key, __topic, __messageId, __publishTime, __eventTime "
        "and __messageProperties, unless columns says otherwise; the sink takes these too, __eventTime also as "
        "milliseconds, and leaves __messageId and __publishTime out. Default pulsarish.",
    ),
    Option(
        "topicNames",
        Side.READ,
        one_of(*TOPIC_NAMES),
        "as-given",
        "What the column topic says: full (default), persistent://tenant/namespace/topic; short, the topic alone in "
        "public/default, else tenant/namespace/topic; as-given, what the option that named it says, as filters of "
        "Kafka jobs expect, else short.",
    ),
)


def columns_of(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns of the source."""
    default = PULSAR_SPARK_COLUMNS if given.get("columnNames") == "pulsar-spark" else DEFAULT_COLUMNS
    columns: tuple[str, ...] = given.get("columns") or default
    if given.get("includeHeaders") and HEADERS_COLUMN not in columns:
        columns = (*columns, HEADERS_COLUMN)
    return columns
