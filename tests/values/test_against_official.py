# SPDX-License-Identifier: Apache-2.0
"""Rows beside what the official clients decode: Java's GenericAvroReader, and AvroSchema of the Python client.

Where the two differ from each other, ours are Java's; docs/schemas.md has the differences.
"""

from __future__ import annotations

import base64
import copy
import json
import logging
import math
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from pulsar.schema import AvroSchema

from broker_core.schemas.avro.parsing import parse
from broker_core.schemas.avro.types import Array, AvroType, Map, Record, Union
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.values.decoder import ValueDecoder
from tests.apache_pulsar.start import UnavailableError
from tests.schemas.defaults import has_valid_defaults
from tests.schemas.infos import INT32, STRING, key_value
from tests.schemas.oracle import Oracle, running_oracle
from tests.values.data import EPOCH
from tests.values.official import (
    Evolution,
    evolutions,
    has_crossed_names,
    info_of,
    is_known_of_python,
    is_same,
    json_text,
    plain,
)

pytestmark = [pytest.mark.pulsar, pytest.mark.slow]

RANDOM_EVOLUTIONS: Final = 3_000

_TRIPS: Final = (
    "Invalid default for",
    "Duplicate field",
    "StackOverflow",
    "Illegal",
    "enum value 'null'",
    "No default value for",
)
"""Where Java fails for reasons of its own, as in tests/schemas/test_against_java.py."""

_NO_ROOM: Final = ("a decimal has more than", "a number is too large", "it was written as a date")
"""Why a column has no room for what clients give out, or would show another value; docs/schemas.md has all."""

_BEYOND: Final = object()
"""A day that Python has no date for, though columns do."""


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    try:
        with running_oracle(tmp_path_factory.mktemp("oracle") / "java.log", "Values") as running:
            yield running
    except UnavailableError as missing:
        pytest.skip(str(missing))


class _Found(NamedTuple):
    """The outcome of a payload at a client: ``value``, or why it makes nothing of it."""

    value: Any = None
    error: str = ""


def by_java(oracle: Oracle, writer: Any, reader: Any, data: bytes) -> _Found:
    question = {"kind": "avro", "writer": json_text(writer), "reader": json_text(reader)}
    answer = oracle.answer({**question, "data": base64.b64encode(data).decode()})
    return _Found(answer.get("value"), answer.get("error", ""))


def by_python(writer: Any, reader: Any, data: bytes) -> _Found:
    """The client changes the schemas that it is given."""
    try:
        return _Found(AvroSchema(None, copy.deepcopy(reader))._decode_bytes(data, copy.deepcopy(writer)))
    except Exception as error:  # noqa: BLE001 - whatever fastavro says against it
        return _Found(error=repr(error))


def by_us(evolution: Evolution) -> list[_Found]:
    """All versions in one batch."""
    decoder = ValueDecoder(info_of(evolution.definitions[-1]))
    for version, each in enumerate(evolution.definitions):
        decoder.add(version, info_of(each))
    count = len(evolution.payloads)
    rows, flaws = decoder.decode(pa.array(evolution.payloads, pa.binary()), pa.array(range(count), pa.int64()))
    reasons = dict(flaws)
    return [_Found(_value(rows[row]), reasons.get(row, "")) for row in range(count)]


def _value(cell: pa.Scalar) -> Any:
    try:
        return cell.as_py()
    except OverflowError:
        return _BEYOND


_TEXT_BEHIND_BYTES = Evolution(
    [
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": branches}]}
        for branches in (["null", "string"], ["bytes", "string"])
    ],
    [b"\x02\x02x", b"\x02\x02x"],
)
"""A reader's union whose first branch is not that of the value, and takes it too."""


