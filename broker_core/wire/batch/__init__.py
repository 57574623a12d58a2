# SPDX-License-Identifier: Apache-2.0
"""The columnar codec: entries to Arrow record batches and back, by the kernels of ``wire.core``.

The only part of ``wire`` that imports numpy and pyarrow; brokers and plain clients do without it.
"""

from broker_core.wire.batch.decode import UNDECODABLE as UNDECODABLE
from broker_core.wire.batch.decode import ChunkEntryError as ChunkEntryError
from broker_core.wire.batch.decode import decode_entries as decode_entries
from broker_core.wire.batch.decode import decode_in_parts as decode_in_parts
from broker_core.wire.batch.decode import lies_in_block as lies_in_block
from broker_core.wire.batch.decode import share_memory as share_memory
from broker_core.wire.batch.encode import EncodedEntry as EncodedEntry
from broker_core.wire.batch.encode import encode_entries as encode_entries
from broker_core.wire.batch.rows import ENCODED_COLUMNS as ENCODED_COLUMNS
from broker_core.wire.batch.schema import DECODED_SCHEMA as DECODED_SCHEMA
from broker_core.wire.batch.sent_keys import KeyGroups as KeyGroups
from broker_core.wire.batch.sent_keys import key_groups as key_groups
from broker_core.wire.batch.sent_keys import route_rows as route_rows
from broker_core.wire.batch.sent_keys import rows_by_place as rows_by_place
