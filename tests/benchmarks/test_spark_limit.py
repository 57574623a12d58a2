# SPDX-License-Identifier: Apache-2.0
"""What the limit of Spark's Python sources hands over is what our source would, without its work."""

from __future__ import annotations

import pytest

from benchmarks.connectors import THIRTEEN_COLUMNS
from benchmarks.spark_limit import LimitSource, ready_batch
from pulsarish_spark.rows.schema import KAFKA_COLUMNS, TopicColumns, spark_schema


@pytest.mark.parametrize(
    ("wide", "names"), [(True, tuple(THIRTEEN_COLUMNS["columns"].split(","))), (False, KAFKA_COLUMNS)]
)
def test_the_limit_has_the_columns_of_the_read_beside_it(wide: bool, names: tuple[str, ...]) -> None:
    """With other columns Java would work more or less for it, and the share of the limit would mean nothing."""
    declared = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in spark_schema(names).fields)
    assert LimitSource({"wide": str(wide).lower()}).schema() == declared
    assert ready_batch(100, wide=wide).schema == TopicColumns(names).arrow_schema()
