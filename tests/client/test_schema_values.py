# SPDX-License-Identifier: Apache-2.0
"""Values of schemas, without a broker: what is encoded is decoded, by any version, and nothing else is."""

from __future__ import annotations

import io
import json
import math
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, cast

import fastavro
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from broker_core.base.errors import UnreadableValueError, UsageError
from broker_core.client.schemas import (
    AutoConsumeSchema,
    AvroSchema,
    BooleanSchema,
    BytesSchema,
    DateSchema,
    Digits,
    Double,
    DoubleSchema,
    Float32,
    FloatSchema,
    InstantSchema,
    Int8Schema,
    Int16Schema,
    Int32Schema,
    Int64Schema,
    JsonSchema,
    KeyValue,
    KeyValueSchema,
    LocalDateSchema,
    LocalDateTimeSchema,
    LocalTimeSchema,
    Record,
    Schema,
    StringSchema,
    TimeSchema,
    TimestampSchema,
)
from broker_core.client.schemas.avro_reading import avro_reader
from broker_core.client.schemas.avro_writing import avro_writer
from broker_core.client.schemas.json_values import json_reader, json_writer
from broker_core.client.schemas.misfit import Misfit
from broker_core.schemas.avro.parsing import SchemaParseError, parse
from broker_core.schemas.avro.resolving import conflicts
from broker_core.schemas.avro.types import Array, AvroType, Map, Union, parts
from broker_core.schemas.avro.types import Record as RecordType
from broker_core.schemas.info import SchemaInfo, SchemaType
from tests.client.schema_records import FULL_ORDER, Address, Colour, Node, Order
from tests.schemas.definitions import definitions, pairs
from tests.schemas.notation import definition
from tests.values.data import data_of


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


def local(*parts: int) -> datetime:
    return datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001 - a local time


PRIMITIVES: list[tuple[Schema[Any], Any, str]] = [
    (BooleanSchema(), True, "01"),
    (Int8Schema(), -2, "fe"),
    (Int16Schema(), 258, "0102"),
    (Int32Schema(), -1, "ffffffff"),
    (Int64Schema(), 1, "0000000000000001"),
    (FloatSchema(), 1.5, "3fc00000"),
    (DoubleSchema(), -2.5, "c004000000000000"),
    (StringSchema(), "é", "c3a9"),
    (BytesSchema(), b"\0\xff", "00ff"),
    (DateSchema(), at(1970, 1, 2), "0000000005265c00"),
    (TimeSchema(), time(0, 0, 1), "00000000000003e8"),
    (TimestampSchema(), at(2023, 11, 14, 22, 13, 20, 123000), "0000018bcfe5687b"),
    (InstantSchema(), at(1970, 1, 1, 0, 0, 1, 5), "000000000000000100001388"),
    (InstantSchema(), at(1969, 12, 31, 23, 59, 59, 1), "ffffffffffffffff000003e8"),
    (LocalDateSchema(), date(2000, 1, 1), "0000000000002acd"),
    (LocalTimeSchema(), time(0, 0, 1), "000000003b9aca00"),
    (LocalDateTimeSchema(), local(2000, 1, 1, 0, 0, 1), "0000000000002acd000000003b9aca00"),
    (LocalDateTimeSchema(), local(1969, 12, 31, 23, 59, 59), "ffffffffffffffff00004e9455b43600"),
]


@pytest.mark.parametrize(("schema", "value", "data"), PRIMITIVES, ids=lambda each: str(each))
def test_primitive_has_the_bytes_of_java(schema: Schema[Any], value: Any, data: str) -> None:
    assert schema.encode(value).hex() == data
    assert schema.decode(bytes.fromhex(data)) == value
    assert schema.outgoing(None).payload is None
    if schema.info.type not in (SchemaType.STRING, SchemaType.BYTES):
        for wrong in (b"", bytes.fromhex(data) + b"\0"):
            with pytest.raises(UnreadableValueError, match=r"it has \d+ bytes, and a"):
                schema.decode(wrong)


