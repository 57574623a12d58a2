# SPDX-License-Identifier: Apache-2.0
"""Values of messages of several versions as one column; keys and values of pairs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from broker_core.schemas.avro.encoding import zigzag
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.schemas.key_value import joined
from broker_core.values.decoder import ValueDecoder
from broker_core.values.decoding import Decoded, Flaw
from broker_core.values.targets import RecursiveSchemaError, TooManyColumnsError
from tests.schemas.infos import INT32, STRING, avro, key_value
from tests.schemas.notation import definition

OLD = avro("a")
NEW = avro("a", "b=7")
TEXTS = avro({"name": "a", "type": "string"})


def decoded(
    decoder: ValueDecoder, *rows: tuple[bytes | None, int | None], keys: list[bytes | None] | None = None
) -> Decoded:
    """Values with their versions, decoded and found to be a sound column."""
    found = decoder.decode(
        pa.array([each for each, _ in rows], pa.binary()),
        pa.array([version for _, version in rows], pa.int64()),
        None if keys is None else pa.array(keys, pa.binary()),
    )
    found.rows.validate(full=True)
    assert (found.rows.type, len(found.rows)) == (decoder.arrow, len(rows))
    return found


def test_each_value_is_read_by_its_own_version() -> None:
    """A value without a version is the reader's own; versions may be any numbers."""
    decoder = ValueDecoder(NEW)
    decoder.add(0, OLD)
    decoder.add(2**63 - 1, NEW)
    found = decoded(decoder, (b"\x02", 0), (b"\x04\x06", 2**63 - 1), (None, 0), (b"\x08\x0a", None), (b"\x0c", 0))
    shown = [{"a": 1, "b": 7}, {"a": 2, "b": 3}, None, {"a": 4, "b": 5}, {"a": 6, "b": 7}]
    assert (found.rows.to_pylist(), found.flaws) == (shown, [])


def test_version_that_was_not_added_is_a_flaw() -> None:
    decoder = ValueDecoder(OLD)
    decoder.add(3, OLD)
    assert (decoder.knows(3), decoder.knows(4)) == (True, False)
    found = decoded(decoder, (b"\x02", 3), (b"\x02", 4), (None, 4), (b"\x02", -1), (b"\x02", None))
    assert found.flaws == [Flaw(1, "schema version 4 is not known"), Flaw(3, "schema version -1 is not known")]
    assert found.rows.to_pylist() == [{"a": 1}, None, None, None, {"a": 1}]
    assert decoded(decoder, (b"\x02", 4)).rows.to_pylist() == [None]


def test_flaw_names_the_field() -> None:
    inner = {"type": "record", "name": "X", "fields": [{"name": "x", "type": "int"}]}
    decoder = ValueDecoder(avro("a", {"name": "b", "type": {"type": "array", "items": inner}}))
    found = decoded(decoder, (b"\x02\x02\x80", None), (b"\x02\x00", None), (b"\x02\x00\x00", None))
    assert found.flaws == [Flaw(0, "b[].x: it ends too early"), Flaw(2, "bytes are left over behind it")]


def test_version_that_cannot_be_read_is_a_flaw_of_its_rows() -> None:
    """A topic whose strategy lets anything in has versions that lead nowhere."""
    decoder = ValueDecoder(OLD)
    decoder.add(0, TEXTS)
    decoder.add(1, STRING)
    decoder.add(2, SchemaInfo(SchemaType.AVRO, b"{"))
    decoder.add(3, OLD)
    found = decoded(decoder, (b"\x02x", 0), (b"x", 1), (b"\x02", 2), (b"\x02", 3), (None, 1))
    assert [each.row for each in found.flaws] == [0, 1, 2]
    assert [each.reason for each in found.flaws[:2]] == [
        "a: it was written as string, and is read as int",
        "it was written as STRING, and is read as a record",
    ]
    assert found.flaws[2].reason.startswith("its schema is not valid: ")
    assert found.rows.to_pylist() == [None, None, None, {"a": 1}, None]


def test_records_of_json_and_of_avro_become_one_column() -> None:
    decoder = ValueDecoder(NEW)
    decoder.add(0, avro("a", kind=SchemaType.JSON))
    decoder.add(1, OLD)
    found = decoded(decoder, (b'{"a": 1}', 0), (b"\x04", 1), (b"\x04", 0), (None, 0))
    assert found.rows.to_pylist() == [{"a": 1, "b": 7}, {"a": 2, "b": 7}, None, None]
    assert [each.row for each in found.flaws] == [2]


