# SPDX-License-Identifier: Apache-2.0
"""Payloads of columns: readers of ours and of others find the rows in them; rows that no schema has are refused."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from broker_core.base.errors import RowError
from broker_core.schemas.avro.parsing import SchemaParseError, parse
from broker_core.schemas.definition import InvalidSchemaError
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.values.decoder import ValueDecoder
from broker_core.values.derived import InexpressibleError, Kind, primitive_of, schema_of
from broker_core.values.encoder import ValueEncoder
from broker_core.values.targets import RecursiveSchemaError, TooManyColumnsError
from broker_core.values.writing import MismatchError
from tests.schemas.definitions import definitions
from tests.schemas.infos import key_value
from tests.schemas.notation import definition
from tests.values.arrow_types import rows_of, structs, types
from tests.values.data import data_of

AVRO, JSON = SchemaType.AVRO, SchemaType.JSON
UTC = pa.timestamp("us", "UTC")
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
NEW_YEAR = dt.datetime(2000, 1, 1, 0, 0, 1, tzinfo=dt.UTC).replace(tzinfo=None)


def info(text: str, kind: SchemaType = AVRO) -> SchemaInfo:
    """A schema in the notation of the tests."""
    return SchemaInfo(kind, definition(text).encode())


def encoded(schema: SchemaInfo, rows: list[Any], arrow: pa.DataType) -> list[bytes | None]:
    """The payloads of ``rows``."""
    found: list[bytes | None] = ValueEncoder(schema).encode(pa.array(rows, arrow)).to_pylist()
    return found


def decoded(schema: SchemaInfo, payloads: pa.Array, keys: pa.Array | None = None) -> pa.Array:
    """The rows in ``payloads``, which are sound."""
    found = ValueDecoder(schema).decode(payloads, pa.nulls(len(payloads), pa.int64()), keys)
    assert not found.flaws
    return found.rows


# -- what is written is read


def as_peers_show(arrow: pa.DataType, value: Any) -> Any:
    """A value of a column as fastavro shows it: maps are dicts."""
    if value is None:
        return None
    if pa.types.is_struct(arrow):
        return {each.name: as_peers_show(each.type, value[each.name]) for each in arrow}
    if pa.types.is_map(arrow):
        return {key: as_peers_show(arrow.item_type, each) for key, each in value}
    return [as_peers_show(arrow.value_type, each) for each in value] if pa.types.is_list(arrow) else value


def by_fastavro(schema: SchemaInfo, payload: bytes) -> Any:
    source = io.BytesIO(payload)
    shown = fastavro.schemaless_reader(source, json.loads(schema.data), None)
    assert not source.read()
    return shown


@given(structs() | types(), st.data())
@settings(max_examples=400)
def test_avro_of_columns_is_read_by_us_and_by_fastavro(arrow: pa.DataType, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.none() | rows_of(arrow), max_size=4))
    schema = schema_of(arrow, kind="avro", name="R")
    payloads = ValueEncoder(schema).encode(pa.array(rows, arrow))
    payloads.validate(full=True)
    assert decoded(schema, payloads).to_pylist() == rows
    shown = [None if each is None else by_fastavro(schema, each) for each in payloads.to_pylist()]
    assert shown == [as_peers_show(arrow, each) for each in rows]


@given(structs(), st.data())
@settings(max_examples=400)
def test_json_of_columns_is_read(arrow: pa.DataType, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.none() | rows_of(arrow), max_size=4))
    schema = schema_of(arrow, kind="json", name="R")
    payloads = ValueEncoder(schema).encode(pa.array(rows, arrow))
    assert decoded(schema, payloads).to_pylist() == rows
    for payload in payloads.to_pylist():
        assert payload is None or list(json.loads(payload)) == [each.name for each in arrow]


@pytest.mark.parametrize("kind", ["avro", "json"])
@given(arrow=structs(), data=st.data())
@settings(max_examples=100)
def test_a_part_of_an_array_is_written_like_all_of_it(kind: Kind, arrow: pa.DataType, data: st.DataObject) -> None:
    """Arrow's arrays share memory with those that they are a part of."""
    rows = pa.array(data.draw(st.lists(st.none() | rows_of(arrow), min_size=3, max_size=6)), arrow)
    encoder = ValueEncoder(schema_of(arrow, kind=kind, name="R"))
    assert encoder.encode(rows[1:-1]).to_pylist() == encoder.encode(rows).to_pylist()[1:-1]
    cut = encoder.encode(rows[:0])
    assert (cut.type, cut.to_pylist()) == (pa.binary(), [])


