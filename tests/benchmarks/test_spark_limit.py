# SPDX-License-Identifier: Apache-2.0
"""What the limit of Spark's Python sources hands over is what our source would, without its work."""

from __future__ import annotations

import pytest

from benchmarks.connectors import SEVEN_COLUMNS
from benchmarks.spark_limit import LimitSource, ready_batch
from pulsarish_spark.rows.schema import DEFAULT_COLUMNS, TopicColumns


@pytest.mark.parametrize(
    ("wide", "names"), [(True, DEFAULT_COLUMNS), (False, tuple(SEVEN_COLUMNS["columns"].split(",")))]
)
def test_the_limit_has_the_columns_of_the_read_beside_it(wide: bool, names: tuple[str, ...]) -> None:
    """With other columns Java would work more or less for it, and the share of the limit would mean nothing."""
    columns = TopicColumns(names)
    declared = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in columns.spark_schema().fields)
    assert LimitSource({"wide": str(wide).lower()}).schema() == declared
    assert ready_batch(100, wide=wide).schema == columns.arrow_schema()