def test_bytes_of_other_clients_are_read() -> None:
    """Truth in another form than 1, nanoseconds, days before 1970 in a TIME, and another character set."""
    assert BooleanSchema().decode(b"\x80") is True
    assert InstantSchema().decode(bytes(8) + (1999).to_bytes(4, "big")) == at(1970, 1, 1, 0, 0, 0, 1)
    assert TimeSchema().decode((-1000).to_bytes(8, "big", signed=True)) == time(23, 59, 59)
    assert StringSchema().decode(b"\xe9", SchemaInfo(SchemaType.STRING, b"", {"__charset": "ISO-8859-1"})) == "é"
    for unknown in ("klingon", "hex", "\0"):
        with pytest.raises(UnreadableValueError, match="it is not "):
            StringSchema().decode(b"x", SchemaInfo(SchemaType.STRING, b"", {"__charset": unknown}))


@pytest.mark.parametrize(
    ("schema", "wrong"),
    [
        *((Int8Schema(), each) for each in (128, -129, 1.0, True, "1", None)),
        (Int64Schema(), 1 << 63), (FloatSchema(), 1e300), (FloatSchema(), "1"), (BooleanSchema(), 1),
        (StringSchema(), b"x"), (StringSchema(), "\ud800"), (BytesSchema(), "x"),
        (InstantSchema(), local(2000, 1, 1)), (TimestampSchema(), 5), (LocalDateTimeSchema(), at(2000, 1, 1)),
        (LocalDateSchema(), at(2000, 1, 1)), (LocalTimeSchema(), at(2000, 1, 1)),
        (LocalTimeSchema(), time(1, tzinfo=UTC)), (TimeSchema(), time(1, tzinfo=UTC)),
    ],
    ids=str,
)  # fmt: skip
def test_value_of_another_type_is_refused(schema: Schema[Any], wrong: object) -> None:
    with pytest.raises(UsageError, match="the value is none of the schema"):
        schema.encode(wrong)


