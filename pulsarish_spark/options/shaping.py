# SPDX-License-Identifier: Apache-2.0
"""The options that say which columns there are, and how topics are called in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from broker_core.base.suggest import did_you_mean
from pulsarish_spark.options.option import Option, Side, flag, one_of
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
        Side.ANY,
        flag,
        "true",
        "Source: add the column headers to the others, as in Kafka's. Sink: changes nothing, as in Kafka's.",
    ),
    Option(
        "columns",
        Side.READ,
        _columns,
        "key,value,message_id",
        "The columns to read, comma separated, in this order; or all: every one below but those of pulsar-spark's "
        "names, which begin with __. Default: the seven of Spark's Kafka source, key to timestampType. A column that "
        "is not read is not decoded either.",
    ),
    Option(
        "columnNames",
        Side.ANY,
        one_of(("pulsarish", "pulsar-spark")),
        "pulsar-spark",
        "Whose names the columns have. pulsar-spark: value, __key, __topic, __messageId, __publishTime, __eventTime "
        "and __messageProperties, unless columns says otherwise; the sink takes these too, __eventTime also as "
        "milliseconds, and leaves __messageId and __publishTime out. Default pulsarish.",
    ),
    Option(
        "topicNames",
        Side.READ,
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
