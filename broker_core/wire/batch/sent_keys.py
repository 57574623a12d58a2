# SPDX-License-Identifier: Apache-2.0
"""Keys as they travel: text as it is, bytes as base64 with a flag, as every client does it.

A text column holds texts and a binary one bytes, unless a second column says of a row which of both its key is. Which
partition a row goes to follows from what travels, so routing and writing both begin here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.errors import RowError
from broker_core.wire.batch.arrays import ByteColumn, presence
from broker_core.wire.batch.columns import flags_of
from broker_core.wire.batch.keys import encode_base64, is_text
from broker_core.wire.batch.typed import bad_type, byte_column, is_text_type, is_valid, plain_column


class SentKeys(NamedTuple):
    """``text`` is what travels; ``is_base64`` is 1 where that stands for bytes."""

    text: ByteColumn
    is_base64: NDArray[np.uint8]


def sent_keys(batch: pa.RecordBatch) -> SentKeys:
    """The column key of ``batch``, string or binary; key_is_bytes is boolean, null where the type of key says it.

    RowError names the first row whose key is to travel as text and is not UTF-8.
    """
    rows = batch.num_rows
    keys, key_is_bytes = plain_column(batch, "key"), plain_column(batch, "key_is_bytes")
    column = byte_column(keys, "key", rows)
    if keys is None:
        return SentKeys(column, np.zeros(rows, np.uint8))
    marked = np.full(rows, not is_text_type(keys.type), np.bool_)
    if key_is_bytes is not None:
        if not pa.types.is_boolean(key_is_bytes.type):
            raise bad_type("key_is_bytes", key_is_bytes.type, "boolean")
        marked = np.where(presence(key_is_bytes), flags_of(key_is_bytes), marked)
    marked = marked.view(np.uint8) & column.present
    _check_texts(keys, column, column.present != marked)
    return SentKeys(encode_base64(column, marked) if marked.any() else column, marked)


def _check_texts(keys: pa.Array, column: ByteColumn, sent_as_text: NDArray[np.bool_]) -> None:
    """A string column is checked too: the library that made it may not have done so."""
    if not sent_as_text.any() or (is_text_type(keys.type) and is_valid(keys)):
        return
    wrong = np.flatnonzero(sent_as_text & ~is_text(column))
    if wrong.size:
        row = int(wrong[0])
        flaw = f"has the key {column.get(row)!r}, which is to be sent as text and is not UTF-8"
        raise RowError(row, flaw, hint="send it as bytes")