@pytest.mark.parametrize(
    ("info", "data", "shown"),
    [
        (INT32, b"\0\0\1\2", 258),
        (STRING, "é".encode(), "é"),
        (SchemaInfo(SchemaType.STRING, b"null"), b"x", "x"),
        (SchemaInfo(SchemaType.STRING, b"", {"__charset": "ISO-8859-1"}), b"\xe9", "é"),
        (SchemaInfo(SchemaType.STRING, b"", {"__charset": "UTF-16"}), b"\xfe\xff\0x", "x"),
        (SchemaInfo(SchemaType.BYTES), b"\0", b"\0"),
        (SchemaInfo(SchemaType.NONE, b"any"), b"\0", b"\0"),
        (SchemaInfo(SchemaType.EXTERNAL, b"any"), b"\0", b"\0"),
        (avro("a", kind=SchemaType.PROTOBUF), b"\x08\x01", b"\x08\x01"),
    ],
)
def test_value_of_any_type_is_shown(info: SchemaInfo, data: bytes, shown: Any) -> None:
    """PROTOBUF and EXTERNAL are bytes, as nothing says more about them."""
    decoder = ValueDecoder(info)
    decoder.add(0, info)
    assert decoded(decoder, (data, None), (None, None), (data, 0)).rows.to_pylist() == [shown, None, shown]


@pytest.mark.parametrize(
    ("writer", "reader", "reason"),
    [
        ("bytes decimal(10,2)", "bytes decimal(12,4)", "a decimal of scale 2, and is read as one of scale 4"),
        ("?bytes decimal(10,2)", "?bytes decimal(10,0)", "a decimal of scale 2, and is read as one of scale 0"),
        ("int date", "long timestamp-micros", "a date, and is read as a time"),
    ],
)
def test_number_that_would_be_another_value_is_a_flaw(writer: str, reader: str, reason: str) -> None:
    """Every strategy lets logical types change, and Avro's resolution does not look at them."""
    old, new = (SchemaInfo(SchemaType.AVRO, definition(f"{{a:{each}}}").encode()) for each in (writer, reader))
    decoder = ValueDecoder(new)
    decoder.add(0, old)
    data = (b"\2" if "?" in writer else b"") + b"\2\x7b"[: 1 if "date" in writer else 2]
    assert decoded(decoder, (data, 0)).flaws == [Flaw(0, f"a: it was written as {reason}")]


@pytest.mark.parametrize("charset", ["klingon", "hex", "idna", "\0"])
def test_charset_that_is_not_known_is_a_flaw(charset: str) -> None:
    """Python has codecs that are none of text, and some that cannot replace what they do not know."""
    decoder = ValueDecoder(SchemaInfo(SchemaType.STRING, b"", {"__charset": charset}))
    assert decoded(decoder, (b"x", None)).flaws == [Flaw(0, f"its charset {charset!r} is not known")]


# -- pairs


def test_pairs_of_one_payload() -> None:
    """Each part is behind its length, and -1 is null."""
    decoder = ValueDecoder(key_value(STRING, INT32))
    rows = [joined(b"k", b"\0\0\0\1"), joined(None, b"\0\0\0\2"), joined(b"", None), None]
    found = decoded(decoder, *((each, None) for each in rows))
    shown = [{"key": "k", "value": 1}, {"key": None, "value": 2}, {"key": "", "value": None}, None]
    assert (found.rows.to_pylist(), found.flaws) == (shown, [])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "key: it ends too early"),
        (b"\0\0\0", "key: it ends too early"),
        (b"\0\0\0\2k", "key: it ends too early"),
        (b"\x7f\xff\xff\xffk", "key: it ends too early"),
        (b"\xff\xff\xff\xfek", "key: a length is negative"),
        (b"\0\0\0\1k", "value: it ends too early"),
        (b"\0\0\0\1k\0\0\0\4\0\0\0", "value: it ends too early"),
        (b"\0\0\0\1k\x80\0\0\0", "value: a length is negative"),
        (b"\0\0\0\1k\0\0\0\1v", "value: it has 1 bytes, and a INT32 has 4"),
        (joined(b"k", b"\0\0\0\1") + b"x", "bytes are left over behind it"),
    ],
)
def test_pair_that_cannot_be_divided_is_a_flaw(data: bytes, reason: str) -> None:
    good = joined(b"k", b"\0\0\0\1")
    found = decoded(ValueDecoder(key_value(STRING, INT32)), (good, None), (data, None), (good, None))
    assert found.flaws == [Flaw(1, reason)]
    assert found.rows.to_pylist() == [{"key": "k", "value": 1}, None, {"key": "k", "value": 1}]


