# SPDX-License-Identifier: Apache-2.0
"""Hashes of whole columns of keys, by compiled loops: the same numbers as ``base.hashing`` gives for single keys.

Keys are bytes of UTF-8 as they travel. Whatever the bytes, no kernel reads beyond those of a key. Numbers of 32 bits
are held in 64, those of 64 bits as two halves, so that nothing overflows where the source runs uncompiled.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from broker_core.base.hashing import HashingScheme
from broker_core.wire.batch.arrays import ByteColumn
from broker_core.wire.batch.compiled import ZERO, helper, int64, kernel

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

_MASK: Final = 0xFFFFFFFF
_INT31: Final = 0x7FFFFFFF

_BOOST_Q_HIGH: Final = 0x9E3779B9
_BOOST_Q_LOW: Final = 0x7F4A7C15
_BOOST_K_HIGH: Final = 0xDF442D22
_BOOST_K_LOW: Final = 0xCE4859B9


@helper
def _times(a: int, b: int) -> Any:
    """The low 32 bits of a product of 32-bit numbers, without overflowing 64 bits."""
    return (a & 0xFFFF) * b + (((a >> 16) * b & 0xFFFF) << 16) & _MASK


@helper
def _rotate(value: int, count: int) -> Any:
    return (value << count | value >> 32 - count) & _MASK


@helper
def _murmur3(data: Bytes, start: int, end: int) -> Any:
    """MurmurHash3 x86 32 bit, seed 0."""
    h = ZERO
    at = start
    while end - at >= 4:
        k = int64(data[at]) | int64(data[at + 1]) << 8 | int64(data[at + 2]) << 16 | int64(data[at + 3]) << 24
        h ^= _times(_rotate(_times(k, 0xCC9E2D51), 15), 0x1B873593)
        h = _times(_rotate(h, 13), 5) + 0xE6546B64 & _MASK
        at += 4
    k = ZERO
    for i in range(end - at):
        k |= int64(data[at + i]) << 8 * i
    h ^= _times(_rotate(_times(k, 0xCC9E2D51), 15), 0x1B873593)
    h ^= end - start
    h = _times(h ^ h >> 16, 0x85EBCA6B)
    h = _times(h ^ h >> 13, 0xC2B2AE35)
    return h ^ h >> 16


@helper
def _java(data: Bytes, start: int, end: int) -> Any:
    """31 times what there is, plus the next unit of UTF-16, all in 32 bits."""
    h = ZERO
    at = start
    while at < end:
        unit = int64(data[at])
        left = end - at
        if unit < 0xC0:
            at += 1
        elif unit < 0xE0 and left > 1:
            unit = (unit & 0x1F) << 6 | int64(data[at + 1]) & 0x3F
            at += 2
        elif unit < 0xF0 and left > 2:
            unit = (unit & 0x0F) << 12 | (int64(data[at + 1]) & 0x3F) << 6 | int64(data[at + 2]) & 0x3F
            at += 3
        elif left > 3:
            point = (unit & 0x07) << 18 | (int64(data[at + 1]) & 0x3F) << 12
            point |= (int64(data[at + 2]) & 0x3F) << 6 | int64(data[at + 3]) & 0x3F
            h = 31 * h + 0xD800 + (point - 0x10000 >> 10) & _MASK
            unit = 0xDC00 + (point & 0x3FF)
            at += 4
        else:  # not UTF-8: cut off
            at = end
        h = 31 * h + unit & _MASK
    return h


@helper
def _go(data: Bytes, start: int, end: int) -> Any:
    """31 times what there is, plus the next byte, all in 32 bits."""
    h = ZERO
    for at in range(start, end):
        h = 31 * h + int64(data[at]) & _MASK
    return h


@helper
def _product(a: int, b: int) -> Any:
    """Both halves of a product of 32-bit numbers, the high one first."""
    low = a * (b & 0xFFFF)
    high = a * (b >> 16)
    low += (high & 0xFFFF) << 16
    return (high >> 16) + (low >> 32), low & _MASK


@helper
def _folded(high: int, low: int) -> Any:
    """The number times Boost's constant, 128 bits, with its upper half laid over the lower one."""
    p1, p0 = _product(low, _BOOST_K_LOW)
    q1, q0 = _product(low, _BOOST_K_HIGH)
    r1, r0 = _product(high, _BOOST_K_LOW)
    s1, s0 = _product(high, _BOOST_K_HIGH)
    p1 += q0 + r0
    s0 += q1 + r1 + (p1 >> 32)
    s1 += s0 >> 32
    return p1 & _MASK ^ s1 & _MASK, p0 ^ s0 & _MASK


@helper
def _boost(data: Bytes, start: int, end: int) -> Any:
    """The low half of what ``boost::hash`` gives for a string."""
    step_high, step_low = _folded(ZERO + _BOOST_Q_HIGH, ZERO + _BOOST_Q_LOW)
    h_high, h_low = step_high, step_low ^ end - start
    at = start
    while at <= end:
        high = low = ZERO
        for i in range(min(4, end - at)):
            low |= int64(data[at + i]) << 8 * i
        for i in range(min(4, end - at - 4)):
            high |= int64(data[at + 4 + i]) << 8 * i
        step_low += _BOOST_Q_LOW
        step_high = step_high + _BOOST_Q_HIGH + (step_low >> 32) & _MASK
        step_low &= _MASK
        low += step_low
        high, low = _folded(high + step_high + (low >> 32) & _MASK, low & _MASK)
        h_high ^= high
        h_low ^= low
        at += 8
    h_low += step_low
    h_high, h_low = _folded(h_high + step_high + (h_low >> 32) & _MASK, h_low & _MASK)
    return h_low


@kernel
def hash_rows(data: Bytes, offsets: Int32s, present: Bytes, scheme: int, hashes: Int64s) -> None:
    """The hash of each row that has a key; ``scheme`` is a place in ``_SCHEMES``. Others are left as they are."""
    for row in range(present.size):
        if present[row]:
            start, end = int64(offsets[row]), int64(offsets[row + 1])
            if scheme == 0:
                hashes[row] = _java(data, start, end) & _INT31
            elif scheme == 1:
                hashes[row] = _murmur3(data, start, end) & _INT31
            elif scheme == 2:
                hashes[row] = _boost(data, start, end) & _INT31
            else:
                hashes[row] = _go(data, start, end)


_SCHEMES: Final[tuple[HashingScheme, ...]] = ("java", "murmur3", "boost", "go")


def hash_keys(keys: ByteColumn, scheme: HashingScheme) -> Int64s:
    """The hash of each key, 0 or more; -1 where there is none."""
    hashes = np.full(len(keys.present), -1, np.int64)
    hash_rows(*keys.arrays, _SCHEMES.index(scheme), hashes)
    return hashes
