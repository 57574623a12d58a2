# SPDX-License-Identifier: Apache-2.0
"""Data of schemas, good ones and such as nobody should send: too deep, of wrong lengths, without sense."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from broker_core.schemas.key_value import joined


def _record(*fields: Any, **more: Any) -> bytes:
    return json.dumps({"type": "record", "name": "R", "fields": fields, **more}).encode()


def _field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def _nested(depth: int) -> bytes:
    return b'{"type":"array","items":' * depth + b'"int"' + b"}" * depth


def _native(files: bytes, root: str = "p.M", file: str = "root.proto") -> bytes:
    text = base64.b64encode(files).decode()
    parts = {"fileDescriptorSet": text, "rootMessageTypeName": root, "rootFileDescriptorName": file}
    return json.dumps(parts).encode()


_PLAIN: Final = (b"", b"null", b'"int"', b'["null","int"]', _record(_field("a", "int")))
EVOLVED: Final = tuple(_record(_field("a", "int"), _field(f"f{number}", "int", default=0)) for number in range(6))
_ODD: Final = (
    *(_nested(depth) for depth in (10, 191, 193, 5_000)),
    _record(_field("x" * 600, "int")),
    _record(_field("a", "int"), _field("a", "int")),
    _record(_field("a", ["int", "int"])),
    _record(_field("a", ["null", "R"], default=None), aliases=["R", "S", "R"]),
    _record(_field("a", "Missing")),
    _record(_field("a", "int", default=10**400)),
    _record(_field("a", "double", default=float("nan"))),
    _record(_field("\ud800", "int")),
    _record(_field("a\x00", "int"), namespace=".."),
    _record(*(_field(f"f{number}", {"type": "map", "values": "R"}) for number in range(300))),
    *(json.dumps({"type": "fixed", "name": "F", "size": size}).encode() for size in (-1, 2**63, 1.5)),
    json.dumps({"type": "bytes", "logicalType": "decimal", "precision": 10**30, "scale": -1}).encode(),
    json.dumps({"type": "enum", "name": "E", "symbols": ["A", "A", ""], "default": "Z"}).encode(),
    b"[" * 100_000,
    b'{"type":"record","name":"R","fields":' + b"0" * 5_000,
    b"\xff\xfe\x00",
    b"\xef\xbb\xbf" + b'"int"',
    b'"' + b"\\u0041" * 3_000 + b'"',
)
_PAIRS: Final = (
    joined(b"", b""),
    joined(b'"int"', _record(_field("a", "int"))),
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00\x00\x00\x00\x00",
    b"\x00\x00\x00\x01",
    joined(joined(b"", b""), b"") + b"more",
)
_NATIVE: Final = (_native(b""), _native(b"\n\x05\n\x03a.p"), _native(b"\xff" * 300), b'{"fileDescriptorSet": "*"}')

SCHEMA_DATA: Final = (*_PLAIN, *EVOLVED, *_ODD, *_PAIRS, *_NATIVE)

PROPERTY_NAMES: Final = (
    *("key.schema.type", "value.schema.type", "kv.encoding.type", "key.schema.name", "key.schema.properties"),
    *("value.schema.properties", "__charset", "__alwaysAllowNull", "__PARSING_INFO__"),
)
PROPERTY_VALUES: Final = (
    *("AVRO", "STRING", "KEY_VALUE", "AUTO_CONSUME", "NONE", "no type", "INLINE", "SEPARATED", "{}"),
    *("[" * 2_000, '{"a":1}', "UTF-99", "true"),
)
