# SPDX-License-Identifier: Apache-2.0
"""The columns that decoded entries have. Fields of Pulsar's messages, one row for each message.

Times are milliseconds since the epoch. A key that travelled as base64 is given as the bytes it stands for.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Final

import pyarrow as pa

from broker_core.base.errors import UsageError

PROPERTIES_TYPE: Final = pa.map_(pa.string(), pa.string())

DECODED_SCHEMA: Final = pa.schema(
    [
        pa.field("ledger", pa.int64(), nullable=False),
        pa.field("entry", pa.int64(), nullable=False),
        pa.field("batch_index", pa.int32(), nullable=False),  # -1: the entry is a single message
        pa.field("index", pa.int64()),  # of the message in its topic; null if the broker does not tell
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("ordering_key", pa.binary()),
        pa.field("properties", PROPERTIES_TYPE, nullable=False),
        pa.field("event_time", pa.int64()),  # null if unset
        pa.field("publish_time", pa.int64(), nullable=False),
        pa.field("sequence_id", pa.int64(), nullable=False),
        pa.field("producer_name", pa.string(), nullable=False),
    ]
)

PROPERTY_PAIRS: Final = pa.field(
    "property_pairs", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])), nullable=False
)
"""The properties as they were sent, in their order; of those with one name a map keeps only the last."""

_BY_NAME_ONLY: Final = (
    PROPERTY_PAIRS,
    pa.field("key_is_bytes", pa.bool_()),  # whether the producer gave the key as bytes; null where there is none
    pa.field("batch_size", pa.int32(), nullable=False),  # messages of the entry, removed ones too; 0: a single message
    pa.field("schema_version", pa.int64()),  # null where the message has none that names a schema
    pa.field("replicated_from", pa.string()),  # the cluster that it was sent to; null if that is this one
)
"""Given only where they are asked for."""


def select_columns(columns: Collection[str] | None) -> pa.Schema:
    """The columns that were asked for, None: DECODED_SCHEMA, in its order; UsageError for one that there is not."""
    return DECODED_SCHEMA if columns is None else _selected(frozenset(columns))


@functools.lru_cache(maxsize=64)  # A reader asks for the same ones of each few MiB.
def _selected(columns: frozenset[str]) -> pa.Schema:
    fields = [*DECODED_SCHEMA, *_BY_NAME_ONLY]
    names = [field.name for field in fields]
    unknown = sorted(columns - set(names))
    if unknown:
        raise UsageError(f"there is no column {unknown[0]!r}", hint=f"choose among {', '.join(names)}")
    return pa.schema([field for field in fields if field.name in columns])
