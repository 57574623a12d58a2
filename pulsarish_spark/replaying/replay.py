# SPDX-License-Identifier: Apache-2.0
"""Reads an exported batch without Spark: the same rows, columns and types as from the broker, which is not asked."""

from __future__ import annotations

import os

import pyarrow as pa

from pulsarish_spark.replaying.export_file import open_export
from pulsarish_spark.rows.schema import TopicColumns


def replay(path: str | os.PathLike[str]) -> pa.RecordBatchReader:
    """The rows of a file of ``export_batch`` on this machine, partition by partition in their order.

    Batches are read while they are taken. Raises UsageError if the file is not there, or is none, and for a URL.
    """
    file = open_export(path)
    schema = TopicColumns(file.columns).arrow_schema()
    return pa.RecordBatchReader.from_batches(schema, file.batches(range(len(file.group_rows))))