def test_rows_that_take_more_room_than_it_seems_are_written() -> None:
    """Escapes of JSON are six times as long as their characters, and come in every row."""
    arrow = pa.struct([("a", pa.string()), ("b", pa.list_(pa.int64()))])
    rows = [{"a": "\x01" * 1000, "b": [-(2**63)] * 100}] * 100
    for kind in ("avro", "json"):
        schema = schema_of(arrow, kind=kind, name="R")
        assert decoded(schema, ValueEncoder(schema).encode(pa.array(rows, arrow))).to_pylist() == rows


def test_json_is_what_java_reads() -> None:
    """Bytes are base64, numbers that JSON does not have are texts, a null stands there."""
    arrow = pa.struct(
        [("a", pa.binary()), ("b", pa.float64()), ("c", pa.float32()), ("d", pa.bool_()), ("e", pa.int64())]
    )
    schema = schema_of(arrow, kind="json", name="R")
    rows = [
        {"a": b"\xff\x00", "b": float("inf"), "c": 0.1, "d": True, "e": -(2**63)},
        {"a": b"", "b": float("-inf"), "c": float("nan"), "d": False, "e": 2**63 - 1},
        {"a": b"abc", "b": 1e300, "c": 1.0, "d": None, "e": None},
    ]
    assert encoded(schema, rows, arrow) == [
        b'{"a":"/wA=","b":"Infinity","c":0.1,"d":true,"e":-9223372036854775808}',
        b'{"a":"","b":"-Infinity","c":"NaN","d":false,"e":9223372036854775807}',
        b'{"a":"YWJj","b":1e+300,"c":1,"d":null,"e":null}',
    ]


@given(st.lists(st.text(), max_size=3))
def test_text_of_json_is_escaped_as_json_wants(texts: list[str]) -> None:
    arrow = pa.struct([pa.field("a", pa.string())])
    found = encoded(schema_of(arrow, kind="json", name="R"), [{"a": each} for each in texts], arrow)
    assert [json.loads(each or b"")["a"] for each in found] == texts


# -- schemas that are there


def columns(**types: pa.DataType) -> pa.DataType:
    return pa.struct(list(types.items()))


WIDENED = [
    ("{a:long}", columns(a=pa.int8()), {"a": -3}, {"a": -3}),
    ("{a:int}", columns(a=pa.int16()), {"a": -3}, {"a": -3}),
    ("{a:double}", columns(a=pa.int32()), {"a": 7}, {"a": 7.0}),
    ("{a:double}", columns(a=pa.float32()), {"a": 0.5}, {"a": 0.5}),
    ("{a:float}", columns(a=pa.int16()), {"a": 7}, {"a": 7.0}),
    ("{b:string, a:int}", columns(a=pa.int32(), b=pa.string()), {"a": 1, "b": "x"}, {"b": "x", "a": 1}),
    ('{a:int, b:string="x", c:array<int>=[1]}', columns(a=pa.int32()), {"a": 1}, {"a": 1, "b": "x", "c": [1]}),
    ('{a:int, b:X{x:int=7, y:?int=null}={"x": 8}}', columns(a=pa.int32()), {"a": 1},
     {"a": 1, "b": {"x": 8, "y": None}}),
    ('{a:int, b:map<bytes>={"k": "x"}, c:[string | null]="y", d:enum<A,B>="B"}', columns(a=pa.int32()), {"a": 1},
     {"a": 1, "b": [("k", b"x")], "c": "y", "d": "B"}),
    ('{a:int, b:bytes decimal(4,2)="\\u0001\\u0000"}', columns(a=pa.int32()), {"a": 1},
     {"a": 1, "b": Decimal("2.56")}),
    ("{a:int, b:?string}", columns(a=pa.int32()), {"a": 1}, {"a": 1, "b": None}),
    ('{a:int, b:bytes="\u00ff"}', columns(a=pa.int32()), {"a": 1}, {"a": 1, "b": b"\xff"}),
    ("{a:X{x:int, y:?int=null}}", columns(a=columns(x=pa.int32())), {"a": {"x": 1}}, {"a": {"x": 1, "y": None}}),
    ("{a:enum<A,B>}", columns(a=pa.string()), {"a": "B"}, {"a": "B"}),
    ("{a:[string | null]}", columns(a=pa.string()), {"a": None}, {"a": None}),
    ("{a:?enum<A,B>}", columns(a=pa.string()), {"a": "B"}, {"a": "B"}),
    ("{a:fixed(2)}", columns(a=pa.binary()), {"a": b"ab"}, {"a": b"ab"}),
    ("{a:bytes decimal(9,3)}", columns(a=pa.decimal128(5, 2)), {"a": Decimal("-1.25")}, {"a": Decimal("-1.250")}),
    ("{a:long timestamp-millis}", columns(a=UTC),
     {"a": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC)},
     {"a": dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, dt.UTC)}),
    ("{a:int time-millis}", columns(a=pa.int64()), {"a": 1_234_567}, {"a": 1_234_000}),
    ("{a:long time-micros}", columns(a=pa.time64("us")), {"a": dt.time(0, 0, 1)}, {"a": 1_000_000}),
    ("{a:?int}", columns(a=pa.dictionary(pa.int32(), pa.int32())), {"a": 5}, {"a": 5}),
    ("{v:int, next:?R}", columns(v=pa.int32()), {"v": 1}, None),
    ("{a:array<string>}", columns(a=pa.large_list(pa.large_string())), {"a": ["x"]}, {"a": ["x"]}),
]  # fmt: skip


