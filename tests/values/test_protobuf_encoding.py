# SPDX-License-Identifier: Apache-2.0
"""Columns as Protobuf's messages: what was read is written again; rows that no message has are refused."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from broker_core.base.errors import RowError
from broker_core.schemas.info import SchemaInfo
from broker_core.schemas.protobuf_native import root_descriptor
from broker_core.values.decoder import ValueDecoder
from broker_core.values.encoder import ValueEncoder
from broker_core.values.writing import MismatchError
from tests.values.protobuf_infos import F, everything, info_of, message_of, proto


def written(info: SchemaInfo, arrow: pa.DataType, *rows: Any) -> list[Any]:
    """The messages of rows."""
    parse = GetMessageClass(root_descriptor(info.data)).FromString
    found = ValueEncoder(info, column="value").encode(pa.array(rows, arrow)).to_pylist()
    return [None if each is None else parse(each) for each in found]


def columns(**types: pa.DataType) -> pa.DataType:
    return pa.struct(list(types.items()))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"one_int32": -1, "one_uint64": 2**64 - 1, "one_double": 0.1, "many_float": [1.5, -0.0], "one_bytes": b"\xff"},
        {"colour": 2, "many_string": ["", "é"], "number": 0, "maybe": 0, "text": {}, "wrapped": {"value": -7}},
        {"colour": 77, "word": "w", "inner": {}, "inners": [{}, {"x": 1}], "by_name": {"a": {"x": 3}, "": {}}},
        {"time": {"seconds": -1, "nanos": 1000}, "took": {"seconds": -1, "nanos": -5000}, "any": {"type_url": "t"}},
        {"time": {}, "took": {"nanos": -1000}},
    ],
)
def test_messages_that_were_read_are_written_again(fields: dict[str, Any]) -> None:
    """All types, presence, lists and maps; a symbol that is not known stays its number."""
    info = everything()
    data = message_of(info, **fields)
    decoder = ValueDecoder(info)
    found = decoder.decode(pa.array([data, None], pa.binary()), pa.nulls(2, pa.int64()))
    assert not found.flaws
    parse = GetMessageClass(root_descriptor(info.data)).FromString
    again = ValueEncoder(info).encode(found.rows).to_pylist()
    assert (parse(again[0]), again[1]) == (parse(data), None)


def test_columns_widen_and_those_that_are_left_out_are_absent() -> None:
    arrow = columns(one_int64=pa.int8(), one_double=pa.int32(), maybe=pa.int16(), one_uint32=pa.int64())
    row = {"one_int64": -1, "one_double": 2, "maybe": None, "one_uint32": 2**32 - 1}
    (message,) = written(everything(), arrow, row)
    assert (message.one_int64, message.one_double, message.one_uint32) == (-1, 2.0, 2**32 - 1)
    assert not message.HasField("maybe")
    data = message.SerializeToString()
    assert ValueEncoder(everything()).encode(pa.array([data])).to_pylist() == [data]


@pytest.mark.parametrize(
    ("arrow", "row", "told"),
    [
        (columns(one_int32=pa.int32()), {"one_int32": None}, "value.one_int32 is null, which its schema does not have"),
        (columns(one_uint32=pa.int64()), {"one_uint32": -1}, "value.one_uint32 is out of the range of its type"),
        (columns(many_uint32=pa.list_(pa.int64())), {"many_uint32": [1, 2**32]}, "value.many_uint32[] is out of the"),
        (columns(many_int32=pa.list_(pa.int32())), {"many_int32": [None]}, "value.many_int32[] is null"),
        (columns(inners=pa.list_(columns(x=pa.int32()))), {"inners": None}, "value.inners is null"),
        (columns(inners=pa.list_(columns(x=pa.int32()))), {"inners": [None]}, "value.inners[] is null"),
        (columns(colour=pa.string()), {"colour": "GREEN"}, "value.colour is no symbol of enum p.Colour"),
        (columns(number=pa.int32(), word=pa.string()), {"number": 1, "word": "w"},
         "value.number and word are not null, and a message has one of them"),
    ],
)  # fmt: skip
def test_row_that_is_no_message_is_refused_by_its_number(arrow: pa.DataType, row: dict[str, Any], told: str) -> None:
    with pytest.raises(RowError) as refused:
        written(everything(), arrow, None, row)
    assert (refused.value.row, str(refused.value).startswith(f"row 1 cannot be written: {told}")) == (1, True)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("time", pa.array([0, 253_402_300_800_000_000], pa.timestamp("us", "UTC"))),
        ("word", pa.Array.from_buffers(pa.string(), 2, pa.array([b"w", b"\xff"], pa.binary()).buffers())),
    ],
)
def test_row_that_protobuf_cannot_have_is_refused_by_its_number(name: str, column: pa.Array) -> None:
    """A year of five digits, text of any bytes: Spark has both."""
    with pytest.raises(RowError, match="row 1 cannot be written: it has a time that Protobuf does not have, or text"):
        ValueEncoder(everything()).encode(pa.StructArray.from_arrays([column], names=[name]))


@pytest.mark.parametrize(
    ("arrow", "told"),
    [
        (columns(one_int23=pa.int32()), 'column value.one_int23 is none of message p.M; did you mean "one_int32"'),
        (columns(one_int32=pa.int64()), "column value.one_int32 is int64, which does not fit its schema, a field of"),
        (columns(inner=columns(x=pa.string())), "column value.inner.x is string, which does not fit"),
        (columns(many_int32=pa.int32()), "column value.many_int32 is int32, which does not fit its schema, a repeated"),
        (columns(time=pa.timestamp("us")), "column value.time is timestamp[us], which does not fit its schema"),
        (columns(by_name=pa.map_(pa.int32(), columns())), "column value.by_name is int32, which does not fit"),
        (pa.int32(), "column value is int32, which does not fit its schema, message p.M"),
    ],
)  # fmt: skip
def test_columns_that_fit_no_message_are_refused_before_one(arrow: pa.DataType, told: str) -> None:
    with pytest.raises(MismatchError) as refused:
        ValueEncoder(everything(), column="value").check(arrow)
    assert str(refused.value).startswith(told)


def test_required_fields_have_to_be_there() -> None:
    file = proto(syntax="proto2")
    file.message_type.add(name="M").field.add(name="a", number=1, label=2, type=F.TYPE_INT32)
    file.message_type[0].field.add(name="b", number=2, label=1, type=F.TYPE_INT32)
    with pytest.raises(MismatchError, match=r"there is no column value\.a, which is required"):
        ValueEncoder(info_of(file), column="value").check(columns(b=pa.int32()))
    with pytest.raises(RowError, match="row 0 cannot be written: a is required, and absent"):
        written(info_of(file), columns(a=pa.int32()), {"a": None})
    assert written(info_of(file), columns(a=pa.int32()), {"a": 1})[0].a == 1


def test_times_are_cut_as_protobuf_has_them() -> None:
    """Seconds and nanoseconds of a duration have one sign."""
    arrow = columns(took=pa.duration("us"), time=pa.timestamp("us", "UTC"))
    row = {"took": dt.timedelta(microseconds=-1), "time": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC)}
    (message,) = written(everything(), arrow, row)
    assert (message.took.seconds, message.took.nanos) == (0, -1000)
    assert (message.time.seconds, message.time.nanos) == (-1, 999_999_000)
