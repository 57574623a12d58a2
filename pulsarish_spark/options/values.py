# SPDX-License-Identifier: Apache-2.0
"""The options that say what values are, bytes or of a schema, and what becomes of those that do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from broker_core.base.errors import ConfigError
from broker_core.schemas.definition import definition_of
from broker_core.schemas.info import SchemaInfo, SchemaType
from pulsarish_spark.options.option import Option, Side, count, flag, one_of
from pulsarish_spark.rows.typed_values import OnBadRecord, SchemalessAs, ValueRules

RAW: Final = "raw"
OF_TOPIC: Final = "schema"
PRIMITIVE: Final = "primitive"
DEFINED: Final = {"avro": SchemaType.AVRO, "json": SchemaType.JSON}
PRIMITIVES: Final = {each.name.lower(): each for each in SchemaType if each.is_primitive and not each.is_bytes}
DEPTH_MAX: Final = 16
"""Columns double with each level of a record that contains itself twice."""

_ON_BAD: Final[tuple[OnBadRecord, ...]] = ("fail", "null", "skip", "dead-letter")
_SCHEMALESS: Final[tuple[SchemalessAs, ...]] = ("schema", "null", "bad")


def _definition(text: str) -> bytes:
    data = text.strip().encode()
    definition_of(SchemaInfo(SchemaType.AVRO, data))
    return data


def _version(text: str) -> int:
    if not text.strip().isdecimal() or int(text) >= 2**63:
        raise ValueError("it takes a version of the topic's schema, a whole number from 0 up")
    return int(text)


def _depth(text: str) -> int:
    if (depth := count(text)) > DEPTH_MAX:
        raise ValueError(f"it takes at most {DEPTH_MAX}")
    return depth


TYPING: Final = (
    Option(
        "valueFormat",
        one_of((RAW, OF_TOPIC, *DEFINED, PRIMITIVE, *PRIMITIVES)),
        OF_TOPIC,
        "What values are read and written as. raw (default): bytes. schema: by the topic's schema, the newest one when "
        "the DataFrame is made or a batch is written, which the broker is asked for; the column value is then a "
        "struct, or a plain column, and key is typed too where the schema says what keys are. avro or json: by "
        "valueSchema; the sink makes a schema of the columns without it, and adds it to the topic. "
        f"{', '.join(PRIMITIVES)}: a value of that type alone; primitive, in the sink, is the one of the column. Each "
        "message is decoded by the version that it was written with ([typed.md](typed.md)).",
        fills="format",
        sides=Side.ANY,
    ),
    Option(
        "valueSchema",
        _definition,
        '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}',
        "The schema that values are read or written by with valueFormat avro or json: an Avro definition, as JSON. "
        "The sink adds it to the topic.",
        fills="definition",
        sides=Side.ANY,
    ),
    Option(
        "schemaVersion",
        _version,
        "3",
        "Another version of the topic's schema than the newest one, with valueFormat=schema: columns stay as they are "
        "when the topic's schema changes.",
        fills="version",
    ),
    Option(
        "flattenValue",
        flag,
        "true",
        "Whether the fields of a value that is a record stand beside the other columns, in place of value. In the sink "
        "each column is one but those of messages, such as key and topic. Default false.",
        fills="flatten",
        sides=Side.ANY,
    ),
    Option(
        "recursiveDepth",
        _depth,
        "2",
        "How often a record may be within itself; what is deeper is null. Default: schemas with such records are "
        f"refused. At most {DEPTH_MAX}.",
        fills="recursive_depth",
    ),
    Option(
        "schemalessAs",
        one_of(_SCHEMALESS),
        "null",
        "What a message without a schema version is: schema (default), written with the schema of the query; null, a "
        "null value; or bad, a bad record.",
        fills="schemaless_as",
    ),
    Option(
        "onBadRecord",
        one_of(_ON_BAD),
        "dead-letter",
        "What becomes of a message whose value cannot be decoded. fail (default): the query fails, with the message's "
        "id, the version of its schema, the field and the reason. null: its row has a null value. skip: it is no row. "
        "dead-letter: no row either, and a copy with the reason is in deadLetterTopic before its batch is done.",
        fills="on_bad_record",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """The options of values. ``schema``: the user's; None: the topic's, in ``version``, where ``is_typed``."""

    is_typed: bool = False
    schema: SchemaInfo | None = None
    version: int | None = None
    rules: ValueRules = field(default_factory=ValueRules)


def values_of(given: Mapping[str, Any]) -> ValueOptions:
    """ConfigError for options that contradict each other."""
    form = given.get("valueFormat", RAW)
    if form == RAW:
        check_only_typed(given, TYPING)
        return ValueOptions()
    if form == PRIMITIVE:
        raise ConfigError(
            f"valueFormat={PRIMITIVE} works in the sink alone: a topic does not say which type its bytes are",
            hint=f"name the type, one of {', '.join(PRIMITIVES)}",
        )
    _check_schema(form, given)
    names = {"recursiveDepth": "recursive_depth", "schemalessAs": "schemaless_as", "onBadRecord": "on_bad_record"}
    chosen = {field: given[name] for name, field in names.items() if name in given}
    rules = ValueRules(
        **chosen,
        flatten=given.get("flattenValue", False),
        dead_letter_topic=_dead_letter_topic(given),
        subscription=given.get("subscriptionName", ""),
    )
    return ValueOptions(is_typed=True, schema=_schema(form, given), version=given.get("schemaVersion"), rules=rules)


def _schema(form: str, given: Mapping[str, Any]) -> SchemaInfo | None:
    if form in DEFINED:
        return SchemaInfo(DEFINED[form], given["valueSchema"])
    return SchemaInfo(PRIMITIVES[form]) if form in PRIMITIVES else None


def check_only_typed(given: Mapping[str, Any], options: Sequence[Option]) -> None:
    """ConfigError for one of ``options`` besides valueFormat, as values are bytes."""
    if only := next((option.name for option in options if option.name in given and option.name != "valueFormat"), ""):
        example = "avro" if only == "valueSchema" else OF_TOPIC
        raise ConfigError(
            f"option {only} means nothing where values are bytes", hint=f'add .option("valueFormat", "{example}")'
        )


def _check_schema(form: str, given: Mapping[str, Any]) -> None:
    if form in DEFINED and "valueSchema" not in given:
        raise ConfigError(
            f"valueFormat={form} needs a schema",
            hint='give it with .option("valueSchema", "{...}"), or take the topic\'s: .option("valueFormat", "schema")',
        )
    if form not in DEFINED and "valueSchema" in given:
        raise ConfigError(
            f"valueSchema means nothing with valueFormat={form}", hint='say what values are: "valueFormat", "avro"'
        )
    if form != OF_TOPIC and "schemaVersion" in given:
        raise ConfigError(
            f"schemaVersion means nothing with valueFormat={form}: it names a version of the topic's schema",
            hint='add .option("valueFormat", "schema"), or remove it',
        )


def _dead_letter_topic(given: Mapping[str, Any]) -> str:
    """The topic of bad records; empty: they do not go to one."""
    if given.get("onBadRecord") != "dead-letter":
        return ""
    if "deadLetterTopic" not in given:
        raise ConfigError(
            "onBadRecord=dead-letter needs the topic that bad records go to",
            hint='example: .option("deadLetterTopic", "orders-bad")',
        )
    topic: str = given["deadLetterTopic"]
    return topic
