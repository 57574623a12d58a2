# SPDX-License-Identifier: Apache-2.0
"""The maker of a task's rows: of values that are bytes, or of typed ones, which takes more to import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.rows.columns import ColumnMaker
from pulsarish_spark.rows.schema import TopicColumns

if TYPE_CHECKING:
    from broker_core.client import Client


class RowMaker(Protocol):
    """Makes the source's columns."""

    def make(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The source's columns for decoded ``rows``, or for those of them that are to be rows."""
        ...


def maker_of(client: Client, key: TopicPartition, name: str, columns: TopicColumns) -> RowMaker:
    """The maker for one topic or partition, which is called ``name`` on the broker."""
    if columns.typed is None:
        return ColumnMaker(key, columns, partitioned=name != key.topic)
    from pulsarish_spark.typed.typed_rows import TypedRowMaker

    return TypedRowMaker(client, key, name, columns, columns.typed)