@pytest.mark.parametrize("kind", [AVRO, JSON])
@pytest.mark.parametrize(("schema", "arrow", "row", "shown"), WIDENED)
def test_columns_fit_a_schema_that_is_wider(
    kind: SchemaType, schema: str, arrow: pa.DataType, row: dict[str, Any], shown: dict[str, Any] | None
) -> None:
    """Types widen, fields are found by their names, those without a column have their default, or are null."""
    payloads = ValueEncoder(info(schema, kind)).encode(pa.array([row], arrow))
    if shown is not None:
        assert decoded(info(schema, kind), payloads).to_pylist() == [shown]


def test_members_of_a_union_are_written_as_they_are_read() -> None:
    schema = info("{a:[null | int | string | X{x:int}]}")
    arrow = columns(a=columns(member0=pa.int32(), member1=pa.string(), member2=columns(x=pa.int32())))
    nothing = dict.fromkeys(("member0", "member1", "member2"))
    rows = [{"a": nothing | each} for each in ({"member0": 1}, {"member1": "x"}, {"member2": {"x": 2}})]
    payloads = ValueEncoder(schema).encode(pa.array([*rows, {"a": None}], arrow))
    assert payloads.to_pylist() == [b"\x02\x02", b"\x04\x02x", b"\x06\x04", b"\0"]
    assert decoded(schema, payloads).to_pylist() == [*rows, {"a": None}]
    for row, flaw in ((nothing, "has no member"), (nothing | {"member0": 1, "member1": "x"}, "has several members")):
        with pytest.raises(RowError, match=f"row 0 cannot be written: a {flaw}"):
            encoded(schema, [{"a": row}], arrow)


def test_column_goes_to_the_branch_of_its_own_type() -> None:
    schema = info("{a:[null | int | long | string]}")
    for arrow, value, payload in (
        (pa.int64(), 1, b"\x04\x02"),
        (pa.int8(), 1, b"\x02\x02"),
        (pa.string(), "x", b"\x06\x02x"),
    ):
        assert encoded(schema, [{"a": value}], columns(a=arrow)) == [payload]


def test_odd_logical_types_are_written() -> None:
    schema = info(
        '{"type": "record", "name": "R", "fields": ['
        '{"name": "u", "type": {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}},'
        '{"name": "d", "type": {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}},'
        '{"name": "p", "type": {"type": "fixed", "name": "P", "size": 20, "logicalType": "decimal", "precision": 9, '
        '"scale": 1}}]}'
    )
    arrow = columns(
        u=pa.string(), d=columns(months=pa.int64(), days=pa.int64(), millis=pa.int64()), p=pa.decimal128(9, 1)
    )
    row = {"u": str(uuid.UUID(int=7)), "d": {"months": 1, "days": 2, "millis": 3}, "p": Decimal("-0.5")}
    payloads = ValueEncoder(schema).encode(pa.array([row], arrow))
    assert payloads.to_pylist() == [uuid.UUID(int=7).bytes + b"\1\0\0\0\2\0\0\0\3\0\0\0" + b"\xff" * 19 + b"\xfb"]
    assert decoded(schema, payloads).to_pylist() == [row]
    for wrong in ({"u": "7"}, {"d": {"months": -1, "days": 2, "millis": 3}}):
        with pytest.raises(RowError, match=f"cannot be written: {next(iter(wrong))} (is no UUID|has months)"):
            encoded(schema, [row | wrong], arrow)


