# SPDX-License-Identifier: Apache-2.0
"""Two readers of Avro and JSON, of values one by one and of columns: they say the same of any payload."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from broker_core.base.errors import PulsarishError, UnreadableValueError
from broker_core.client.schemas import AvroSchema, JsonSchema
from broker_core.client.schemas.avro_reading import avro_reader
from broker_core.client.schemas.json_values import json_writer
from broker_core.client.schemas.misfit import Misfit
from broker_core.schemas.avro.defaults import fits
from broker_core.schemas.avro.parsing import SchemaParseError, parse
from broker_core.schemas.avro.types import Field, NoDefault, Record, named_types
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.values.decoder import ValueDecoder
from tests.client.test_schema_values import expected
from tests.schemas.definitions import pairs
from tests.values.data import data_of


def info_of(made: Any) -> SchemaInfo:
    """A definition; texts with the logical type of a UUID are no UUIDs in these tests."""
    return SchemaInfo(SchemaType.AVRO, json.dumps(made).replace('"uuid"', '"text"').encode())


@given(pairs(), st.data())
@settings(max_examples=200, suppress_health_check=[HealthCheck.filter_too_much])
def test_values_and_columns_are_the_same(pair: tuple[Any, Any], data: st.DataObject) -> None:
    writer, reader = map(info_of, pair)
    assume(not any(isinstance(each, list) for each in pair))  # No topic has a union at the top.
    try:
        written, read = parse(writer.data), parse(reader.data)
        columns = ValueDecoder(reader)
        columns.add(7, writer)
        datum = data.draw(data_of(written))
    except (PulsarishError, SchemaParseError, RecursionError):
        assume(False)
    payload = data.draw(st.just(datum.data) | st.binary(max_size=12) | st.just(datum.data[:-1]))
    found = columns.decode(pa.array([payload], pa.binary()), pa.array([7], pa.int64()))
    try:
        value = AvroSchema(None, reader.data).decode(payload, writer)
    except UnreadableValueError as flaw:
        assert found.flaws or "Python has no" in str(flaw)  # noqa: PT017
    else:
        assert not found.flaws
        assert value == expected(read, found.rows[0].as_py())


def has_fitting_default(field: Field) -> bool:
    """Whether a default, if there is one, is what Avro asks for: nobody checks that."""
    if isinstance(field.default, NoDefault):
        return True
    return field.type.kind in ("int", "long", "double", "string", "boolean", "union") and fits(
        field.type, field.default, 100
    )


@given(pairs(), st.data())
@settings(max_examples=100, suppress_health_check=[HealthCheck.filter_too_much])
def test_json_values_and_columns_are_the_same(pair: tuple[Any, Any], data: st.DataObject) -> None:
    """The text of one definition by another, so that fields are absent, too many, or of another type."""
    writer, reader = map(info_of, pair)
    assume(not any(isinstance(each, list) for each in pair))
    try:
        written, read = parse(writer.data), parse(reader.data)
        columns = ValueDecoder(SchemaInfo(SchemaType.JSON, reader.data))
        payload = json_writer(written)(avro_reader(written, written)(data.draw(data_of(written)).data))
    except (PulsarishError, SchemaParseError, RecursionError, Misfit):
        assume(False)
    records = [each for each in named_types(read) if isinstance(each, Record)]
    assume(all(has_fitting_default(each) for record in records for each in record.fields))
    found = columns.decode(pa.array([payload], pa.binary()), pa.nulls(1, pa.int64()))
    try:
        value = JsonSchema(None, reader.data).decode(payload)
    except UnreadableValueError as flaw:
        assert found.flaws or "Python has no" in str(flaw)  # noqa: PT017
    else:
        assert not found.flaws
        assert value == expected(read, found.rows[0].as_py())
