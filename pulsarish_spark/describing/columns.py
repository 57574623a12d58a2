# SPDX-License-Identifier: Apache-2.0
"""The columns of a read and the schemas of its topics, as ``describe`` tells them. Needs no ``pyspark``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from broker_core.base.errors import PulsarishError
from pulsarish_spark.connecting.side_by_side import side_by_side
from pulsarish_spark.describing.description import ColumnFound, SchemaFound
from pulsarish_spark.options import ReadOptions
from pulsarish_spark.rows.schema import TopicColumns
from pulsarish_spark.typed.target_schema import with_typed_values

if TYPE_CHECKING:
    import pyarrow as pa

    from broker_core.client import Client

_TOPICS_MAX: Final = 20
"""Topics whose schemas are asked for, of a read of thousands."""

_NAMES: Final = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "halffloat": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date32[day]": "date",
    "duration[us]": "interval day to second",
    "timestamp[us]": "timestamp_ntz",
    "timestamp[us, tz=UTC]": "timestamp",
}


def columns_found(options: ReadOptions, client: Client) -> tuple[ColumnFound, ...]:
    """The columns that the rows will have; ConfigError where the read would raise it."""
    typed = with_typed_values(options, client).typed
    schema = TopicColumns(tuple(options.columns), typed=typed).arrow_schema()
    return tuple(ColumnFound(each.name, spark_words(each.type)) for each in schema)


def schemas_found(client: Client, topics: Iterable[str]) -> tuple[SchemaFound, ...]:
    """The newest schema of each topic that has one; those that the client may not know are left out."""
    asked = sorted(set(topics))[:_TOPICS_MAX]
    return tuple(each for each in side_by_side(lambda topic: _schema_of(client, topic), asked) if each is not None)


def _schema_of(client: Client, topic: str) -> SchemaFound | None:
    with suppress(PulsarishError):
        found = client.get_schema(topic)
        if found is not None:
            return SchemaFound(topic, found.version, found.info.type.name)
    return None


def spark_words(arrow: pa.DataType) -> str:
    """An Arrow type as Spark names it."""
    import pyarrow as pa

    if pa.types.is_struct(arrow):
        return f"struct<{_fields(list(arrow))}>"
    if pa.types.is_map(arrow):
        return f"map<{spark_words(arrow.key_type)},{spark_words(arrow.item_type)}>"
    if pa.types.is_list(arrow):
        return f"array<{spark_words(arrow.value_type)}>"
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    return _NAMES.get(str(arrow), str(arrow))


def _fields(fields: Sequence[pa.Field]) -> str:
    return ",".join(f"{each.name}:{spark_words(each.type)}" for each in fields)
