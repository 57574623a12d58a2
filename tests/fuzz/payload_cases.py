# SPDX-License-Identifier: Apache-2.0
"""Cases of the fuzz of payloads: schemas in two versions, and random values of them as their bytes.

The schemas have every type that a column can be made of, at the top and within lists, records and unions.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message_factory import GetMessageClass

from broker_core.schemas.avro.encoding import zigzag
from broker_core.schemas.avro.parsing import parse
from broker_core.schemas.avro.types import Array, AvroType, Enum, Fixed, Map, Primitive, Record, Union
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.schemas.key_value import joined
from broker_core.schemas.protobuf_native import root_descriptor
from tests.schemas.infos import INT32, STRING, key_value
from tests.schemas.notation import definition
from tests.values.protobuf_infos import everything

Payload = Callable[[random.Random, int], bytes]
"""A random sound payload of a version."""

_OLD: Final = "{i:int, s:string, u:?string=null, gone:array<X{x:int, y:?string}>}"
_NEW: Final = (
    '{i:long, s:string, u:?string=null, f:float=1.5, d:double=2.5, b:boolean=true, y:bytes="ab", e:enum<A,B,C>="A", '
    'q:fixed(3)="abc", a:array<int>=[1, 2], m:map<?double>={}, r:X{x:int, y:?string}={"x": 1, "y": null}, '
    "n:[null | int | string | Y{z:array<string>}]=null, l:array<map<array<?long>>>=[], day:int date=0, "
    't:long timestamp-millis=0, k:long local-timestamp-micros=0, p:bytes decimal(9,2)="\\u0001", '
    "z:array<null>=[], w:array<Z{}>=[]}"
)
_PLAIN: Final = (
    "{i:?long, d:?double, f:?float, n:?int, s:?string, b:?boolean, l:?array<X{x:?string}>, "
    'r:?Y{z:?int}, e:?enum<A,B>, t:?long timestamp-millis, k:int date=0, c:string="x"}'
)
"""Schema whose values Arrow's reader of JSON takes as they are."""
_MORE: Final = (
    {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "o", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
    {"name": "g", "type": {"type": "fixed", "name": "G", "size": 9, "logicalType": "decimal", "precision": 20}},
    {"name": "h", "type": {"type": "fixed", "name": "H", "size": 12, "logicalType": "duration"}},
    {"name": "j", "type": {"type": "fixed", "name": "J", "size": 16, "logicalType": "uuid"}},
    {"name": "c", "type": {"type": "int", "logicalType": "time-millis"}},
    {"name": "next", "type": ["null", "R"]},
)
"""Fields that the notation of schemas has no words for; the record is within itself."""


@dataclass(frozen=True, slots=True)
class Case:
    """A reader's schema, that of each version, and payloads of these. ``has_keys``: keys are those of the messages."""

    name: str
    reader: SchemaInfo
    versions: Mapping[int, SchemaInfo]
    payload: Payload
    has_keys: bool = False


def cases() -> list[Case]:
    """All cases."""
    old, new, deep = definition(_OLD), definition(_NEW), _deep()
    avro = _avro_case("Avro", old, new)
    records, plain = _json_case("JSON", old, new), definition(_PLAIN)
    return [
        avro,
        _avro_case("Avro, recursive", deep, deep),
        records,
        _json_case("JSON, plain", plain, plain),
        *(_primitive_case(kind) for kind in SchemaType if kind.is_primitive),
        _pair_case("KeyValue", avro, separated=False),
        _pair_case("KeyValue of JSON", records, separated=False),
        _pair_case("KeyValue, separated", avro, separated=True),
        _protobuf_case(),
    ]


def _deep() -> str:
    record = json.loads(definition("{v:int}"))
    record["fields"] += _MORE
    return json.dumps(record)


# -- Avro and JSON


def _avro_case(name: str, old: str, new: str) -> Case:
    schemas = [parse(old), parse(new)]
    infos = [SchemaInfo(SchemaType.AVRO, each.encode()) for each in (old, new)]
    return Case(name, infos[1], dict(enumerate(infos)), lambda chance, version: avro_bytes(chance, schemas[version], 0))


def avro_bytes(chance: random.Random, schema: AvroType, depth: int) -> bytes:
    """A value of ``schema``; records within themselves end soon."""
    match schema:
        case Record():
            return b"".join(avro_bytes(chance, each.type, depth + 1) for each in schema.fields)
        case Union():
            number = 0 if depth > 4 else chance.randrange(len(schema.branches))
            return zigzag(number) + avro_bytes(chance, schema.branches[number], depth)
        case Array() | Map():
            return _block(chance, schema, depth)
        case Enum():
            return zigzag(chance.randrange(len(schema.symbols)))
        case Fixed():
            return bytes(schema.size - 1) + chance.randbytes(1)
        case Primitive():
            return _avro_primitive(chance, schema)


def _block(chance: random.Random, schema: Array | Map, depth: int) -> bytes:
    count = chance.choice((0, 1, 2, 3))
    of = schema.items if isinstance(schema, Array) else schema.values
    items = [
        (b"" if isinstance(schema, Array) else _sized(f"k{at}".encode())) + avro_bytes(chance, of, depth + 1)
        for at in range(count)
    ]
    return (zigzag(count) + b"".join(items) if items else b"") + b"\0"


def _avro_primitive(chance: random.Random, schema: Primitive) -> bytes:
    match schema.kind:
        case "null":
            return b""
        case "boolean":
            return chance.choice((b"\0", b"\1"))
        case "int" | "long":
            return zigzag(chance.randint(-100_000, 100_000))
        case "float":
            return struct.pack("<f", chance.random())
        case "double":
            return struct.pack("<d", chance.random())
        case "bytes":
            return _sized(chance.randbytes(chance.randint(0, 3)))
        case _:
            return _sized(_text(chance).encode())


def _sized(data: bytes) -> bytes:
    return zigzag(len(data)) + data


def _text(chance: random.Random) -> str:
    return "".join(chance.choice("abcé€😀\n\0") for _ in range(chance.randint(0, 6)))


def _json_case(name: str, old: str, new: str) -> Case:
    schemas = [parse(old), parse(new)]
    infos = [SchemaInfo(SchemaType.JSON, each.encode()) for each in (old, new)]

    def payload(chance: random.Random, version: int) -> bytes:
        return json.dumps(_json_value(chance, schemas[version], 0), ensure_ascii=chance.random() < 0.5).encode()

    return Case(name, infos[1], dict(enumerate(infos)), payload)


def _json_value(chance: random.Random, schema: AvroType, depth: int) -> Any:
    match schema:
        case Record():
            return {each.name: _json_value(chance, each.type, depth + 1) for each in schema.fields}
        case Union():
            return _json_value(chance, chance.choice(schema.branches), depth)
        case Array():
            return [_json_value(chance, schema.items, depth + 1) for _ in range(chance.randint(0, 3))]
        case Map():
            return {f"k{at}": _json_value(chance, schema.values, depth + 1) for at in range(chance.randint(0, 3))}
        case Enum():
            return chance.choice(schema.symbols)
        case Fixed():
            return "abc"
    plain = {"null": None, "boolean": True, "float": 0.5, "double": 1e3, "bytes": "AAE="}
    if schema.kind in plain:
        return 1.25 if "logicalType" in schema.properties else plain[schema.kind]
    return chance.randint(-1000, 1000) if schema.kind in ("int", "long") else _text(chance)


# -- primitives, pairs, messages


def _primitive_case(kind: SchemaType) -> Case:
    info = SchemaInfo(kind)

    def payload(chance: random.Random, _version: int) -> bytes:
        match kind:
            case SchemaType.STRING:
                return _text(chance).encode()
            case SchemaType.BYTES | SchemaType.NONE:
                return chance.randbytes(chance.randint(0, 5))
            case SchemaType.INSTANT:
                return struct.pack(">qi", chance.randint(-(10**9), 10**9), chance.randrange(10**9))
            case SchemaType.LOCAL_DATE_TIME:
                return struct.pack(">qq", chance.randint(-(10**5), 10**5), chance.randrange(10**9))
            case SchemaType.FLOAT | SchemaType.DOUBLE:
                return struct.pack(">f" if kind is SchemaType.FLOAT else ">d", chance.random())
        return chance.randrange(120).to_bytes(_SIZES.get(kind, 8), "big")

    return Case(kind.name, info, {0: info, 1: info}, payload)


_SIZES: Final = {SchemaType.BOOLEAN: 1, SchemaType.INT8: 1, SchemaType.INT16: 2, SchemaType.INT32: 4}


def _pair_case(name: str, values: Case, *, separated: bool) -> Case:
    encoding = "SEPARATED" if separated else ""
    key = INT32 if separated else STRING
    infos = {version: key_value(key, info, encoding) for version, info in values.versions.items()}

    def payload(chance: random.Random, version: int) -> bytes:
        value = values.payload(chance, version)
        return value if separated else joined(_text(chance).encode(), value)

    return Case(name, infos[1], infos, payload, has_keys=separated)


def _protobuf_case() -> Case:
    info = everything()
    message = GetMessageClass(root_descriptor(info.data))

    def payload(chance: random.Random, _version: int) -> bytes:
        made: Any = message()
        for field in made.DESCRIPTOR.fields:
            if chance.random() < 0.5:
                continue
            if field.message_type is not None:
                if not field.is_repeated:
                    getattr(made, field.name).SetInParent()
            elif field.is_repeated:
                getattr(made, field.name).extend([_scalar(chance, field.name)] * chance.randint(0, 3))
            else:
                setattr(made, field.name, _scalar(chance, field.name))
        if chance.random() < 0.5:
            made.by_name["k"].x = 1
            made.inners.add(x=2)
        return bytes(made.SerializeToString())

    return Case("Protobuf", info, {0: info, 1: info}, payload)


def _scalar(chance: random.Random, name: str) -> Any:
    if name.endswith(("string", "word", "text")):
        return _text(chance)
    if name.endswith("bytes"):
        return chance.randbytes(3)
    return chance.random() < 0.5 if name.endswith("bool") else chance.randrange(3)
