# SPDX-License-Identifier: Apache-2.0
"""Columns of Protobuf messages by their descriptors: types, presence, recursion, and payloads that are none."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest

from broker_core.values.decoder import ValueDecoder
from broker_core.values.decoding import Flaw
from broker_core.values.targets import RecursiveSchemaError, TooManyColumnsError
from tests.schemas.infos import STRING
from tests.values.protobuf_infos import SCALARS, F, everything, info_of, message_of, proto
from tests.values.test_decoder import decoded

_HIGHEST: Final[dict[str, Any]] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), 2**31 - 1),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), 2**63 - 1),
    **dict.fromkeys(("uint32", "fixed32"), 2**32 - 1),
    **dict.fromkeys(("uint64", "fixed64"), 2**64 - 1),
    "double": 0.1,
    "float": 1.5,
    "bool": True,
    "string": "é",
    "bytes": b"\0\xff",
}


def _shown(name: str) -> Any:
    return Decimal(_HIGHEST[name]) if name in ("uint64", "fixed64") else _HIGHEST[name]


def test_each_type_becomes_its_column() -> None:
    info = everything()
    data = message_of(
        info,
        **{f"one_{name}": _HIGHEST[name] for name in SCALARS},
        **{f"many_{name}": [_HIGHEST[name]] * 2 for name in SCALARS},
        colour=2,
        inner={"x": 1},
        time={"seconds": -1, "nanos": 1999},
        took={"seconds": 2, "nanos": 5000},
        any={"type_url": "t", "value": b"v"},
        wrapped={"value": 7},
        text={"value": ""},
        inners=[{"x": 2}, {}],
        word="w",
        maybe=0,
        by_name={"a": {"x": 3}},
    )
    (row,) = decoded(ValueDecoder(info), (data, None)).rows.to_pylist()
    assert row == {
        **{f"one_{name}": _shown(name) for name in SCALARS},
        **{f"many_{name}": [_shown(name)] * 2 for name in SCALARS},
        "colour": "BLUE",
        "inner": {"x": 1},
        "time": dt.datetime(1969, 12, 31, 23, 59, 59, 1, dt.UTC),
        "took": dt.timedelta(seconds=2, microseconds=5),
        "any": {"type_url": "t", "value": b"v"},
        "wrapped": 7,
        "text": "",
        "inners": [{"x": 2}, {"x": 0}],
        "number": None,
        "word": "w",
        "maybe": 0,
        "by_name": [("a", {"x": 3})],
    }


def test_absent_is_null_only_where_there_is_presence() -> None:
    (row,) = decoded(ValueDecoder(everything()), (b"", None)).rows.to_pylist()
    assert (row["one_int32"], row["one_string"], row["many_int32"], row["by_name"], row["colour"]) == (
        *(0, "", [], [], "RED"),
    )
    absent = ("inner", "time", "took", "any", "wrapped", "text", "number", "word", "maybe")
    assert [row[name] for name in absent] == [None] * len(absent)


def test_symbol_that_is_not_known_is_its_number() -> None:
    info = everything()
    (row,) = decoded(ValueDecoder(info), (message_of(info, colour=7), None)).rows.to_pylist()
    assert row["colour"] == "7"


def test_other_versions_are_read_by_their_numbers() -> None:
    older, newer, other = proto(), proto(), proto()
    for file, root, names in ((older, "M", "a"), (newer, "M", "ab"), (other, "N", "a")):
        message = file.message_type.add(name=root)
        for number, name in enumerate(names, 1):
            message.field.add(name=name, number=number, label=1, type=F.TYPE_INT32)
    decoder = ValueDecoder(info_of(newer))
    decoder.add(0, info_of(older))
    decoder.add(1, info_of(other, "p.N"))
    decoder.add(2, STRING)
    found = decoded(decoder, (b"\x08\x01", 0), (b"\x08\x01\x10\x02\x18\x03", None), (b"\x08\x01", 1), (b"x", 2))
    assert found.rows.to_pylist() == [{"a": 1, "b": 0}, {"a": 1, "b": 2}, None, None]
    assert found.flaws == [
        Flaw(2, "it was written as message p.N, and is read as p.M"),
        Flaw(3, "it was written as STRING, and is read as a message"),
    ]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x08", "it is no message p.M"),
        (b"\x0f", "it is no message p.M"),
        (b"\x4a\x01\xff", "it is no message p.M"),  # text that is not UTF-8
        (b"\xff" * 20, "it is no message p.M"),
        (b"\xa2\x03\x0b\x08" + b"\xff" * 9 + b"\x01", "time: -1 s and 0 ns are no Timestamp"),
    ],
)
def test_payload_that_is_no_message_is_a_flaw(data: bytes, reason: str) -> None:
    """Seconds are bounded by what microseconds can say, and by nothing else."""
    info = everything()
    good = message_of(info, one_int32=5)
    found = decoded(ValueDecoder(info), (good, None), (data, None), (None, None), (good, None))
    if "Timestamp" in reason:
        assert found.flaws == []
        data = message_of(info, time={"seconds": 2**62})
        found = decoded(ValueDecoder(info), (good, None), (data, None), (None, None), (good, None))
        reason = f"time: {2**62} s and 0 ns are no Timestamp"
    assert found.flaws == [Flaw(1, reason)]
    rows = found.rows.to_pylist()
    assert (rows[1], rows[2]) == (None, None)
    assert rows[0] == rows[3]
    assert rows[0]["one_int32"] == 5


def test_proto2_has_presence_and_requires() -> None:
    file = proto(syntax="proto2")
    message = file.message_type.add(name="M")
    message.field.add(name="a", number=1, label=2, type=F.TYPE_INT32)
    message.field.add(name="b", number=2, label=1, type=F.TYPE_STRING, default_value="d")
    found = decoded(ValueDecoder(info_of(file)), (b"\x08\x01", None), (b"", None), (b"\x08\x01\x12\x01\xff", None))
    assert found.rows.to_pylist()[:2] == [{"a": 1, "b": None}, None]
    assert found.flaws[0] == Flaw(1, "a: it is required, and absent")


def test_message_within_itself_is_refused_or_cut() -> None:
    file = proto()
    message = file.message_type.add(name="M")
    message.field.add(name="v", number=1, label=1, type=F.TYPE_INT32)
    message.field.add(name="next", number=2, label=1, type=F.TYPE_MESSAGE, type_name=".p.M")
    info = info_of(file)
    with pytest.raises(RecursiveSchemaError, match=r"next: message p\.M is within itself"):
        ValueDecoder(info)
    data = message_of(info, v=1, next={"v": 2, "next": {"v": 3}})
    found = decoded(ValueDecoder(info, recursive_depth=1), (data, None))
    assert found.rows.to_pylist() == [{"v": 1, "next": {"v": 2, "next": None}}]


def test_message_of_too_many_columns_is_refused() -> None:
    file = proto()
    file.message_type.add(name="M0").field.add(name="x", number=1, label=1, type=F.TYPE_INT32)
    for level in range(1, 30):
        message = file.message_type.add(name=f"M{level}")
        for number in (1, 2):
            message.field.add(
                name=f"x{number}", number=number, label=1, type=F.TYPE_MESSAGE, type_name=f".p.M{level - 1}"
            )
    with pytest.raises(TooManyColumnsError, match="10000 columns"):
        ValueDecoder(info_of(file, "p.M29"))


def test_nested_bomb_is_a_flaw() -> None:
    file = proto()
    message = file.message_type.add(name="M")
    message.field.add(name="next", number=1, label=1, type=F.TYPE_MESSAGE, type_name=".p.M")
    data = b""
    for _ in range(2_000):
        size, head = len(data), b""
        while size > 0x7F:
            head, size = head + bytes([size & 0x7F | 0x80]), size >> 7
        data = b"\x0a" + head + bytes([size]) + data
    found = decoded(ValueDecoder(info_of(file), recursive_depth=1), (b"\x0a\x00", None), (data, None))
    assert found.flaws == [Flaw(1, "it is no message p.M")]
    assert pa.types.is_struct(found.rows.type)
