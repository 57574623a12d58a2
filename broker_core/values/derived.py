# SPDX-License-Identifier: Apache-2.0
"""Schemas that are made of the type of columns, so that rows of it can be written.

A column that may be null becomes a union with null first and the default null: then it may be added to a schema, and
left out of one, under every strategy. Columns that no schema expresses are refused by their path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import pyarrow as pa

from broker_core.base.errors import UsageError
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.wire.batch.columns import is_bytes_type, is_text_type

Kind = Literal["avro", "json"]

_TYPES: Final[Mapping[Kind, SchemaType]] = {"avro": SchemaType.AVRO, "json": SchemaType.JSON}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_PLAIN: Final[Mapping[pa.DataType, Any]] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.uint8(): "int",
    pa.uint16(): "int",
    pa.int32(): "int",
    pa.uint32(): "long",
    pa.int64(): "long",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): {"type": "int", "logicalType": "date"},
    **{pa.time32(unit): {"type": "long", "logicalType": "time-micros"} for unit in ("s", "ms")},
    **{pa.time64(unit): {"type": "long", "logicalType": "time-micros"} for unit in ("us", "ns")},
}

_PRIMITIVES: Final[Mapping[pa.DataType, SchemaType]] = {
    pa.bool_(): SchemaType.BOOLEAN,
    pa.int8(): SchemaType.INT8,
    pa.int16(): SchemaType.INT16,
    pa.int32(): SchemaType.INT32,
    pa.int64(): SchemaType.INT64,
    pa.float32(): SchemaType.FLOAT,
    pa.float64(): SchemaType.DOUBLE,
    pa.date32(): SchemaType.LOCAL_DATE,
    pa.time64("us"): SchemaType.LOCAL_TIME,
    pa.time64("ns"): SchemaType.LOCAL_TIME,
}


class InexpressibleError(UsageError):
    """A column has a type or a name that no schema of this kind can have. The message begins with its path."""


def schema_of(arrow: pa.DataType, *, kind: Kind, name: str, namespace: str = "", column: str = "") -> SchemaInfo:
    """A schema for values of type ``arrow``: a record called ``name`` if they are structs. InexpressibleError.

    Characters of ``name`` that a name cannot have become underscores. ``column``: the name of the column that values
    are in, with which paths in errors begin.
    """
    for part in namespace.split(".") if namespace else ():
        if not _NAME.fullmatch(part):
            raise InexpressibleError(
                f"namespace {namespace!r} cannot be that of a record",
                hint="it takes names of letters, digits and underscores, with dots between them",
            )
    definition = _Making(namespace).definition(arrow, cleaned_name(name), column)
    return SchemaInfo(_TYPES[kind], json.dumps(definition, separators=(",", ":")).encode())


def primitive_of(arrow: pa.DataType, *, column: str = "") -> SchemaInfo:
    """The primitive schema for values of type ``arrow``; InexpressibleError. Times are those that lose nothing."""
    if is_text_type(arrow):
        return SchemaInfo(SchemaType.STRING)
    if is_bytes_type(arrow):
        return SchemaInfo(SchemaType.BYTES)
    if pa.types.is_timestamp(arrow):
        return SchemaInfo(SchemaType.LOCAL_DATE_TIME if arrow.tz is None else SchemaType.INSTANT)
    if arrow not in _PRIMITIVES:
        raise _inexpressible(
            column, arrow, "no primitive schema has such values", "avro and json have records and lists"
        )
    return SchemaInfo(_PRIMITIVES[arrow])


def cleaned_name(name: str) -> str:
    """``name`` as the name of a record."""
    cleaned = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return cleaned if _NAME.fullmatch(cleaned) else f"_{cleaned}"


class _Making:
    """The definition of one schema. Names of records are the way to them, and come once."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._taken: set[str] = set()

    def definition(self, arrow: pa.DataType, name: str, path: str) -> Any:
        if arrow in _PLAIN:
            return _PLAIN[arrow]
        if is_text_type(arrow):
            return "string"
        if is_bytes_type(arrow):
            return "bytes"
        if pa.types.is_timestamp(arrow):
            local = "" if arrow.tz is not None else "local-"
            return {"type": "long", "logicalType": f"{local}timestamp-micros"}
        if pa.types.is_decimal128(arrow):
            return self._decimal(arrow, path)
        if pa.types.is_struct(arrow):
            return self._record(arrow, name, path)
        if pa.types.is_map(arrow):
            return self._map(arrow, name, path)
        if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
            return {"type": "array", "items": self._part(arrow.value_field, name, f"{path}[]")}
        raise _inexpressible(path, arrow, "Avro has no such type", "cast it, to a string for example, or drop it")

    def _decimal(self, arrow: pa.DataType, path: str) -> Any:
        if not 0 <= arrow.scale <= arrow.precision:
            raise _inexpressible(path, arrow, "Avro's decimals have a scale from 0 to their precision", "cast it")
        return {"type": "bytes", "logicalType": "decimal", "precision": arrow.precision, "scale": arrow.scale}

    def _record(self, arrow: pa.StructType, name: str, path: str) -> Any:
        taken = self._name(name)
        names = [each.name for each in arrow]
        fields = []
        for each in arrow:
            below = f"{path}.{each.name}" if path else each.name
            if not _NAME.fullmatch(each.name):
                raise InexpressibleError(
                    f"column {below} has a name that no field of a record can have",
                    hint="names have letters, digits and underscores, and begin with no digit; rename it",
                )
            if names.count(each.name) > 1:
                raise InexpressibleError(f"there are several columns {below}", hint="drop or rename all but one")
            made = {"name": each.name, "type": self._part(each, f"{name}_{each.name}", below)}
            fields.append(made | {"default": None} if each.nullable else made)
        space = {"namespace": self._namespace} if self._namespace else {}
        return {"type": "record", "name": taken, **space, "fields": fields}

    def _name(self, name: str) -> str:
        """``name``, with a number if another way led to it."""
        number, found = 2, name
        while found in self._taken:
            number, found = number + 1, f"{name}_{number}"
        self._taken.add(found)
        return found

    def _map(self, arrow: pa.MapType, name: str, path: str) -> Any:
        if not is_text_type(arrow.key_type):
            raise _inexpressible(path, arrow, "keys of Avro's maps are strings", "cast its keys")
        return {"type": "map", "values": self._part(arrow.item_field, name, f"{path}{{}}")}

    def _part(self, part: pa.Field, name: str, path: str) -> Any:
        made = self.definition(part.type, name, path)
        return ["null", made] if part.nullable else made


def _inexpressible(path: str, arrow: pa.DataType, why: str, hint: str) -> InexpressibleError:
    subject = f"column {path}" if path else "the value"
    return InexpressibleError(f"{subject} is {arrow}, and {why}", hint=hint)
