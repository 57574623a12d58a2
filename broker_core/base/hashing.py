# SPDX-License-Identifier: Apache-2.0
"""Hashes that decide where a message goes. Pure functions; the published vectors are in ``tests/base/test_hashing.py``.

Source: Pulsar docs, "Partitioned topics - routing modes" and "Key_Shared" (MurmurHash3 x86 32 bit, seed 0).
"""

from typing import Final

import mmh3

INT31_MASK: Final = 0x7FFFFFFF

_murmur3 = mmh3.hash


def murmur3_unsigned(data: bytes) -> int:
    """MurmurHash3 x86 32 bit with seed 0, as an unsigned number."""
    return _murmur3(data, 0, False)


def murmur3_31(data: bytes) -> int:
    """Pulsar's form of it: the sign bit dropped."""
    return _murmur3(data, 0, False) & INT31_MASK


def java_string_hash_31(text: str) -> int:
    """``String.hashCode`` over UTF-16 code units, sign bit dropped: the Java client's default for routing."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8) + units[i + 1]) & 0xFFFFFFFF
    return value & INT31_MASK


def partition_of_key(key: str, partitions: int) -> int:
    """The partition of a keyed message under our default routing hash, murmur3 (0 <= result < ``partitions``)."""
    return murmur3_31(key.encode()) % partitions
