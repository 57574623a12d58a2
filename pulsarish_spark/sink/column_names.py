# SPDX-License-Identifier: Apache-2.0
"""The names of another connector for the columns of the sink: pulsar-spark's, where the option columnNames says so.

Knows no types and no brokers. What that connector's source adds and its sink drops, the sink leaves out here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

PULSAR_SPARK_NAMES: Final = {
    "__key": "key",
    "__topic": "topic",
    "__eventTime": "event_time",
    "__messageProperties": "properties",
    "__messageId": "message_id",
    "__publishTime": "publish_time",
}
"""Ours, by theirs; ``value`` is called the same."""

_NAMES: Final[dict[str, Mapping[str, str]]] = {"pulsar-spark": PULSAR_SPARK_NAMES, "pulsarish": {}}


def own_name(name: str, column_names: str) -> str:
    """What the sink calls a column that a user calls ``name``; ``column_names``: the option's value."""
    return _NAMES[column_names].get(name, name)


def with_own_names(rows: pa.RecordBatch, column_names: str) -> pa.RecordBatch:
    """``rows`` with the sink's names of columns."""
    if not _NAMES[column_names]:
        return rows
    return rows.rename_columns([own_name(name, column_names) for name in rows.schema.names])