def test_zone_of_a_time_does_not_matter() -> None:
    later = datetime(2000, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert InstantSchema().decode(InstantSchema().encode(later)) == later == at(2000, 1, 1)


@given(st.datetimes(timezones=st.just(UTC)), st.times())
def test_times_survive(moment: datetime, clock: time) -> None:
    """Python's whole range."""
    for schema, value in (
        (InstantSchema(), moment),
        (LocalDateTimeSchema(), moment.replace(tzinfo=None)),
        (LocalTimeSchema(), clock),
        (TimestampSchema(), moment.replace(microsecond=moment.microsecond // 1000 * 1000)),
    ):
        assert schema.decode(schema.encode(value)) == value  # type: ignore[arg-type]


# -- records


@pytest.mark.parametrize("made", [AvroSchema, JsonSchema])
@pytest.mark.parametrize("order", [FULL_ORDER, Order(1, None, Address("x"))])
def test_dataclass_survives(made: Any, order: Order) -> None:
    schema = made(Order)
    assert schema.decode(schema.encode(order)) == order


@pytest.mark.parametrize("made", [AvroSchema, JsonSchema])
def test_dataclass_within_itself_survives(made: Any) -> None:
    tree = Node(1, Node(2, None, Node(3)), Node(4))
    assert made(Node).decode(made(Node).encode(tree)) == tree


def test_payload_is_what_fastavro_reads_and_writes() -> None:
    schema = AvroSchema(Order)
    theirs = fastavro.parse_schema(json.loads(schema.info.data))
    read: Any = fastavro.schemaless_reader(io.BytesIO(schema.encode(FULL_ORDER)), theirs, None)
    assert read["at"] == FULL_ORDER.at
    assert read["price"] == FULL_ORDER.price
    assert read["colours"] == ["RED", "GREEN"]
    out = io.BytesIO()
    fastavro.schemaless_writer(out, theirs, read)
    assert schema.decode(out.getvalue()) == FULL_ORDER


@dataclass
class OlderOrder:
    """Without what came later, in another order, and with a field that is gone."""

    note: str | None
    gone: list[Address]
    id: int
    address: Address
    _avro_name = "Order"


def test_each_version_is_read_by_its_own_definition() -> None:
    """Fields by name, defaults for new ones, what is gone read over."""
    written = AvroSchema(OlderOrder).encode(OlderOrder("n", [Address("s"), Address("t", 9)], 5, Address("u", 3)))
    assert AvroSchema(Order).decode(written, AvroSchema(OlderOrder).info) == Order(5, "n", Address("u", 3))
    written = JsonSchema(OlderOrder).encode(OlderOrder("n", [], 5, Address("u", 3)))
    assert JsonSchema(Order).decode(written, JsonSchema(OlderOrder).info) == Order(5, "n", Address("u", 3))


def test_time_is_what_the_writer_has_meant() -> None:
    """Another unit on the same base is compatible, and would be wrong by a thousand."""

    @dataclass
    class Millis:
        at: datetime

    writer = {"type": "record", "name": "Millis", "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}  # fmt: skip
    written = AvroSchema(None, writer)
    payload = written.encode({"at": at(2020, 5, 17)})
    assert AvroSchema(Millis, None).decode(payload, written.info) == Millis(at(2020, 5, 17))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"id": "7"}, "id: '7' is not a number of type long"),
        ({"id": 1 << 63}, r"id: \d+ is not a number of type long"),
        ({"lines": [Address("a"), Address(cast("str", 5))]}, r"lines\[\].street: 5 is not a text"),
        ({"lines": [None]}, r"lines: None is not an instance of Address"),
        ({"prices": {"x": "y"}}, r"prices{}: 'y' is not a number"),
        ({"price": Decimal("1.234")}, "price: 1.234 has more than the 2 digits behind the point"),
        ({"price": Decimal(123456789)}, "price: 123456789 has more than the 8 digits before the point"),
        ({"price": 1.5}, "price: 1.5 is not a Decimal"),
        ({"colour": "RED"}, "colour: 'RED' is not a member of Colour"),
        ({"at": local(2000, 1, 1)}, "at: 2000-01-01 00:00:00 has no time zone"),
        ({"local": at(2000, 1, 1)}, "local: 2000-01-01 00:00:00.00:00 has a time zone"),
        ({"data": "text"}, "data: 'text' is not bytes"),
        ({"address": None}, "address: None is not an instance of Address"),
    ],
)
@pytest.mark.parametrize("made", [AvroSchema, JsonSchema])
def test_wrong_field_is_named(made: Any, wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        made(Order).encode(replace(FULL_ORDER, **wrong))


def test_definition_makes_dicts() -> None:
    """Fields that are absent have their defaults, and unknown ones are refused: they may be misspelt."""
    schema = AvroSchema(None, definition('{a:int, b:?string, c:string="x", d:[int | string | array<int>]}'))
    full = {"a": 1, "b": None, "c": "x", "d": [1, 2]}
    assert schema.decode(schema.encode({"a": 1, "d": [1, 2]})) == full
    assert schema.decode(schema.encode({**full, "d": "text"})) == {**full, "d": "text"}
    with pytest.raises(UsageError, match="record R has no field 'e'"):
        schema.encode({**full, "e": 1})
    with pytest.raises(UsageError, match="a: it is missing, and has no default"):
        schema.encode({"d": 1})
    with pytest.raises(UsageError, match="is no Avro schema"):
        AvroSchema(None, {"type": "recrod"})
    with pytest.raises(UsageError, match="neither"):
        AvroSchema(None)  # type: ignore[call-overload]


def test_default_that_is_no_value_is_refused() -> None:
    """By its field: the class would be usable, and the schema not."""

    @dataclass
    class Sloppy:
        at: datetime = field(default=local(2000, 1, 1))

    @dataclass
    class Lazy:
        tags: list[str] = None  # type: ignore[assignment]

    for cls, reason in (
        (Sloppy, r"Sloppy.at: the default .* has no time zone"),
        (Lazy, r"Lazy.tags: the default None"),
    ):
        with pytest.raises(UsageError, match=reason):
            AvroSchema(cls)


def test_digits_of_an_optional_decimal_are_those_of_the_decimal() -> None:
    """However the hint is nested."""

    @dataclass
    class Inside:
        price: Annotated[Decimal, Digits(10, 2)] | None = None

    @dataclass
    class Outside:
        price: Annotated[Decimal | None, Digits(10, 2)] = None

    kinds = [json.loads(AvroSchema(each).info.data)["fields"] for each in (Inside, Outside)]
    assert kinds[0] == kinds[1]
    for value in (None, Decimal("1.25")):
        assert AvroSchema(Outside).decode(AvroSchema(Outside).encode(Outside(value))) == Outside(value)


def test_default_that_is_no_number_is_a_text() -> None:
    """JSON has no NaN, and clients in Java could not read the definition."""

    @dataclass
    class Measured:
        a: float = math.nan
        b: Float32 = -math.inf

    class Declared(Record):
        a = Double(default=math.nan, required=True, required_default=True)

    text = json.loads(AvroSchema(Measured).info.data, parse_constant=pytest.fail)
    assert [each["default"] for each in text["fields"]] == ["NaN", "-Infinity"]
    assert '"default": "NaN"' in AvroSchema(Declared).info.data.decode()
    empty = AvroSchema(None, {"type": "record", "name": "Measured", "fields": []})
    read = AvroSchema(Measured).decode(b"", empty.info)
    assert (math.isnan(read.a), read.b) == (True, -math.inf)


def test_class_that_no_schema_has_is_refused() -> None:
    @dataclass
    class Odd:
        good: int
        bad: set[int] = field(default_factory=set)

    with pytest.raises(UsageError, match=r"Odd.bad: a schema has no type for set"):
        AvroSchema(Odd)
    with pytest.raises(UsageError, match="'int' is no class of records"):
        AvroSchema(int)


def expected(schema: AvroType, shown: Any) -> Any:
    """The rows of columns, as one value of Python."""
    if shown is None:
        return None
    match schema:
        case RecordType():
            return {each.name: expected(each.type, shown[each.name]) for each in schema.fields}
        case Array():
            return [expected(schema.items, each) for each in shown]
        case Map():
            return {key: expected(schema.values, each) for key, each in shown}
        case Union():
            return _expected_branch(schema, shown)
    return shown


def _expected_branch(schema: Union, shown: Any) -> Any:
    others = [each for each in schema.branches if each.kind != "null"]
    if not others:
        return None
    if len(others) == 1:
        return expected(others[0], shown)
    if not isinstance(shown, dict):
        return shown
    return next(
        (expected(each, shown[f"member{n}"]) for n, each in enumerate(others) if shown[f"member{n}"] is not None), None
    )


def parsed(made: Any) -> AvroType:
    """A definition; texts with the logical type of a UUID are no UUIDs in these tests."""
    try:
        schema = parse(json.dumps(made).replace('"uuid"', '"text"'))
    except SchemaParseError:
        assume(False)
    return schema


@given(definitions(), st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.filter_too_much])
def test_random_payloads_are_read_as_columns_show_them(made: Any, data: st.DataObject) -> None:
    schema = parsed(made)
    try:
        datum = data.draw(data_of(schema))
    except RecursionError:
        assume(False)
    read = avro_reader(schema, schema)
    value = read(datum.data)
    assert value == expected(schema, datum.shown)
    written, text = avro_writer(schema)(value), json_writer(schema)(value)
    if all(
        len(each.branches) == 2 and "null" in _kinds(each) for each in _unions(schema)
    ):  # Branches of others may not be told apart.
        assert read(written) == value
        assert json_reader(schema)(text) == value