@pytest.mark.parametrize(
    ("schema", "arrow", "flaw"),
    [
        ("{a:int}", columns(a=pa.int64()), "column a is int64, which does not fit its schema, int"),
        ("{a:int}", columns(a=pa.int32(), c=pa.int32()), "column c is none of record R; its fields are a; drop"),
        ("{cost:int}", columns(cots=pa.int32()), 'column cots is none of record R; did you mean "cost"'),
        ("{a:int, b:int}", columns(a=pa.int32()), "there is no column b, and the schema has no default for it"),
        ("{a:X{x:array<int>}}", columns(a=columns(x=pa.list_(pa.string()))), "column a.x[] is string, which"),
        ("{a:map<int>}", columns(a=pa.map_(pa.string(), pa.string())), "column a{} is string, which does not fit its"),
        ("{a:?long timestamp-millis}", columns(a=pa.int64()), "column a is int64, which does not fit its schema, long"),
        ("{a:bytes decimal(4,1)}", columns(a=pa.decimal128(5, 2)), "column a is decimal128"),
        ("{a:?string}", columns(a=pa.binary()), "column a is binary, which does not fit its schema, string"),
        ("{a:[int | string]}", columns(a=pa.bool_()), "column a is bool, which does not fit its schema, int or"),
        ("{a:int}", pa.int32(), "the value is int32, which does not fit its schema, record R"),
        ('{a:int, b:int="x"}', columns(a=pa.int32()), "there is no column b, and its default in the schema does not"),
    ],
)  # fmt: skip
def test_columns_that_fit_no_row_are_refused_before_one(schema: str, arrow: pa.DataType, flaw: str) -> None:
    for kind in (AVRO, JSON):
        with pytest.raises(MismatchError) as refused:
            ValueEncoder(info(schema, kind)).check(arrow)
        assert str(refused.value).startswith(flaw)


@pytest.mark.parametrize(
    ("schema", "arrow", "row", "flaw"),
    [
        ("{a:int}", columns(a=pa.int32()), {"a": None}, "a is null, which its schema does not have"),
        ("{a:X{x:array<int>}}", columns(a=columns(x=pa.list_(pa.int32()))), {"a": {"x": [1, None]}}, "a.x[] is null,"),
        ("{a:X{x:int}}", columns(a=columns(x=pa.int32())), {"a": None}, "a is null,"),
        ("{a:enum<A,B>}", columns(a=pa.string()), {"a": "C"}, "a is no symbol of enum E, which has A, B"),
        ("{a:?fixed(2)}", columns(a=pa.binary()), {"a": b"abc"}, "a has not the 2 bytes of its schema"),
        ("{a:int time-millis}", columns(a=pa.int64()), {"a": 2**62}, "a is no time of a day in millis"),
        ("{a:long timestamp-nanos}", columns(a=UTC),
         {"a": dt.datetime(9999, 1, 1, tzinfo=dt.UTC)}, "a is a time that nanos do not reach"),
    ],
)  # fmt: skip
def test_row_that_is_none_of_the_schema_is_refused_by_its_number(
    schema: str, arrow: pa.DataType, row: dict[str, Any], flaw: str
) -> None:
    for kind in (AVRO, JSON):
        with pytest.raises(RowError) as refused:
            encoded(info(schema, kind), [None, row], arrow)
        assert (refused.value.row, str(refused.value).startswith(f"row 1 cannot be written: {flaw}")) == (1, True)


