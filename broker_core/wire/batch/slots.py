# SPDX-License-Identifier: Apache-2.0
"""The slot of each message among the 65,536 that Key_Shared divides: as brokers hash the sticky key of an entry, for
columns of single messages.

The ordering key goes before the key. Messages with neither share one slot here; a broker has one for each of them, or
one for all. Source: PIP-34; semantics 1.6 and 2.8.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.hashing import murmur3_unsigned
from broker_core.wire.batch.arrays import ByteColumn
from broker_core.wire.batch.keys import hash_keys

SLOTS: Final = 1 << 16

_KEYLESS_HASH: Final = murmur3_unsigned(b"NONE_KEY")


def slots_of(keys: pa.Array, ordering_keys: pa.Array) -> NDArray[np.int64]:
    """One number from 1 to 65535 for each row of two binary columns; slot 0 never occurs, as in Pulsar 4."""
    hashes = hash_keys(ByteColumn.of(ordering_keys), "murmur3")
    hashes = np.where(hashes < 0, hash_keys(ByteColumn.of(keys), "murmur3"), hashes)
    slots: NDArray[np.int64] = np.where(hashes < 0, _KEYLESS_HASH, hashes) & (SLOTS - 1)
    return np.maximum(slots, 1)