def _kinds(schema: Union) -> list[str]:
    return [each.kind for each in schema.branches]


def _unions(schema: AvroType) -> list[Union]:
    """The unions of a schema, which may be within itself."""
    seen: dict[int, AvroType] = {}
    pending = [schema]
    while pending:
        each = pending.pop()
        if id(each) not in seen:
            seen[id(each)] = each
            pending += parts(each)
    return [each for each in seen.values() if isinstance(each, Union)]


@given(pairs(), st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.filter_too_much])
def test_what_is_compatible_is_read(pair: tuple[Any, Any], data: st.DataObject) -> None:
    """Each datum of the writer, but for symbols that the reader does not have."""
    writer, reader = map(parsed, pair)
    assume(not conflicts(writer, reader))
    try:
        datum = data.draw(data_of(writer))
    except RecursionError:
        assume(False)
    try:
        avro_reader(writer, reader)(datum.data)
    except Misfit as misfit:
        assert "is none that the reader has" in str(misfit) or "Python has no" in str(misfit)  # noqa: PT017


@given(definitions(), st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.filter_too_much])
def test_damaged_payloads_are_values_or_misfits(made: Any, data: st.DataObject) -> None:
    schema = parsed(made)
    try:
        whole = data.draw(data_of(schema)).data
    except RecursionError:
        assume(False)
    damaged = data.draw(st.binary(max_size=12) | st.just(whole[:-1]) | st.just(whole + b"\x01"))
    for read in (avro_reader(schema, schema), json_reader(schema)):
        try:
            read(damaged)
        except Misfit as misfit:
            assert str(misfit)  # noqa: PT017