@pytest.mark.parametrize(
    ("made", "flaw"),
    [
        (lambda text: text, "a is not UTF-8, and JSON has no other text"),
        (lambda text: pa.MapArray.from_arrays([0, 1, 2, 3], text, text), r"a has a key that is not UTF-8"),
    ],
)
def test_text_that_is_none_is_refused_by_json(made: Callable[[pa.Array], pa.Array], flaw: str) -> None:
    """Spark makes strings of any bytes; Avro has them as they are."""
    data = pa.array([b"b", b"c\xff", b"d"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 3, data.buffers())
    rows = pa.StructArray.from_arrays([made(text)], names=["a"])
    with pytest.raises(RowError, match=f"row 1 cannot be written: {flaw}"):
        ValueEncoder(schema_of(rows.type, kind="json", name="R")).encode(rows)
    assert b"c\xff" in ValueEncoder(schema_of(rows.type, kind="avro", name="R")).encode(rows)[1].as_py()


@pytest.mark.parametrize("kind", [AVRO, JSON])
def test_text_that_is_none_is_no_uuid(kind: SchemaType) -> None:
    of_uuids = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": of_uuids}]})
    text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers())
    with pytest.raises(RowError, match="row 0 cannot be written: a is no UUID"):
        ValueEncoder(info(schema, kind)).encode(pa.StructArray.from_arrays([text], names=["a"]))


def test_json_does_not_say_which_member_of_a_union_a_value_is() -> None:
    arrow = columns(a=columns(member0=pa.int32(), member1=pa.string()))
    with pytest.raises(MismatchError, match="column a is a union of several types, and JSON does not say which"):
        ValueEncoder(info("{a:[int | string]}", JSON)).check(arrow)


def test_flaw_below_a_null_is_none() -> None:
    """A part of a struct that is null may hold anything."""
    below = pa.StructArray.from_arrays([pa.array(["C"])], fields=[pa.field("e", pa.string())], mask=pa.array([True]))
    rows = pa.StructArray.from_arrays([below], names=["a"])
    assert ValueEncoder(info("{a:?X{e:enum<A,B>}}")).encode(rows).to_pylist() == [b"\0"]


# -- primitives, keys and values


@pytest.mark.parametrize(
    ("kind", "arrow", "value", "payload"),
    [
        ("BOOLEAN", pa.bool_(), True, "01"),
        ("INT8", pa.int8(), -2, "fe"),
        ("INT16", pa.int16(), 258, "0102"),
        ("INT32", pa.int32(), -1, "ffffffff"),
        ("INT64", pa.int64(), 1, "0000000000000001"),
        ("INT64", pa.int16(), 1, "0000000000000001"),
        ("FLOAT", pa.float32(), 1.5, "3fc00000"),
        ("DOUBLE", pa.float64(), -2.5, "c004000000000000"),
        ("DOUBLE", pa.int32(), 1, "3ff0000000000000"),
        ("STRING", pa.string(), "é", "c3a9"),
        ("BYTES", pa.binary(), b"\x07", "07"),
        ("DATE", UTC, dt.datetime(1970, 1, 2, tzinfo=dt.UTC), "0000000005265c00"),
        ("TIME", pa.int64(), 1_000_000_000, "00000000000003e8"),
        ("TIMESTAMP", UTC, EPOCH + dt.timedelta(milliseconds=1700000000123), "0000018bcfe5687b"),
        ("INSTANT", UTC, dt.datetime(1970, 1, 1, 0, 0, 1, 5, dt.UTC), "000000000000000100001388"),
        ("INSTANT", UTC, EPOCH - dt.timedelta(microseconds=1), "ffffffffffffffff3b9ac618"),
        ("LOCAL_DATE", pa.date32(), dt.date(2000, 1, 1), "0000000000002acd"),
        ("LOCAL_TIME", pa.time64("us"), dt.time(0, 0, 1), "000000003b9aca00"),
        ("LOCAL_TIME", pa.int64(), 1_000_000_000, "000000003b9aca00"),
        ("LOCAL_DATE_TIME", pa.timestamp("us"), NEW_YEAR, "0000000000002acd000000003b9aca00"),
    ],
)  # fmt: skip
def test_primitive_values_are_big_endian(kind: str, arrow: pa.DataType, value: Any, payload: str) -> None:
    schema = SchemaInfo(SchemaType[kind])
    payloads = ValueEncoder(schema).encode(pa.array([None, value, None, value], arrow)[1:])
    assert payloads.to_pylist() == [bytes.fromhex(payload), None, bytes.fromhex(payload)]
    if arrow not in (pa.time64("us"), pa.int16(), pa.int32()) or kind in ("INT16", "INT32"):
        assert decoded(schema, payloads).to_pylist() == [value, None, value]


