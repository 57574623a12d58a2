# SPDX-License-Identifier: Apache-2.0
"""Message ids of many messages at once: as text, ``ledger:entry:partition[:batch]``, and in the binary form of the
official clients, a serialised ``MessageIdData``.

Text made by Arrow's own functions takes longer than decoding the messages. The fields of the binary form are in the
order of their numbers, and those that an id does not have are left out, as the official clients do, so that the bytes
of one id are the same everywhere. Source: Pulsar's PulsarApi.proto.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from broker_core.wire.batch.columns import values_of
from broker_core.wire.core.rows import write_id_bytes, write_id_texts

TEXT_BYTES_MAX: Final = 20 + 1 + 20 + 1 + 11 + 1 + 11
"""Two 64-bit numbers, two 32-bit ones, and the colons between."""
ID_BYTES_MAX: Final = 2 * (1 + 10) + 3 * (1 + 5)
"""Two 64-bit numbers and three positive 32-bit ones, each behind its tag."""


def id_texts(ledger: pa.Array, entry: pa.Array, batch_index: pa.Array, partition: int) -> pa.Array:
    """One text for each row; ``batch_index`` -1 marks a message that is an entry of its own."""
    rows = len(ledger)
    offsets = np.empty(rows + 1, np.int32)
    data = np.empty(rows * TEXT_BYTES_MAX, np.uint8)
    used = write_id_texts(values_of(ledger), values_of(entry), values_of(batch_index), partition, offsets, data)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(data[:used]))


def id_bytes(decoded: pa.RecordBatch, partition: int) -> pa.Array:
    """One id for each row of ``decoded``, from its columns ledger, entry, batch_index (-1: the message is an entry of
    its own) and batch_size; ``partition`` -1: there are none."""
    ledger, entry, batch_index, batch_size = (
        values_of(decoded.column(name)) for name in ("ledger", "entry", "batch_index", "batch_size")
    )
    rows = decoded.num_rows
    offsets = np.empty(rows + 1, np.int32)
    data = np.empty(rows * ID_BYTES_MAX, np.uint8)
    used = write_id_bytes(ledger, entry, batch_index, batch_size, partition, offsets, data)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data[:used])])