def test_random_evolutions_are_read_as_the_clients_do(oracle: Oracle) -> None:
    told: Counter[str] = Counter()

    def agree(reader: Any, ours: _Found, theirs: _Found) -> bool:
        if ours.error or theirs.error:
            return bool(ours.error) and bool(theirs.error)
        return is_same(parse(json_text(reader)), ours.value, theirs.value)

    @given(evolutions())
    @example(_TEXT_BEHIND_BYTES)
    @settings(max_examples=RANDOM_EVOLUTIONS, suppress_health_check=list(HealthCheck), deadline=None)
    def compare(evolution: Evolution | None) -> None:
        if evolution is None or has_crossed_names(parse(json_text(evolution.definitions[-1]))):
            return
        told["evolutions"] += 1
        reader = evolution.definitions[-1]
        for writer, data, ours in zip(evolution.definitions, evolution.payloads, by_us(evolution), strict=True):
            if ours.value is _BEYOND or any(each in ours.error for each in _NO_ROOM):
                told["without a value of Python's"] += 1
                continue
            java, python = by_java(oracle, writer, reader, data), by_python(writer, reader, data)
            has_misfits = bool(java.error) and not has_valid_defaults(parse(json_text(reader)))
            tripped = has_misfits or any(each in java.error for each in _TRIPS)
            assert tripped or agree(reader, ours, java), (writer, reader, data, ours, java)
            told["rows as in Java"] += not tripped
            told["values as in Java"] += not tripped and not java.error
            told["values as in Python"] += not python.error and agree(reader, ours, python)
            if not (tripped or python.error or ours.error or agree(reader, ours, python)):
                assert is_known_of_python(writer, reader), (writer, reader, data, ours, python)
                told["Python alone"] += 1

    compare()
    logging.getLogger(__name__).info("agreed: %s", dict(told))
    assert told["evolutions"] > RANDOM_EVOLUTIONS // 4
    assert told["values as in Java"] > told["evolutions"]
    assert told["values as in Python"] > told["evolutions"]


def test_known_differences_of_java_are_there(oracle: Oracle) -> None:
    """Doubles in arrays become floats in Java: when that ends, its line in docs/schemas.md goes."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "double"}}]}
    data = b"\x02" + bytes.fromhex("9a9999999999b93f") + b"\0"
    rounded = by_java(oracle, schema, schema, data).value["a"][0]["double"]
    assert rounded == int.from_bytes(bytes.fromhex("000000a09999b93f"), "little")
    assert by_us(Evolution([schema], [data]))[0].value == {"a": [0.1]}


# -- primitives


def _shown(kind: str, said: str) -> Any:
    """The cell of a value that Java has written."""
    match kind:
        case "BOOLEAN":
            return said == "true"
        case "BYTES":
            return bytes.fromhex(said)
        case "STRING":
            return said
        case "FLOAT" | "DOUBLE":
            return float(said.replace("Infinity", "inf"))
        case "DATE" | "TIMESTAMP":
            return (int(said) * 1000, EPOCH.tzinfo)
        case "TIME":
            return int(said) % 86_400_000 * 1_000_000
        case "INSTANT" | "LOCAL_DATE_TIME":
            whole, _, nanos = said.rstrip("Z").partition(".")
            at = datetime.fromisoformat(whole).replace(tzinfo=EPOCH.tzinfo) - EPOCH
            return (at.days * 86_400 + at.seconds) * 1_000_000 + int(nanos.ljust(9, "0")) // 1000
        case "LOCAL_DATE":
            return (datetime.fromisoformat(said).replace(tzinfo=EPOCH.tzinfo) - EPOCH).days
        case "LOCAL_TIME":
            hours, minutes, seconds = (*said.split(":"), "0")[:3]
            whole, _, nanos = seconds.partition(".")
            return ((int(hours) * 60 + int(minutes)) * 60 + int(whole)) * 10**9 + int(nanos.ljust(9, "0"))
        case "KEY_VALUE":
            key, _, value = said.partition("=")
            return {"key": key or None, "value": int(value) if value else None}
    return int(said)


def _cell(kind: str, rows: pa.Array) -> Any:
    """The first value, times as numbers of their unit."""
    if kind in ("DATE", "TIMESTAMP"):
        return (rows.cast(pa.int64())[0].as_py(), EPOCH.tzinfo)
    if kind in ("INSTANT", "LOCAL_DATE_TIME"):
        return rows.cast(pa.int64())[0].as_py()
    if kind == "LOCAL_DATE":
        return rows.cast(pa.int32())[0].as_py()
    value = rows[0].as_py()
    return pa.scalar(value, pa.float32()).as_py() if kind == "FLOAT" else value


def test_primitives_that_java_writes_are_read(oracle: Oracle) -> None:
    """Every type of Java's with the ends of its range."""
    written = oracle.answer({"kind": "written"})["value"]
    assert len({kind for kind, _, _ in written}) == 17
    for kind, said, data in written:
        info = key_value(STRING, INT32) if kind == "KEY_VALUE" else SchemaInfo(SchemaType[kind])
        found = ValueDecoder(info).decode(pa.array([bytes.fromhex(data)], pa.binary()), pa.nulls(1, pa.int64()))
        shown = _shown(kind, said)
        expected = pa.scalar(shown, pa.float32()).as_py() if kind == "FLOAT" else shown
        assert (found.flaws, _cell(kind, found.rows)) == ([], expected), (kind, said, data)


