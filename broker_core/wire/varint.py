# SPDX-License-Identifier: Apache-2.0
"""Protobuf varints in Python, for the hand-coded heads only.

Numbers below 2**42, times in milliseconds among them, come from two tables; anything a 64-bit field can hold is encoded
right. Source: Protocol Buffers docs, "Encoding".
"""

from typing import Final

from broker_core.base.invariants import invariant

_TABLE_SIZE: Final = 1 << 14
_TWO_STEPS: Final = 1 << 28
_THREE_STEPS: Final = 1 << 42
_UINT64_MASK: Final = (1 << 64) - 1

SHORT: Final = 0x80
"""Numbers below this take one byte."""


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_LAST: Final = tuple(bytes((value,)) for value in range(0x80))
_NOT_LAST: Final = tuple(bytes((value | 0x80,)) for value in range(0x80))
# Put together from single bytes: encoding each number would be a good part of what importing a client takes.
VARINTS: Final = _LAST + tuple(low + high for high in _LAST[1:] for low in _NOT_LAST)
LOW_BITS: Final = 14
LOW_MASK: Final = _TABLE_SIZE - 1
LOW_14_BITS: Final = tuple(low + high for high in _NOT_LAST for low in _NOT_LAST)
"""The two bytes of the low bits of a number that has more."""


def beside_low_bits(high: int) -> tuple[tuple[bytes, ...], bytes]:
    """How numbers with these bits above the lowest ``LOW_BITS`` are encoded, those of one byte aside: a table of two
    bytes by the low bits, and what follows these."""
    return (LOW_14_BITS, varint(high)) if high else (VARINTS, b"")


def varint(value: int) -> bytes:
    """``value`` as a varint. Negative numbers become the ten bytes that int32 and int64 fields use for them."""
    if 0 <= value < _TABLE_SIZE:
        return VARINTS[value]
    if 0 < value < _TWO_STEPS:
        return LOW_14_BITS[value & _TABLE_SIZE - 1] + VARINTS[value >> 14]
    if 0 < value < _THREE_STEPS:
        low, middle = value & _TABLE_SIZE - 1, value >> 14 & _TABLE_SIZE - 1
        return LOW_14_BITS[low] + LOW_14_BITS[middle] + VARINTS[value >> 28]
    invariant(-(1 << 63) <= value <= _UINT64_MASK, "%d does not fit in 64 bits", value)
    return _encode(value & _UINT64_MASK)


def varints(first: int, count: int) -> list[bytes]:
    """``count`` consecutive numbers from ``first`` (>= 0) on, at a quarter of what they cost one by one."""
    encoded: list[bytes] = []
    number, end = first, first + count
    while number < end:
        low = number & _TABLE_SIZE - 1
        if number < _TABLE_SIZE:
            encoded += VARINTS[low : low + end - number]
        else:
            high = varint(number >> 14)
            encoded += [each + high for each in LOW_14_BITS[low : low + end - number]]
        number = first + len(encoded)
    return encoded