def test_key_is_that_of_the_message_where_it_is_separated() -> None:
    """A tombstone still has its key; a message without a key has a null one."""
    decoder = ValueDecoder(key_value(INT32, OLD, "SEPARATED"))
    keys = [b"\0\0\0\1", b"\0\0\0\2", None, None, b"\0"]
    found = decoded(decoder, (b"\x02", None), (None, None), (b"\x04", None), (None, None), (b"\x02", None), keys=keys)
    shown = [{"key": 1, "value": {"a": 1}}, {"key": 2, "value": None}, {"key": None, "value": {"a": 2}}, None, None]
    assert found.rows.to_pylist() == shown
    assert found.flaws == [Flaw(4, "key: it has 1 bytes, and a INT32 has 4")]


def test_versions_of_pairs_may_differ_in_all_they_have() -> None:
    """Keys and values by the schema of their own version, in the encoding of that."""
    decoder = ValueDecoder(key_value(STRING, NEW))
    decoder.add(0, key_value(STRING, OLD))
    decoder.add(1, key_value(STRING, NEW, "SEPARATED"))
    decoder.add(2, key_value(INT32, OLD))
    decoder.add(3, STRING)
    pair = joined(b"k", b"\x02")
    rows = [(pair, 0), (b"\x02\x04", 1), (joined(b"\0\0\0\1", b"\x02"), 2), (b"x", 3), (None, 4), (None, 1), (None, 0)]
    found = decoded(decoder, *rows, keys=[b"no", b"k", b"no", b"no", b"no", b"t", b"no"])
    assert found.rows.to_pylist() == [
        {"key": "k", "value": {"a": 1, "b": 7}},
        {"key": "k", "value": {"a": 1, "b": 2}},
        *(None, None, None),
        {"key": "t", "value": None},
        None,
    ]
    assert found.flaws == [
        Flaw(2, "key: it was written as INT32, and is read as STRING"),
        Flaw(3, "it was written as STRING, and is read as a pair"),
        Flaw(4, "schema version 4 is not known"),
    ]


# -- bounds


def test_recursion_is_refused_or_cut() -> None:
    node = avro("v", {"name": "next", "type": ["null", "R"], "default": None})
    with pytest.raises(RecursiveSchemaError, match="recursiveDepth"):
        ValueDecoder(node)
    found = decoded(ValueDecoder(key_value(STRING, node), recursive_depth=1), (joined(b"k", b"\x02\x02\x04\x00"), None))
    assert found.rows.to_pylist() == [{"key": "k", "value": {"v": 1, "next": {"v": 2, "next": None}}}]


def doubling(levels: int, *, in_unions: bool) -> SchemaInfo:
    """A small schema that leads to two to the power of ``levels`` columns, or ways through its unions."""
    below: Any = "int"
    again: Any = "int"
    for level in range(levels):
        first: dict[str, Any] = {"type": "record", "name": f"A{level}", "fields": [{"name": "x", "type": below}]}
        if in_unions:
            second = {"type": "record", "name": f"B{level}", "fields": [{"name": "x", "type": again}]}
            below, again = [first, second], [f"A{level}", f"B{level}"]
        else:
            first["fields"].append({"name": "y", "type": again})
            below, again = first, f"A{level}"
    return avro({"name": "a", "type": below})


def test_schema_of_too_many_columns_is_refused() -> None:
    with pytest.raises(TooManyColumnsError, match="10000 columns"):
        ValueDecoder(doubling(30, in_unions=False))


def test_writers_unions_are_compiled_once() -> None:
    """Two to the power of forty ways lead through the writer's unions; the reader wants nothing of them."""
    decoder = ValueDecoder(avro("b=7"))
    decoder.add(0, doubling(40, in_unions=True))
    data = b"".join(zigzag(level % 2) for level in range(40)) + b"\x02"
    assert decoded(decoder, (data, 0)).rows.to_pylist() == [{"b": 7}]