@pytest.mark.parametrize("kind", ["TIME", "LOCAL_TIME"])
@pytest.mark.parametrize("nanos", [-1, 86_400_000_000_000])
def test_time_of_no_day_is_refused_in_its_row(kind: str, nanos: int) -> None:
    """No client could read it, or as another time."""
    with pytest.raises(RowError, match=f"row 1 cannot be written: the value is {nanos}, which is no nanosecond"):
        ValueEncoder(SchemaInfo(SchemaType[kind])).encode(pa.array([None, nanos, 1]))


def test_bytes_of_types_that_are_not_encoded_pass_as_they_are() -> None:
    """Messages of Protobuf, and what an external registry knows."""
    for kind in ("PROTOBUF", "EXTERNAL", "NONE"):
        assert encoded(SchemaInfo(SchemaType[kind]), [b"\xff", None], pa.binary()) == [b"\xff", None]
    with pytest.raises(MismatchError, match="not written as PROTOBUF; give the bytes of messages"):
        encoded(SchemaInfo(SchemaType.PROTOBUF), [{"a": 1}], columns(a=pa.int32()))


def test_text_has_the_charset_of_its_schema() -> None:
    """Java's producers may have brought another one than UTF-8; readers take every value for it."""
    latin, klingon = (SchemaInfo(SchemaType.STRING, b"", {"__charset": each}) for each in ("ISO-8859-1", "klingon"))
    rows = pa.array([None, "é", "€"])
    assert ValueEncoder(latin).encode(rows[:2]).to_pylist() == [None, b"\xe9"]
    with pytest.raises(RowError, match="row 2 cannot be written: the value is no text in iso8859-1"):
        ValueEncoder(latin).encode(rows)
    with pytest.raises(MismatchError, match="the value is to be text in 'klingon', which is no charset"):
        ValueEncoder(klingon).check(pa.string())


def test_primitive_type_takes_no_wider_column() -> None:
    with pytest.raises(MismatchError, match="the value is int64, which is not written as INT32; cast it"):
        encoded(SchemaInfo(SchemaType.INT32), [1], pa.int64())


PAIR = columns(key=pa.string(), value=columns(a=pa.int32()))


def test_pair_is_one_payload_or_a_key_and_a_value() -> None:
    """Either part may be null, and so may be both."""
    strings = SchemaInfo(SchemaType.STRING)
    inline = key_value(strings, info("{a:int}"))
    row = {"key": "k", "value": {"a": 1}}
    rows = pa.array([row, row | {"value": None}, row | {"key": None}, None], PAIR)
    written = ValueEncoder(inline).encode(rows)
    one, two, nothing = b"\0\0\0\1k", b"\0\0\0\1\x02", b"\xff\xff\xff\xff"
    assert written.to_pylist() == [one + two, one + nothing, nothing + two, None]
    assert decoded(inline, written).to_pylist() == rows.to_pylist()
    separated = ValueEncoder(key_value(strings, info("{a:int}"), "SEPARATED"))
    assert (separated.has_keys, ValueEncoder(inline).has_keys) == (True, False)
    assert separated.encode(rows).to_pylist() == [b"\x02", None, b"\x02", None]
    assert separated.encode_keys(rows).to_pylist() == [b"k", b"k", None, None]
    assert decoded(separated.info, separated.encode(rows), separated.encode_keys(rows)).to_pylist()[0] == row


def test_flaw_of_a_pair_says_which_part_has_it() -> None:
    encoder = ValueEncoder(key_value(SchemaInfo(SchemaType.STRING), info("{a:int}")))
    with pytest.raises(RowError, match=r"row 0 cannot be written: value\.a is null"):
        encoder.encode(pa.array([{"key": "k", "value": {"a": None}}], PAIR))
    with pytest.raises(MismatchError, match="column key is int32, which is not written as STRING"):
        encoder.check(columns(key=pa.int32(), value=PAIR.field("value").type))
    with pytest.raises(MismatchError, match="its schema has a key and a value"):
        encoder.check(pa.string())


# -- schemas that are made