# -- JSON


def as_jackson(schema: AvroType, value: Any) -> Any:
    """A value of a column as Java's clients write it: bytes in base64, times as numbers, no number as text."""
    if value is None:
        return None
    match schema:
        case Union():
            others = [each for each in schema.branches if each.kind != "null"]
            if len(others) == 1 or not isinstance(value, dict):
                return as_jackson(others[0], value)
            number, member = next((number, each) for number, each in enumerate(value.values()) if each is not None)
            return as_jackson(others[number], member)
        case Record():
            return {each.name: as_jackson(each.type, value[each.name]) for each in schema.fields}
        case Array():
            return [as_jackson(schema.items, each) for each in value]
        case Map():
            return {key: as_jackson(schema.values, each) for key, each in value}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return float(value) if isinstance(value, Decimal) else plain(value)


def without_nulls(value: Any) -> Any:
    """A record with null in a field, and a map without that key, may be the same JSON."""
    match value:
        case dict():
            return {key: without_nulls(each) for key, each in value.items() if each is not None}
        case list():
            return [without_nulls(each) for each in value]
    return value


def test_random_records_of_json_are_read_as_java_does(oracle: Oracle) -> None:
    """A member of a union may be another one than was written, as JSON does not say which; its value is the same."""
    compared = 0

    @given(evolutions())
    @settings(max_examples=RANDOM_EVOLUTIONS // 4, suppress_health_check=list(HealthCheck), deadline=None)
    def compare(evolution: Evolution | None) -> None:
        nonlocal compared
        if evolution is None:
            return
        reader = evolution.definitions[-1]
        schema = parse(json_text(reader))
        written = by_us(Evolution([reader], evolution.payloads[-1:]))[0]
        if written.error or written.value is _BEYOND:
            return
        text = json.dumps(as_jackson(schema, written.value)).encode()
        question = {"kind": "json", "reader": json_text(reader), "data": base64.b64encode(text).decode()}
        assert oracle.answer(question)["value"] == json.loads(text)
        info = SchemaInfo(SchemaType.JSON, json_text(reader).encode())
        found = ValueDecoder(info).decode(pa.array([text], pa.binary()), pa.nulls(1, pa.int64()))
        assert found.flaws == [], (reader, text)
        shown = as_jackson(schema, found.rows[0].as_py())
        assert without_nulls(shown) == without_nulls(json.loads(text)), (reader, text)
        compared += 1

    compare()
    assert compared > RANDOM_EVOLUTIONS // 16
