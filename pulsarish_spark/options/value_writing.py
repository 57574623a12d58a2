# SPDX-License-Identifier: Apache-2.0
"""The options that say which schema rows of the sink are written with. Those that reading has too are in ``values``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker_core.base.errors import ConfigError
from pulsarish_spark.options.option import Option, Side, filled, one_of, text_of
from pulsarish_spark.options.values import DEFINED, OF_TOPIC, PRIMITIVE, PRIMITIVES, RAW, TYPING, check_only_typed

NAMING: Final = (
    Option(
        "recordName",
        text_of,
        "Order",
        "The name of the record, where the sink makes a schema of the columns. Default that of the topic. Characters "
        "that names of records do not have become underscores.",
        fills="record_name",
        sides=Side.WRITE,
    ),
    Option(
        "recordNamespace",
        text_of,
        "com.example",
        "The namespace of that record. Default none.",
        fills="record_namespace",
        sides=Side.WRITE,
    ),
    Option(
        "keyFormat",
        one_of((RAW, *DEFINED, PRIMITIVE, *PRIMITIVES)),
        PRIMITIVE,
        "What keys are written as, where values have a schema: the topic's schema then is one of pairs (KEY_VALUE), "
        "and the encoded key is the key of the message. avro and json make a schema of the column key. Default raw: "
        "keys are bytes or text. With valueFormat=schema the topic's schema says it.",
        fills="key_format",
        sides=Side.WRITE,
    ),
)

_TYPED: Final = (*(each for each in TYPING if each.sides & Side.WRITE), *NAMING)
_MADE_BY: Final = frozenset(DEFINED)
"""Formats for which a record is made of columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueWriting:
    """The options of values and keys. ``definition``: the user's schema, empty without; ``record_name``: empty for that
    of the topic."""

    format: str = RAW
    definition: bytes = b""
    flatten: bool = False
    record_name: str = ""
    record_namespace: str = ""
    key_format: str = RAW

    @property
    def is_typed(self) -> bool:
        """Whether values are more than bytes."""
        return self.format != RAW

    @property
    def may_type_keys(self) -> bool:
        """Whether the column key may be of any type, as a schema says what keys are."""
        return self.key_format != RAW or self.format == OF_TOPIC


def value_writing_of(given: Mapping[str, Any]) -> ValueWriting:
    """ConfigError for options that contradict each other."""
    writing = ValueWriting(**filled(_TYPED, given))
    if not writing.is_typed:
        check_only_typed(given, _TYPED)
        return writing
    if writing.definition and writing.format not in DEFINED:
        raise ConfigError(
            f"valueSchema means nothing with valueFormat={writing.format}",
            hint='say what values are: .option("valueFormat", "avro")',
        )
    _check_naming(writing, given)
    if "keyFormat" in given and writing.format == OF_TOPIC:
        raise ConfigError(
            "keyFormat means nothing with valueFormat=schema: the topic's schema says what keys are", hint="remove it"
        )
    if writing.key_format != RAW and "keyForm" in given:
        raise ConfigError("keyForm means nothing beside keyFormat: encoded keys go out as bytes", hint="remove keyForm")
    return writing


def _check_naming(writing: ValueWriting, given: Mapping[str, Any]) -> None:
    makes = (writing.format in _MADE_BY and not writing.definition) or writing.key_format in _MADE_BY
    if not makes and (name := next((each for each in ("recordName", "recordNamespace") if each in given), "")):
        raise ConfigError(
            f"{name} means nothing here: no schema is made of the columns",
            hint="remove it; with valueFormat avro or json and without valueSchema one is made",
        )