def test_schema_has_what_the_columns_say() -> None:
    """S-9.4: null first, with a default; records are named by the way to them."""
    arrow = pa.struct(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("at", UTC),
            pa.field("a", pa.list_(pa.struct([pa.field("b", pa.int8(), nullable=False)])), nullable=False),
            pa.field("a_b", pa.struct([]), nullable=False),
        ]
    )
    made = schema_of(arrow, kind="json", name="9 lives", namespace="a.b")
    assert made.type is JSON
    item = {"type": "record", "name": "_9_lives_a", "namespace": "a.b", "fields": [{"name": "b", "type": "int"}]}
    assert json.loads(made.data) == {
        "type": "record",
        "name": "_9_lives",
        "namespace": "a.b",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
            {"name": "a", "type": {"type": "array", "items": ["null", item]}},
            {"name": "a_b", "type": {"type": "record", "name": "_9_lives_a_b", "namespace": "a.b", "fields": []}},
        ],
    }


def test_two_ways_to_one_name_have_two_names() -> None:
    arrow = columns(a=columns(b_c=columns()), a_b=columns(c=columns()))
    made = schema_of(arrow, kind="avro", name="R").data.decode()
    assert '"R_a_b_c"' in made
    assert '"R_a_b_c_2"' in made
    ValueEncoder(SchemaInfo(AVRO, made.encode())).check(arrow)


@pytest.mark.parametrize(
    ("arrow", "flaw"),
    [
        (columns(a=columns(b=pa.duration("us"))), "column a.b is duration[us], and Avro has no such type; cast it"),
        (columns(a=pa.null()), "column a is null, and Avro has no such type"),
        (columns(a=pa.list_(pa.month_day_nano_interval())), "column a[] is month_day_nano_interval, and"),
        (columns(a=pa.map_(pa.int32(), pa.int32())), "column a is map<int32, int32>, and keys of Avro's maps"),
        (columns(a=pa.decimal128(5, 7)), "column a is decimal128(5, 7), and Avro's decimals have a scale"),
        (columns(**{"a b": pa.int32()}), "column a b has a name that no field of a record can have"),
        (columns(a=columns(größe=pa.int32())), "column a.größe has a name that"),
        (pa.struct([("a", pa.int32()), ("a", pa.int32())]), "there are several columns a; drop or rename"),
    ],
)  # fmt: skip
def test_column_that_no_schema_has_is_refused_by_its_path(arrow: pa.DataType, flaw: str) -> None:
    with pytest.raises(InexpressibleError) as refused:
        schema_of(arrow, kind="avro", name="R")
    assert str(refused.value).startswith(flaw)


def test_namespace_that_is_none_is_refused() -> None:
    with pytest.raises(InexpressibleError, match=r"namespace 'a\.\.b' cannot be that of a record"):
        schema_of(columns(a=pa.int32()), kind="avro", name="R", namespace="a..b")


def test_primitive_schema_of_a_column_loses_nothing() -> None:
    made = {
        pa.int16(): "INT16",
        pa.string(): "STRING",
        pa.binary(): "BYTES",
        UTC: "INSTANT",
        pa.timestamp("us"): "LOCAL_DATE_TIME",
        pa.date32(): "LOCAL_DATE",
        pa.time64("us"): "LOCAL_TIME",
    }
    assert {arrow: primitive_of(arrow).type.name for arrow in made} == made
    with pytest.raises(InexpressibleError, match="the value is struct<>, and no primitive schema has such values"):
        primitive_of(columns())


# -- copies


@given(definitions(), st.data())
@settings(max_examples=500)
def test_columns_that_were_read_are_written_again(made: Any, data: st.DataObject) -> None:
    """Rows of any schema are written with it again, as in a copy of a topic, and mean the same."""
    try:
        schema = SchemaInfo(AVRO, json.dumps(made).encode())
        parsed = parse(schema.data)
        decoder = ValueDecoder(schema)
        ValueEncoder(schema).check(decoder.arrow)
    except (SchemaParseError, InvalidSchemaError, RecursiveSchemaError, TooManyColumnsError, MismatchError):
        assume(False)
    payloads = [each.data for each in data.draw(st.lists(data_of(parsed), min_size=1, max_size=4))]
    rows = decoded(schema, pa.array(payloads, pa.binary()))
    again = ValueEncoder(schema).encode(rows)
    assert decoded(schema, again).to_pylist() == rows.to_pylist()
    as_json = SchemaInfo(JSON, schema.data)
    with contextlib.suppress(MismatchError):
        assert decoded(as_json, ValueEncoder(as_json).encode(rows)).to_pylist() == rows.to_pylist()
