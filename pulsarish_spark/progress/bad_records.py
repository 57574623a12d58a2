# SPDX-License-Identifier: Apache-2.0
"""Counts of bad records in the progress of a query. Spark lets a source report none, but counts what a query observes.

rows = progress.count_bad_records(rows)         # of a query with onBadRecord=null and the column bad_record
progress.bad_records(query.lastProgress)        # in its last batch
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from broker_core.base.errors import ConfigError
from pulsarish_spark.progress.reports import as_dict
from pulsarish_spark.rows.schema import BAD_RECORD_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OBSERVED: Final = "pulsarish.bad_records"
_COUNT: Final = "records"


def count_bad_records(rows: DataFrame) -> DataFrame:
    """``rows``, which have the column ``bad_record``, with a count of their bad records in each progress report.

    Once in a query; ConfigError without the column.
    """
    from pyspark.sql import functions

    if BAD_RECORD_COLUMN not in rows.columns:
        raise ConfigError(
            f"the rows have no column {BAD_RECORD_COLUMN}, which says which records are bad",
            hint=f'read them with .option("onBadRecord", "null").option("columns", "value,{BAD_RECORD_COLUMN}")',
        )
    return rows.observe(_OBSERVED, functions.count(BAD_RECORD_COLUMN).alias(_COUNT))


def bad_records(progress: Any) -> int | None:
    """The bad records of a batch, from one of a query's progress reports; None where nobody has counted them.

    ``progress``: a StreamingQueryProgress, its dictionary or its JSON text, or None.
    """
    observed: Mapping[str, Any] = {} if progress is None else as_dict(progress).get("observedMetrics", {})
    return int(observed[_OBSERVED][_COUNT]) if _OBSERVED in observed else None
