# SPDX-License-Identifier: Apache-2.0
"""The columns of the source: Spark's type, the Arrow type that Spark checks each batch against, and what they mean.

A topic has a declaration of its columns, ``TopicColumns``; all of one source have the same names and Spark types, as a
DataFrame has one schema. The first seven are those of Spark's Kafka source. Those that a source has unless it is asked
for others, ``DEFAULT_COLUMNS``, never change: they are the schema of what users have written. How a column gets its
values is in ``columns``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker_core.base.errors import ConfigError
from pulsarish_spark.rows.types import BINARY, BOOLEAN, INTEGER, LONG, STRING, TIMESTAMP, ColumnType, Headers, TextMap

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

HEADERS_COLUMN: Final = "headers"
REDELIVERY_COLUMN: Final = "redelivery_count"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its type, the decoder's columns that it is made from, and its meaning.

    ``by_name_only``: a source has it only where an option names it.
    """

    name: str
    type: ColumnType
    decoded: tuple[str, ...]
    meaning: str
    by_name_only: bool = False


COLUMNS: Final = (
    Column("key", BINARY, ("key",), "key as bytes; null where the message has none"),
    Column("value", BINARY, ("value",), "payload; null where the producer sent an explicit null"),
    Column("topic", STRING, (), "full name of the topic, without the partition"),
    Column(
        "partition",
        INTEGER,
        (),
        "partition number, also of a partition that is read as a topic; 0 where the topic has no partitions",
    ),
    Column("offset", LONG, ("index",), "index of the message in its partition; null where the broker does not tell"),
    Column("timestamp", TIMESTAMP, ("publish_time",), "publish time"),
    Column("timestampType", INTEGER, (), "0: the producer's clock made the timestamp"),
    Column("message_id", STRING, ("ledger", "entry", "batch_index"), "ledger:entry:partition[:batch]"),
    Column("publish_time", TIMESTAMP, ("publish_time",), "publish time, by Pulsar's name"),
    Column(
        "event_time",
        TIMESTAMP,
        ("event_time",),
        "event time; null where the producer gave none, or one that no timestamp holds",
    ),
    Column(
        "properties",
        TextMap(),
        ("properties",),
        "properties; empty where there are none; of several with one name the last",
    ),
    Column("ordering_key", BINARY, ("ordering_key",), "ordering key; null where the message has none"),
    Column(
        "key_is_bytes",
        BOOLEAN,
        ("key_is_bytes",),
        "true where the producer gave the key as bytes, false where as text; null where the message has no key",
    ),
    Column(
        HEADERS_COLUMN,
        Headers(),
        ("property_pairs",),
        "properties in the form of Kafka's headers: all of them in their order; null where there are none",
        by_name_only=True,
    ),
    Column("producer_name", STRING, ("producer_name",), "name of the producer", by_name_only=True),
    Column(
        "sequence_id",
        LONG,
        ("sequence_id",),
        "number that the producer gave the message; they rise within a producer's messages to one partition",
        by_name_only=True,
    ),
    Column(
        "schema_version",
        LONG,
        ("schema_version",),
        "version of the topic's schema that the producer wrote with; null where it had none",
        by_name_only=True,
    ),
    Column(
        "replicated_from",
        STRING,
        ("replicated_from",),
        "cluster that the message was sent to, where geo-replication brought it here; else null",
        by_name_only=True,
    ),
    Column(
        REDELIVERY_COLUMN,
        INTEGER,
        (),
        "how often the broker has given out the message before, in a query with a subscriptionType; else null",
        by_name_only=True,
    ),
    *(
        Column(name, kind, decoded, meaning, by_name_only=True)
        for name, kind, decoded, meaning in (
            ("__key", BINARY, ("key",), "as key"),
            ("__topic", STRING, (), "full name of the topic, with -partition-N where it has partitions"),
            (
                "__messageId",
                BINARY,
                ("ledger", "entry", "batch_index", "batch_size"),
                "id in the binary form of the official clients: MessageId.fromByteArray and its like read it",
            ),
            ("__publishTime", TIMESTAMP, ("publish_time",), "as publish_time"),
            ("__eventTime", TIMESTAMP, ("event_time",), "as event_time"),
            ("__messageProperties", TextMap(), ("properties",), "as properties"),
        )
    ),
)

_BY_NAME: Final = {column.name: column for column in COLUMNS}
ALL_COLUMNS: Final = tuple(_BY_NAME)
DEFAULT_COLUMNS: Final = tuple(column.name for column in COLUMNS if not column.by_name_only)
PULSAR_SPARK_COLUMNS: Final = (
    "value",
    "__key",
    "__topic",
    "__messageId",
    "__publishTime",
    "__eventTime",
    "__messageProperties",
)
"""What a source has instead where it is asked for pulsar-spark's names."""


@dataclass(frozen=True, slots=True)
class TopicColumns:
    """The columns that the rows of one topic have. It travels to the executors.

    ``shown_topic``: what the column topic says, "" for the full name.
    """

    names: tuple[str, ...] = ALL_COLUMNS
    shown_topic: str = ""

    def spark_schema(self) -> StructType:
        """The schema of a source with these columns."""
        from pyspark.sql.types import StructField, StructType

        return StructType([StructField(name, _BY_NAME[name].type.spark()) for name in self.names])

    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema that Spark expects of each batch with these columns."""
        import pyarrow as pa

        return pa.schema([(name, _BY_NAME[name].type.arrow()) for name in self.names])

    def decoded(self) -> set[str]:
        """The columns that the decoder must give for these."""
        return {needed for name in self.names for needed in _BY_NAME[name].decoded}


def spark_schema(names: Sequence[str]) -> StructType:
    """The schema of a source whose topics have these columns."""
    return TopicColumns(tuple(names)).spark_schema()


def check_user_schema(user: StructType, names: Sequence[str]) -> None:
    """ConfigError unless ``user``, which came from ``.schema(...)``, is what the options give anyway."""
    own = spark_schema(names)
    if [(f.name, f.dataType, f.nullable) for f in user.fields] != [(f.name, f.dataType, True) for f in own.fields]:
        raise ConfigError(
            f"the schema given with .schema(...) is not the one of this source, {own.simpleString()}, all nullable",
            hint='remove it; .option("columns", "key,value") chooses columns, from_json(value, ...) parses them',
        )