def test_default_that_is_within_itself_is_none() -> None:
    """No value of finite size has it, so that it is as good as no default."""
    schema = AvroSchema(None, definition("{a:?R=0}").replace('["null", "R"]', '["R", "null"]'))
    assert schema.decode(schema.encode({})) == {"a": None}
    assert JsonSchema(None, schema.info.data).decode(b"{}") == {"a": None}
    endless = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["R", "bytes"], "default": "x"}]}
    text = json.dumps(endless)
    with pytest.raises(UsageError, match="a: it is missing"):
        AvroSchema(None, text).encode({})
    assert JsonSchema(None, text).decode(b"{}") == {"a": None}
    with pytest.raises(UnreadableValueError, match="within itself"):
        AvroSchema(None, text).decode(b"", SchemaInfo(SchemaType.AVRO, definition("{}").encode()))


@pytest.mark.parametrize("default", [1e300, {"type": "fixed", "name": "F", "size": (1 << 31) - 1}], ids=str)
def test_default_without_bytes_is_none(default: Any) -> None:
    """The topic takes it, and data that do not need it are read. A few bytes of a definition claim no gigabytes."""
    kind, value = ("float", default) if isinstance(default, float) else (default, "")
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": kind, "default": value}]
    text = json.dumps({"type": "record", "name": "R", "fields": fields})
    older = AvroSchema(None, definition("{a:int}"))
    for info in (SchemaInfo(SchemaType.AVRO, text.encode()), SchemaInfo(SchemaType.JSON, text.encode())):
        AutoConsumeSchema().reading_of(info)
    schema = AvroSchema(None, text)
    with pytest.raises(UsageError, match="b: it is missing, and has no default"):
        schema.encode({"a": 1})
    with pytest.raises(UnreadableValueError, match="a default "):
        schema.decode(older.encode({"a": 1}), older.info)
    assert JsonSchema(None, text).decode(b'{"a":1}') == {"a": 1, "b": None}


@pytest.mark.parametrize("scale", [10**30, (1 << 63) - 1])
def test_decimal_that_python_has_not_is_a_misfit(scale: int) -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 10**30, "scale": scale}
    schema = AvroSchema(None, json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}))
    with pytest.raises(UnreadableValueError, match=r"a: Python has no decimal with \d+ digits behind the point"):
        schema.decode(b"\2\1")
    kind["scale"] = 10**18
    schema = AvroSchema(None, json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}))
    with pytest.raises(UsageError, match="a: 1 has more than 2465 digits"):
        schema.encode({"a": Decimal(1)})


@pytest.mark.parametrize("charset", ["a\0b", "undefined", "hex", "none"])
def test_text_in_a_character_set_that_is_none_is_a_misfit(charset: str) -> None:
    with pytest.raises(UnreadableValueError, match="it is not "):
        AutoConsumeSchema().decode(b"x", SchemaInfo(SchemaType.STRING, properties={"__charset": charset}))


@dataclass
class Tree:
    children: list[Tree] = field(default_factory=list)


@pytest.mark.parametrize("made", [AvroSchema, JsonSchema])
def test_depth_of_a_class_is_a_misfit(made: Any) -> None:
    """At each depth, though its instances need more calls than what is in a payload; and of an endless one."""
    schema = made(Tree)
    for depth in range(100, 250, 10):
        payload = {
            AvroSchema: b"\2" * depth + b"\0" * (depth + 1),
            JsonSchema: b'{"children":[' * depth + b"]}" * depth,
        }
        try:
            schema.decode(payload[made])
        except UnreadableValueError as error:
            assert "nested too deep" in str(error)  # noqa: PT017
    endless = Tree()
    endless.children.append(endless)
    with pytest.raises(UsageError, match="nested too deep, or is within itself"):
        schema.encode(endless)


@dataclass
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ArithmeticError


