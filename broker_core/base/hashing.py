# SPDX-License-Identifier: Apache-2.0
"""Hashes that decide where a message goes. Pure functions; the published vectors are in ``tests/base/test_hashing.py``,
and ``tests/routing`` holds those for routing against the official clients.

Source: Pulsar docs, "Partitioned topics - routing modes" and "Key_Shared" (MurmurHash3 x86 32 bit, seed 0).
"""

from collections.abc import Callable
from typing import Final, Literal

import mmh3

INT31_MASK: Final = 0x7FFFFFFF
_MASK_32: Final = 0xFFFFFFFF
_MASK_64: Final = 0xFFFFFFFFFFFFFFFF
_BOOST_Q: Final = 0x9E3779B97F4A7C15
_BOOST_K: Final = 0xDF442D22CE4859B9

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
        value = (31 * value + (units[i] << 8) + units[i + 1]) & _MASK_32
    return value & INT31_MASK


def go_string_hash_32(data: bytes) -> int:
    """The default of the Go client, which calls it JavaStringHash: over the bytes of UTF-8, and with the sign bit."""
    value = 0
    for each in data:
        value = 31 * value + each & _MASK_32
    return value


def boost_hash_31(data: bytes) -> int:
    """``boost::hash`` of a string since Boost 1.82, sign bit dropped: default of the C++ and the Python client.

    Eight bytes at a time, the last of them filled up with zeros, also where none are left.
    """
    step = _folded(_BOOST_Q)
    value = step ^ len(data)
    for at in range(0, len(data) // 8 * 8 + 1, 8):
        step = step + _BOOST_Q & _MASK_64
        value ^= _folded(int.from_bytes(data[at : at + 8], "little") + step & _MASK_64)
    return _folded(value + step & _MASK_64) & INT31_MASK


def _folded(value: int) -> int:
    """Both halves of the product with the constant, one laid over the other."""
    product = value * _BOOST_K
    return product & _MASK_64 ^ product >> 64


HashingScheme = Literal["java", "murmur3", "boost", "go"]
"""How a key becomes a number whose remainder is the partition; named after the client whose default it is, but for
murmur3, which the Java, Go and C++ clients have in common and none has as its default."""

HASHING_SCHEME_DEFAULT: Final[HashingScheme] = "java"

KEY_HASHES: Final[dict[HashingScheme, Callable[[str], int]]] = {
    "java": java_string_hash_31,
    "murmur3": lambda key: murmur3_31(key.encode()),
    "boost": lambda key: boost_hash_31(key.encode()),
    "go": lambda key: go_string_hash_32(key.encode()),
}


def partition_of_key(key: str, partitions: int, scheme: HashingScheme = HASHING_SCHEME_DEFAULT) -> int:
    """The partition of a message with ``key`` as it travels (0 <= result < ``partitions``)."""
    return KEY_HASHES[scheme](key) % partitions
