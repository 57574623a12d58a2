# SPDX-License-Identifier: Apache-2.0
"""Random schemas with random data and evolutions: the same rows in Spark, in a stream and as Arrow as were written."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from broker_core.base.errors import IncompatibleSchemaError, PulsarishError
from broker_core.schemas.avro.parsing import parse
from broker_core.schemas.avro.types import AvroType, named_types
from broker_core.schemas.info import SchemaInfo, SchemaType
from pulsarish_spark import read_arrow
from pulsarish_spark.rows.schema import TopicColumns, spark_schema
from pulsarish_spark.rows.typed_values import TypedValues, ValueRules
from tests.schemas.defaults import has_valid_defaults
from tests.schemas.definitions import definitions
from tests.spark.brokers import Broker
from tests.spark.queries import drain
from tests.spark.typed import send
from tests.values.data import data_of
from tests.values.official import has_crossed_names

NUMBERS: Final = itertools.count()
QUIET: Final = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much]
UNSHRUNK: Final = (Phase.explicit, Phase.generate)
"""A smaller example would be looked for longer than a test may take: each one is a topic, and batches of Spark."""


def is_sound(schema: AvroType) -> bool:
    """Whether Apache Pulsar can compare it with others: it fails at a default that does not fit, at an alias that is
    another's name, and at a name of two types, and a producer asks again until its time-out."""
    types = list(named_types(schema))
    is_unique = len({each.name for each in types}) == len(types)
    return is_unique and has_valid_defaults(schema) and not has_crossed_names(schema)


def info_of(made: Any) -> SchemaInfo:
    """A sound schema whose values can be columns."""
    info = SchemaInfo(SchemaType.AVRO, json.dumps(made).encode())
    try:
        TypedValues(info).columns()
    except PulsarishError:
        assume(False)
    assume(is_sound(parse(info.data)))
    return info


def with_one_more(made: Any) -> Any:
    """A record with another field; any other schema as it is."""
    more = {"name": "added", "type": ["null", "long"], "default": None}
    return made | {"fields": [*made["fields"], more]} if isinstance(made, dict) and made["type"] == "record" else made


def fitted(value: Any, made: Any) -> Any:
    """A value as the schema with one more field shows it."""
    is_record = isinstance(made, dict) and made["type"] == "record"
    return {**value, "added": None} if is_record else value


@given(definitions(), st.booleans())
@settings(max_examples=300, suppress_health_check=QUIET)
def test_types_of_batches_are_those_that_spark_expects(made: Any, flatten: bool) -> None:
    """Spark compares the schema of the first batch with the one that it was told."""
    typed = TypedValues(info_of(made), rules=ValueRules(flatten=flatten))
    names = ("key", "value", "headers")
    expected = to_arrow_schema(spark_schema(names, typed), timezone="UTC")
    assert TopicColumns(names, typed=typed).arrow_schema() == expected


def written(cell: Broker, topic: str, made: Any, data: st.DataObject) -> list[Any]:
    """Send values of a schema and of the next version of it; returns what they are in the newer one."""
    shown: list[Any] = []
    for each in (made, with_one_more(made)):
        info = info_of(each)
        rows = data.draw(st.lists(data_of(parse(info.data)), min_size=1, max_size=4))
        try:
            send(cell, topic, info, [row.data for row in rows])
        except IncompatibleSchemaError:  # Defaults of a random schema need not fit it.
            assume(False)
        shown += [fitted(row.shown, made) if each is made else row.shown for row in rows]
    return shown


def options_of(cell: Broker) -> Mapping[str, Any]:
    return {"service.url": cell.service_url, "valueFormat": "schema", "columns": "value"}


@given(definitions(), st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=QUIET, phases=UNSHRUNK)
def test_arrow_has_the_rows_of_two_versions(cell: Broker, made: Any, data: st.DataObject) -> None:
    topic = f"random-arrow-{next(NUMBERS)}"
    shown = written(cell, topic, made, data)
    assert read_arrow(topic, **options_of(cell)).read_all()["value"].to_pylist() == shown


@pytest.mark.spark
@given(definitions(), st.data())
@settings(max_examples=4, deadline=None, suppress_health_check=QUIET, phases=UNSHRUNK)
def test_batches_and_streams_have_the_rows_of_two_versions(
    spark: SparkSession, cell: Broker, tmp_path: Path, made: Any, data: st.DataObject
) -> None:
    """Through Spark's own conversion to Arrow and back."""
    topic = f"random-spark-{next(NUMBERS)}"
    shown = written(cell, topic, made, data)
    batch = spark.read.format("pulsarish").options(**options_of(cell)).load(topic)
    expected = read_arrow(topic, **options_of(cell)).read_all()["value"].to_pylist()
    assert expected == shown
    assert sorted(batch.toArrow()["value"].to_pylist(), key=repr) == sorted(expected, key=repr)
    found: list[Any] = []

    def sink(frame: DataFrame, _: int) -> None:
        found.extend(frame.toArrow()["value"].to_pylist())

    stream = spark.readStream.format("pulsarish").options(**options_of(cell), startingOffsets="earliest").load(topic)
    drain(stream, tmp_path / topic, sink)
    assert sorted(found, key=repr) == sorted(expected, key=repr)
