# SPDX-License-Identifier: Apache-2.0
"""In which form the key of a row goes out: as text, or as bytes, which travel as base64 with a flag.

Spark's sources give every key as bytes, Kafka's too, so the type of the column does not say what the key was. An option
forces a form, a column of our source tells it, and without both a key that is UTF-8 is text: then what Spark copies has
the keys that it had, goes to the partitions where it was, and looks to other clients as it did.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.errors import ConfigError
from broker_core.wire.batch.arrays import ByteColumn, presence
from broker_core.wire.batch.columns import booleans, flags_of
from broker_core.wire.batch.keys import is_text
from pulsarish_spark.options import KeyForm


def with_key_forms(rows: pa.RecordBatch, form: KeyForm) -> pa.RecordBatch:
    """``rows`` with their keys as ``encode_entries`` takes them; ConfigError for a key that must be text and cannot."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    told = columns.pop("key_is_bytes", None)
    if "key" in columns:
        keys = columns["key"].cast(pa.binary())
        if form != "auto" or (told is not None and told.null_count == len(told)):
            told = None
        if form == "bytes":
            columns["key"] = keys
        elif told is None and (texts := _as_texts(keys)) is not None:
            columns["key"] = texts
        else:
            columns["key"], columns["key_is_bytes"] = keys, booleans(_sent_as_bytes(keys, told, form))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _as_texts(keys: pa.Array) -> pa.Array | None:
    """All of ``keys``, or None if one of them is not UTF-8."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return None


def _sent_as_bytes(keys: pa.Array, told: pa.BooleanArray | None, form: KeyForm) -> NDArray[np.bool_]:
    """Whether ``told`` says so of a row, else whether its key is not UTF-8."""
    cannot_be_text = ~is_text(ByteColumn.of(keys))
    as_bytes = cannot_be_text if form == "auto" else np.zeros(len(keys), np.bool_)
    if told is not None:
        as_bytes = np.where(presence(told), flags_of(told), as_bytes)
    wrong = np.flatnonzero(cannot_be_text & ~as_bytes & (presence(keys) != 0))
    if wrong.size:
        raise ConfigError(
            f"the key {keys[int(wrong[0])].as_py()!r} is to be sent as text, but it is not UTF-8",
            hint='.option("keyForm", "bytes") sends all keys as bytes; without it and without a column key_is_bytes '
            "only those that are no text are",
        )
    return as_bytes