def test_value_that_its_class_refuses_is_a_misfit() -> None:
    """By whatever error."""
    schema = AvroSchema(Even)
    assert schema.decode(b"\4") == Even(2)
    with pytest.raises(UnreadableValueError, match="Even does not take it: ArithmeticError"):
        schema.decode(b"\2")


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [
        ("{a:array<null>}", b"\xfe\xff\xff\xff\x0f", "a: more than 100000 items of no size"),
        ("{a:array<array<null>>}", b"\x80\x01" + b"\xa0\x9c\x01\0" * 64, r"a\[\]: more than 100000 items of no size"),
        ("{a:array<int>}", b"\xfe\xff\xff\xff\x0f", "a: 2147483647 items are announced, and 0 bytes are left"),
        ("{a:string}", b"\xfe\xff\xff\xff\x0fx", "a: 2147483647 bytes are announced, and 1 are left"),
        ("{a:string}", b"\x01x", "a: -1 bytes are announced"),
        ("{a:string}", b"\x02\xff", "a: it is not UTF-8"),
        ("{a:int}", b"\x02\x04\x04", "2 bytes are left over behind it"),
        ("{a:int, b:long}", b"\x02", "b: the payload ends in the midst of it"),
        ("{a:double}", b"\0" * 7, "a: the payload ends in the midst of it"),
        ("{a:int}", b"\xff\xff\xff\xff\xff\x01", "a: -34359738368 is no int of 32 bits"),
        ("{a:long}", b"\xff" * 10, "a: a number has more than 64 bits"),
        ("{a:?int}", b"\x04", "a: the union has no branch of number 2"),
        ("{a:enum<A,B>}", b"\x04", "a: there is no symbol of number 2"),
        ("{a:int, rest:array<R>}", b"\x02\x02" * 30_000, "it is nested too deep"),
    ],
)
def test_bomb_is_a_misfit(schema: str, data: bytes, reason: str) -> None:
    with pytest.raises(UnreadableValueError, match=reason):
        AvroSchema(None, definition(schema)).decode(data)


@pytest.mark.parametrize(
    ("branches", "value"),
    [
        ("[int | string]", "5"),
        ("[enum<A,B ; default A> | boolean]", False),
        ("[X{} | map<int>]", {"x": 1}),
    ],
)
def test_branch_that_shows_json_as_it_is_comes_before_lax_ones(branches: str, value: Any) -> None:
    schema = JsonSchema(None, definition(f"{{a:{branches}}}"))
    assert schema.decode(json.dumps({"a": value}).encode()) == {"a": value}


def test_json_bomb_is_a_misfit() -> None:
    """As JSON it can be read, and as a record within itself no more."""
    schema = JsonSchema(None, definition("{rest:array<R>}"))
    assert schema.decode(b'{"rest":[' * 20 + b"]}" * 20)
    with pytest.raises(UnreadableValueError, match="it is nested too deep"):
        schema.decode(b'{"rest":[' * 400 + b"]}" * 400)


def test_fixed_of_another_length_is_a_misfit_in_json() -> None:
    """With and without a logical type."""
    for logical in ({}, {"logicalType": "uuid"}):
        fixed = {"type": "fixed", "name": "F", "size": 16, **logical}
        schema = JsonSchema(None, json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": fixed}]}))
        assert schema.decode(b'{"a":"AAAAAAAAAAAAAAAAAAAAAA=="}')["a"] in (bytes(16), uuid.UUID(int=0))
        with pytest.raises(UnreadableValueError, match="a: 'AAA=' is not 16 bytes"):
            schema.decode(b'{"a":"AAA="}')


def test_decimal_that_is_a_number_of_json_keeps_its_digits() -> None:
    """Java writes them so; a double would have 17."""
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}
    fields = [{"name": "a", "type": {"type": "array", "items": kind}}, {"name": "b", "type": "double"}]
    read = JsonSchema(None, json.dumps({"type": "record", "name": "R", "fields": fields})).decode(
        b'{"a":[123456789012345678.91],"b":0.1}'
    )
    assert (read["a"], read["b"], type(read["b"])) == ([Decimal("123456789012345678.91")], 0.1, float)


