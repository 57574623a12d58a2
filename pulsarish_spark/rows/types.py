# SPDX-License-Identifier: Apache-2.0
"""The types of columns under Spark's names, as values that exist without Spark: what Spark and Arrow call each.

A program that reads without Spark (``arrow``) has no ``pyspark`` installed, so its classes are only looked up by
``spark``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType


class ColumnType(Protocol):
    """One type of a column."""

    def spark(self) -> DataType:
        """Spark's class for it."""
        ...

    def arrow(self) -> pa.DataType:
        """The Arrow type that Spark checks batches against."""
        ...


@dataclass(frozen=True, slots=True)
class PlainType:
    """A type without parts: Spark's class by name, Arrow's type by the name that Arrow has for it."""

    spark_name: str
    arrow_name: str

    def spark(self) -> DataType:
        from pyspark.sql import types

        made: DataType = getattr(types, self.spark_name)()
        return made

    def arrow(self) -> pa.DataType:
        import pyarrow as pa

        if self == TIMESTAMP:
            return pa.timestamp("us", tz="UTC")
        return pa.type_for_alias(self.arrow_name)


BINARY: Final = PlainType("BinaryType", "binary")
BOOLEAN: Final = PlainType("BooleanType", "bool")
INTEGER: Final = PlainType("IntegerType", "int32")
LONG: Final = PlainType("LongType", "int64")
STRING: Final = PlainType("StringType", "string")
TIMESTAMP: Final = PlainType("TimestampType", "timestamp[us]")


@dataclass(frozen=True, slots=True)
class TextMap:
    """A map from text to text."""

    def spark(self) -> DataType:
        from pyspark.sql.types import MapType, StringType

        return MapType(StringType(), StringType())

    def arrow(self) -> pa.DataType:
        import pyarrow as pa

        return pa.map_(pa.string(), pa.string())


@dataclass(frozen=True, slots=True)
class Headers:
    """The type of the column ``headers`` of Spark's Kafka source."""

    def spark(self) -> DataType:
        from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

        return ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

    def arrow(self) -> pa.DataType:
        import pyarrow as pa

        return pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
