# SPDX-License-Identifier: Apache-2.0
"""Target schema of a read: the one that all its values are decoded to, found once, when the DataFrame is made.

It is the user's, or the topic's in its newest or a named version. A running query keeps it, so that its columns never
change; a DataFrame that is made anew, as after a restart, has the newest one again. Must not decode anything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker_core.base.errors import ConfigError, PulsarishError
from broker_core.schemas.definition import InvalidSchemaError, definition_of
from broker_core.schemas.info import SchemaInfo, VersionedSchema
from pulsarish_spark.connecting.connection import connected
from pulsarish_spark.connecting.side_by_side import side_by_side
from pulsarish_spark.options import ReadOptions
from pulsarish_spark.rows.schema import KNOWN_COLUMNS
from pulsarish_spark.rows.typed_values import TypedValues
from pulsarish_spark.viewing.layout import discover

if TYPE_CHECKING:
    from broker_core.client import Client

_OR_BYTES = 'or read bytes: .option("valueFormat", "raw")'
_OR_NAMED = 'or name the schema: .option("valueFormat", "avro").option("valueSchema", "{...}")'


def with_typed_values(options: ReadOptions, client: Client | None = None) -> ReadOptions:
    """``options`` with the target schema, if they ask for one; the broker is asked where it is the topic's.

    Raises ConfigError where there is none, where topics differ, and where values of it can have no columns.
    """
    values = options.values
    if not values.is_typed or options.typed is not None:
        return options
    if values.schema is not None:
        typed = TypedValues(values.schema, None, values.rules)
    elif client is not None:
        typed = _of_topics(options, client)
    else:
        with connected(options.address) as opened:
            typed = _of_topics(options, opened)
    _check_letters(options)
    _check_columns(options, typed)
    return replace(options, typed=typed if typed.decoded(options.columns) else None)


def topics_of(options: ReadOptions, client: Client) -> list[str]:
    """The topics that are read, as far as they are there."""
    if options.selection.topics:
        return [*options.selection.names]
    return sorted({key.topic for key in discover(options.selection, client).names})


def _of_topics(options: ReadOptions, client: Client) -> TypedValues:
    version = options.values.version
    topics = topics_of(options, client)
    if not topics:
        raise ConfigError(
            f"valueFormat=schema takes the schema of the topics, and none matches {options.selection.pattern}",
            hint=f"make one first, {_OR_NAMED}",
        )
    found = side_by_side(lambda topic: _asked(client, topic, version), topics)
    first = found[0]
    for topic, other in zip(topics, found, strict=True):
        if not are_equal(first.info, other.info):
            raise ConfigError(
                f"{topics[0]} and {topic} have different schemas, and a DataFrame has one",
                hint=f"read them one by one, {_OR_NAMED}; every message is read by its own version and made to fit it",
            )
    return TypedValues(first.info, first.version, options.values.rules)


def _asked(client: Client, topic: str, version: int | None) -> VersionedSchema:
    try:
        # Asked for anew: this process may know the version from before the topic was deleted and made anew.
        found = client.get_schema(topic, version, anew=True)
    except PulsarishError as error:
        raise ConfigError(
            f"valueFormat=schema asks the broker for the schema of {topic}, which failed: {error.message}",
            hint=f"{error.hint + '; ' if error.hint else ''}{_OR_NAMED}",
        ) from error
    if found is None and version is not None:
        raise ConfigError(
            f"{topic} has no version {version} of its schema", hint=f"pulsarish schema list shows them, {_OR_NAMED}"
        )
    if found is None:
        raise ConfigError(f"{topic} has no schema", hint=f"producers bring one; {_OR_NAMED[3:]}, {_OR_BYTES}")
    return found


def are_equal(one: SchemaInfo, other: SchemaInfo) -> bool:
    """Whether two schemas are the same, as brokers compare them."""
    if (one.type, one.data) == (other.type, other.data) and one.properties == other.properties:
        return True
    try:
        return definition_of(one).fingerprint == definition_of(other).fingerprint
    except InvalidSchemaError:
        return False


def _check_columns(options: ReadOptions, typed: TypedValues) -> None:
    """ConfigError where values can have no columns, or where lifted ones clash with others."""
    try:
        columns = typed.columns()
    except PulsarishError as error:
        raise ConfigError(f"values cannot be columns: {error.message}", hint=error.hint or _OR_BYTES[3:]) from error
    others = {name.lower() for name in options.columns if name not in columns}
    if not others and not any(columns[name] for name in columns if name in options.columns):
        raise ConfigError(
            "values are records without fields, so flattenValue leaves no column of them", hint="leave flattenValue out"
        )
    lifted = [field.name for name in columns for field in columns[name] if name in options.columns]
    for name in lifted:
        if name.lower() in others:
            raise ConfigError(
                f"the field {name} of values clashes with the column {name.lower()}",
                hint=f"leave flattenValue out, or choose other columns; there are {', '.join(KNOWN_COLUMNS)}",
            )
    seen: set[str] = set()
    for name in lifted:
        if name.lower() in seen:
            raise ConfigError(
                f"fields of values differ from each other only in case: {name}", hint="leave flattenValue out"
            )
        seen.add(name.lower())


def _check_letters(options: ReadOptions) -> None:
    topic = options.values.rules.dead_letter_topic
    if topic and options.selection.wants_some_of(topic):
        raise ConfigError(
            f"option deadLetterTopic names {topic}, which is read: a bad record would come again for ever",
            hint="name another topic",
        )