def test_json_is_read_as_clients_write_it() -> None:
    """Java leaves nulls out and has bytes in base64, Pulsar's Python client has them as text and enums by value."""
    schema = JsonSchema(Order)
    java = b'{"id":"7","address":{"street":"s","more":1},"data":"YWJj","price":1.25,"colour":"RED"}'
    python = b'{"id":7,"note":null,"address":{"street":"s","number":null},"data":"a c","colour":1,"lines":null}'
    assert schema.decode(java) == Order(7, None, Address("s"), data=b"abc", price=Decimal("1.25"), colour=Colour.RED)
    read = schema.decode(python)
    assert (read.data, read.colour) == (b"a c", Colour.RED)
    assert [read.address.number, read.lines] == [None, None]
    for wrong, reason in ((b"[1]", "is not record Order"), (b"{", "it is not JSON"), (b"[" * 100_000, "too deep")):
        with pytest.raises(UnreadableValueError, match=reason):
            schema.decode(wrong)


def test_value_that_json_cannot_say_is_refused() -> None:
    """Else it would be read as another one, or not at all."""
    schema = JsonSchema(None, definition("{a:float, b:double, c:bytes}"))
    fine = {"a": math.inf, "b": 1e300, "c": b""}
    assert schema.decode(schema.encode(fine)) == fine
    for wrong, reason in (({"a": 1e300}, "a: .* type float"), ({"b": 10**400}, "b: .* type double")):
        with pytest.raises(UsageError, match=reason):
            schema.encode({**fine, **wrong})
    with pytest.raises(UnreadableValueError, match=r"c: .* is not a text that UTF-8 can express"):
        schema.decode(b'{"a":0,"b":0,"c":"\\ud800"}')


# -- pairs, and whatever a topic has


def test_pair_has_the_bytes_of_java() -> None:
    """Inline and separated, and nulls in either."""
    inline = KeyValueSchema(StringSchema(), StringSchema())
    assert inline.encode(KeyValue("k", "v")).hex() == "000000016b0000000176"
    assert inline.encode(KeyValue("k", None)).hex() == "000000016bffffffff"
    assert inline.decode(bytes.fromhex("ffffffff00000000")) == KeyValue(None, "")
    assert KeyValueSchema(StringSchema(), Int32Schema()).info.data == bytes(8)
    assert KeyValueSchema(AvroSchema(None, '"int"'), StringSchema()).info.data == b'\0\0\0\5"int"' + bytes(4)
    separated = KeyValueSchema(Int32Schema(), StringSchema(), "separated")
    assert separated.outgoing(KeyValue(1, "v")) == (b"v", b"\0\0\0\1", True)
    assert separated.outgoing(KeyValue(None, None)) == (None, None, True)
    assert separated.reading_of(None)(b"v", b"\0\0\0\1") == KeyValue(1, "v")
    assert separated.reading_of(None)(None, None) == KeyValue(None, None)


def test_wrong_part_of_a_pair_is_named() -> None:
    schema = KeyValueSchema(StringSchema(), AvroSchema(Address))
    with pytest.raises(UsageError, match=r"value.street: 5 is not a text"):
        schema.encode(KeyValue("k", Address(cast("str", 5))))
    for wrong, reason in ((b"\0\0\0\1", "1 bytes"), (bytes(9), "1 bytes follow"), (b"", "no length")):
        with pytest.raises(UnreadableValueError, match=reason):
            schema.decode(wrong)


@pytest.mark.parametrize(
    ("schema", "value", "shown"),
    [
        *((schema, value, value) for schema, value, _ in PRIMITIVES),
        (AvroSchema(Address), Address("s"), {"street": "s", "number": 1}),
        (JsonSchema(Address), Address("s"), {"street": "s", "number": 1}),
        (KeyValueSchema(JsonSchema(Address), Int8Schema()), KeyValue(Address("s"), 3),
         KeyValue({"street": "s", "number": 1}, 3)),
    ],
    ids=str,
)  # fmt: skip
def test_auto_consume_reads_all_types(schema: Schema[Any], value: Any, shown: Any) -> None:
    assert AutoConsumeSchema().decode(schema.encode(value), schema.info) == shown


def test_schema_of_another_type_cannot_be_read() -> None:
    with pytest.raises(UnreadableValueError, match="it was written as JSON, and not as AVRO"):
        AvroSchema(Address).decode(b"{}", JsonSchema(Address).info)
    with pytest.raises(UnreadableValueError, match="cannot be read: "):
        AutoConsumeSchema().decode(b"{}", SchemaInfo(SchemaType.AVRO, b"nonsense"))
