# SPDX-License-Identifier: Apache-2.0
"""The columnar codec: entries to Arrow record batches and back, by the kernels of ``wire.core``.

The only part of ``wire`` that imports numpy and pyarrow; brokers and plain clients do without it.
"""

from broker_core.wire.batch.decode import (
    UNDECODABLE,
    ChunkEntryError,
    decode_entries,
    decode_in_parts,
    lies_in_block,
    share_memory,
)
from broker_core.wire.batch.encode import EncodedEntry, encode_entries
from broker_core.wire.batch.route import KeyGroups, key_groups, route_rows, rows_by_place
from broker_core.wire.batch.rows import ENCODED_COLUMNS
from broker_core.wire.batch.schema import DECODED_SCHEMA

__all__ = [
    "DECODED_SCHEMA",
    "ENCODED_COLUMNS",
    "UNDECODABLE",
    "EncodedEntry",
    "KeyGroups",
    "decode_entries",
    "decode_in_parts",
    "ChunkEntryError",
    "encode_entries",
    "key_groups",
    "lies_in_block",
    "route_rows",
    "rows_by_place",
    "share_memory",
]
