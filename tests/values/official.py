# SPDX-License-Identifier: Apache-2.0
"""Values as the official clients decode them beside ours: random evolutions, and whether two values are the same.

The values of clients come as Python's own: of fastavro, whose logical types are taken back to what they stand for, or
of the Java oracle, whose numbers come by their bits.
"""

from __future__ import annotations

import base64
import copy
import datetime as dt
import json
import struct
import uuid
from decimal import Decimal
from typing import Any, Final, NamedTuple

import numpy as np
from hypothesis import strategies as st

from broker_core.schemas.avro.parsing import SchemaParseError, parse
from broker_core.schemas.avro.types import (
    Array,
    AvroType,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    named_types,
    parts,
)
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.values.decoder import ValueDecoder
from broker_core.values.targets import RecursiveSchemaError
from tests.schemas.defaults import has_valid_defaults
from tests.schemas.definitions import definitions, evolved
from tests.values.data import EPOCH, data_of

_VERSIONS_MAX: Final = 4


class Evolution(NamedTuple):
    """The versions of a schema, of which the last is the reader's, and a payload of each."""

    definitions: list[Any]
    payloads: list[bytes]


@st.composite
def evolutions(draw: st.DrawFn) -> Evolution | None:
    """Versions of a record that are valid, and do not contain themselves; None if they are not."""
    versions = [draw(definitions())]
    for _ in range(draw(st.integers(0, _VERSIONS_MAX - 1))):
        versions.append(evolved(draw, copy.deepcopy(versions[-1])))
    if draw(st.booleans()):
        versions.reverse()
    try:
        schemas = [parse(json_text(each)) for each in versions]
        if not all(isinstance(each, Record) for each in schemas):
            return None
        for each in versions:
            ValueDecoder(info_of(each))
        return Evolution(versions, [draw(data_of(each)).data for each in schemas])
    except (SchemaParseError, RecursiveSchemaError):
        return None


def info_of(definition: Any) -> SchemaInfo:
    return SchemaInfo(SchemaType.AVRO, json_text(definition).encode())


def json_text(definition: Any) -> str:
    return json.dumps(definition)


def is_same(schema: AvroType, ours: Any, theirs: Any) -> bool:
    """Whether a value of a column of ``schema`` is what a client has decoded."""
    if isinstance(schema, Union):
        return _is_same_branch(schema, ours, theirs)
    if ours is None or theirs is None:
        return ours is None and theirs is None
    match schema:
        case Record():
            return (
                isinstance(theirs, dict)
                and ours.keys() == theirs.keys()
                and all(is_same(each.type, ours[each.name], theirs[each.name]) for each in schema.fields)
            )
        case Array():
            return (
                isinstance(theirs, list)
                and len(ours) == len(theirs)
                and all(
                    is_same(schema.items, one, other) or _is_rounded(one, other)
                    for one, other in zip(ours, theirs, strict=True)
                )
            )
        case Map():
            pairs = dict(ours)
            return (
                isinstance(theirs, dict)
                and pairs.keys() == theirs.keys()
                and all(is_same(schema.values, each, theirs[key]) for key, each in pairs.items())
            )
        case Enum():
            return bool(ours == theirs)
        case Fixed():
            return bool(ours == plain(theirs))
        case Primitive():
            return _is_same_primitive(schema, ours, plain(theirs))


def _is_rounded(ours: Any, theirs: Any) -> bool:
    """Whether Java has made a float of a double, as its fast reader does in arrays."""
    match theirs:
        case {"double": _}:
            with np.errstate(over="ignore"):
                return isinstance(ours, float) and bool(float(np.float32(ours)) == plain(theirs))
    return False


def has_crossed_names(schema: AvroType) -> bool:
    """Whether an alias is the name of another field or type: Java renames twice then, which may lead back."""
    types = list(named_types(schema))
    names = {each.name for each in types}
    return any(names & {*each.aliases} - {each.name} for each in types) or any(
        {alias for each in record.fields for alias in each.aliases if alias != each.name} & record.by_name.keys()
        for record in types
        if isinstance(record, Record)
    )


def is_known_of_python(writer: Any, reader: Any) -> bool:
    """Whether docs/schemas.md says why the Python client may see other values: it takes decimals for what they are to
    their writer, and defaults as they stand in the schema: those of bytes for text, and any value for any type. Of a
    union it takes the first branch that a value can be made of, so that text may become bytes."""
    text = json_text(reader)
    return (
        '"decimal"' in json_text(writer)
        or _has_union_of_text_and_bytes(parse(text))
        or ('"default"' in text and any(f'"{kind}"' in text for kind in ("bytes", "fixed", "array", "map")))
        or not has_valid_defaults(parse(text))
    )


def _has_union_of_text_and_bytes(schema: AvroType) -> bool:
    seen: set[int] = set()
    pending = [schema]
    while pending:
        each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, Union) and {"bytes", "string"} <= {branch.kind for branch in each.branches}:
            return True
        pending += parts(each)
    return False


def _is_same_branch(schema: Union, ours: Any, theirs: Any) -> bool:
    others = [each for each in schema.branches if each.kind != "null"]
    if theirs is None:
        return ours is None
    if len(others) == 1:
        return is_same(others[0], ours, theirs)
    if not isinstance(ours, dict):  # a union of numbers that became one
        return bool(ours == plain(theirs))
    members = [(others[number], each) for number, each in enumerate(ours.values()) if each is not None]
    return len(members) == 1 and is_same(*members[0], theirs)


def _is_same_primitive(schema: Primitive, ours: Any, theirs: Any) -> bool:
    if isinstance(ours, Decimal) and isinstance(theirs, bytes):
        return ours == Decimal(int.from_bytes(theirs, "big", signed=True)).scaleb(-schema.properties["scale"])
    if schema.kind == "float" and isinstance(theirs, int):
        return bool(ours == struct.unpack("<f", struct.pack("<f", theirs))[0])
    return bool(plain(ours) == theirs)


def plain(value: Any) -> Any:
    """A value without its logical type, and out of what the oracle packs it in."""
    match value:
        case {"bytes": str(text)}:
            return base64.b64decode(text)
        case {"float": bits}:
            return struct.unpack("<f", struct.pack("<i", bits))[0]
        case {"double": bits}:
            return struct.unpack("<d", struct.pack("<q", bits))[0]
        case dt.datetime():
            return (value - EPOCH) // dt.timedelta(milliseconds=1)
        case dt.date():
            return (value - EPOCH.date()).days
        case uuid.UUID():
            return str(value)
    return value
