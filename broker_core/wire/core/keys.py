# SPDX-License-Identifier: Apache-2.0
"""Kernels over columns of keys: hashes, the same numbers as ``base.hashing`` gives for single keys; base64, in which
keys of bytes travel; and what of them is UTF-8.

Whatever the bytes, no kernel reads beyond those of a key. Base64 has the standard alphabet; padding is written always
and needed never; what is padded must be padded right. Source: Pulsar's ``partition_key_b64_encoded``; RFC 4648; RFC
3629.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from broker_core.wire.core import uncompiled as cython

from broker_core.wire.core.uncompiled import kernel

if cython.compiled:
    from cython.cimports.broker_core.wire.core import fields as pb
else:
    from broker_core.wire.core import fields as pb

_LOW_32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_INT31 = cython.declare(cython.ulonglong, 0x7FFFFFFF)

# -- hashes

_MURMUR_1 = cython.declare(cython.ulonglong, 0xCC9E2D51)
_MURMUR_2 = cython.declare(cython.ulonglong, 0x1B873593)
_MURMUR_3 = cython.declare(cython.ulonglong, 0xE6546B64)
_MURMUR_4 = cython.declare(cython.ulonglong, 0x85EBCA6B)
_MURMUR_5 = cython.declare(cython.ulonglong, 0xC2B2AE35)

_BOOST_Q = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
_BOOST_K_HIGH = cython.declare(cython.ulonglong, 0xDF442D22)
_BOOST_K_LOW = cython.declare(cython.ulonglong, 0xCE4859B9)
_LOW_64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _rotate(value: cython.ulonglong, count: cython.int) -> cython.ulonglong:
    return (value << count | value >> (32 - count)) & _LOW_32


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _number(data: cython.p_const_uchar, at: cython.Py_ssize_t, count: cython.Py_ssize_t) -> cython.ulonglong:
    """``count`` bytes, little endian; 0 if that is not positive."""
    value: cython.ulonglong = 0
    byte: cython.ulonglong
    for i in range(count):
        byte = data[at + i]
        value |= byte << 8 * i
    return value


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _murmur3(data: cython.p_const_uchar, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.ulonglong:
    """MurmurHash3 x86 32 bit, seed 0."""
    h: cython.ulonglong = 0
    at: cython.Py_ssize_t = start
    while end - at >= 4:
        h ^= _rotate(_number(data, at, 4) * _MURMUR_1 & _LOW_32, 15) * _MURMUR_2 & _LOW_32
        h = _rotate(h, 13) * 5 + _MURMUR_3 & _LOW_32
        at += 4
    h ^= _rotate(_number(data, at, end - at) * _MURMUR_1 & _LOW_32, 15) * _MURMUR_2 & _LOW_32
    h ^= end - start
    h = (h ^ h >> 16) * _MURMUR_4 & _LOW_32
    h = (h ^ h >> 13) * _MURMUR_5 & _LOW_32
    return h ^ h >> 16


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _java(data: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.ulonglong:
    """31 times what there is, plus the next unit of UTF-16, all in 32 bits."""
    h: cython.ulonglong = 0
    unit: cython.ulonglong
    point: cython.ulonglong
    while at < end:
        unit = data[at]
        if unit < 0xC0:
            at += 1
        elif unit < 0xE0 and end - at > 1:
            unit = (unit & 0x1F) << 6 | data[at + 1] & 0x3F
            at += 2
        elif unit < 0xF0 and end - at > 2:
            unit = (unit & 0x0F) << 12 | (data[at + 1] & 0x3F) << 6 | data[at + 2] & 0x3F
            at += 3
        elif end - at > 3:
            point = (unit & 0x07) << 18 | (data[at + 1] & 0x3F) << 12
            point |= (data[at + 2] & 0x3F) << 6 | data[at + 3] & 0x3F
            h = 31 * h + 0xD800 + ((point - 0x10000 & _LOW_32) >> 10) & _LOW_32
            unit = 0xDC00 + (point & 0x3FF)
            at += 4
        else:  # not UTF-8: cut off
            at = end
        h = 31 * h + unit & _LOW_32
    return h


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _go(data: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.ulonglong:
    """31 times what there is, plus the next byte, all in 32 bits."""
    h: cython.ulonglong = 0
    while at < end:
        h = 31 * h + data[at] & _LOW_32
        at += 1
    return h


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _folded(value: cython.ulonglong) -> cython.ulonglong:
    """Both halves of the 128 bits of the product with Boost's constant, one laid over the other."""
    low: cython.ulonglong = value & _LOW_32
    high: cython.ulonglong = value >> 32
    below: cython.ulonglong = low * _BOOST_K_LOW
    middle: cython.ulonglong = low * _BOOST_K_HIGH + (below >> 32)
    carried: cython.ulonglong = high * _BOOST_K_LOW + (middle & _LOW_32)
    above: cython.ulonglong = high * _BOOST_K_HIGH + (middle >> 32) + (carried >> 32)
    return above ^ (carried & _LOW_32) << 32 ^ below & _LOW_32


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _boost(data: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.ulonglong:
    """The ``boost::hash`` of a string."""
    step: cython.ulonglong = _folded(_BOOST_Q)
    h: cython.ulonglong = step ^ (end - at)
    while at <= end:
        step = step + _BOOST_Q & _LOW_64
        h ^= _folded(_number(data, at, min(8, end - at)) + step & _LOW_64)
        at += 8
    return _folded(h + step & _LOW_64)


@kernel
def hash_rows(
    data: cython.const[cython.uchar][::1],
    offsets: cython.const[cython.int][::1],
    present: cython.const[cython.uchar][::1],
    scheme: cython.int,
    hashes: cython.longlong[::1],
) -> None:
    """The hash of each row that has a key, by Java's (0), murmur3 (1), Boost's (2) or Go's (3); others stay."""
    source: cython.p_const_uchar = cython.address(data[0]) if cython.compiled else data
    with cython.nogil:
        for row in range(present.shape[0]):
            if not present[row]:
                continue
            start, end = offsets[row], offsets[row + 1]
            if scheme == 0:
                hashes[row] = _java(source, start, end) & _INT31
            elif scheme == 1:
                hashes[row] = _murmur3(source, start, end) & _INT31
            elif scheme == 2:
                hashes[row] = _boost(source, start, end) & _INT31
            else:
                hashes[row] = _go(source, start, end)


# -- base64

_ALPHABET = cython.declare(bytes, b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_NOT_BASE64 = cython.declare(cython.int, 255)
_VALUES = cython.declare(bytes, bytes([_ALPHABET.find(byte) & 0xFF for byte in range(256)]))
_PAD = cython.declare(cython.uchar, 0x3D)


@kernel
def decode_marked(
    data: cython.const[cython.uchar][::1],
    offsets: cython.const[cython.int][::1],
    marked: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
    out_offsets: cython.int[::1],
) -> int:
    """Decode the rows that are marked and copy the others; returns the first row that is not base64, or -1.

    ``out`` must hold as many bytes as ``data`` has between the first and the last offset.
    """
    source: cython.p_const_uchar = cython.address(data[0]) if cython.compiled else data
    copies: cython.p_uchar = cython.address(out[0]) if cython.compiled else out
    values: cython.p_const_uchar = _VALUES
    at: cython.Py_ssize_t = 0
    out_offsets[0] = 0
    for row in range(marked.shape[0]):
        start, end = offsets[row], offsets[row + 1]
        if not marked[row]:
            at = pb.put_bytes(copies, at, source, start, end)
            out_offsets[row + 1] = at
            continue
        if end > start and (end - start) % 4 == 0 and data[end - 1] == _PAD:
            end -= 1
            if data[end - 1] == _PAD:
                end -= 1
        if (end - start) % 4 == 1:
            return row
        bits = count = 0
        for i in range(start, end):
            value = values[data[i]]
            if value == _NOT_BASE64:
                return row
            bits = (bits << 6 | value) & 0xFFFF
            count += 6
            if count >= 8:
                count -= 8
                out[at] = bits >> count & 0xFF
                at += 1
        out_offsets[row + 1] = at
    return -1


@kernel
def encode_marked(
    data: cython.const[cython.uchar][::1],
    offsets: cython.const[cython.int][::1],
    marked: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
    out_offsets: cython.int[::1],
) -> None:
    """Encode the rows that are marked and copy the others.

    ``out`` must hold four bytes for every three of a row that is marked, rounded up, and the others as they are.
    """
    source: cython.p_const_uchar = cython.address(data[0]) if cython.compiled else data
    copies: cython.p_uchar = cython.address(out[0]) if cython.compiled else out
    alphabet: cython.p_const_uchar = _ALPHABET
    at: cython.Py_ssize_t = 0
    out_offsets[0] = 0
    for row in range(marked.shape[0]):
        start, end = offsets[row], offsets[row + 1]
        if not marked[row]:
            at = pb.put_bytes(copies, at, source, start, end)
            out_offsets[row + 1] = at
            continue
        for i in range(start, end, 3):
            bits = data[i] << 16
            if end - i > 1:
                bits |= data[i + 1] << 8
            if end - i > 2:
                bits |= data[i + 2]
            out[at] = alphabet[bits >> 18]
            out[at + 1] = alphabet[bits >> 12 & 0x3F]
            out[at + 2] = alphabet[bits >> 6 & 0x3F] if end - i > 1 else _PAD
            out[at + 3] = alphabet[bits & 0x3F] if end - i > 2 else _PAD
            at += 4
        out_offsets[row + 1] = at


# -- text


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _character_size(data: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
    """Bytes of the character of UTF-8 at ``at``; 0 if there is none."""
    first: cython.int = data[at]
    if first < 0x80:
        return 1
    size = 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2
    if first < 0xC2 or first > 0xF4 or at + size > end:
        return 0
    second = data[at + 1]
    if (first == 0xE0 and second < 0xA0) or (first == 0xF0 and second < 0x90):
        return 0  # it would fit into fewer bytes
    if (first == 0xED and second > 0x9F) or (first == 0xF4 and second > 0x8F):
        return 0  # half a surrogate pair, or behind the last character
    for i in range(1, size):
        if data[at + i] >> 6 != 2:
            return 0
    return size


@kernel
def mark_text(
    data: cython.const[cython.uchar][::1], offsets: cython.const[cython.int][::1], marked: cython.uchar[::1]
) -> None:
    """Mark the rows that are UTF-8."""
    source: cython.p_const_uchar = cython.address(data[0]) if cython.compiled else data
    for row in range(marked.shape[0]):
        at, end, size = offsets[row], offsets[row + 1], 1
        while at < end and size > 0:
            size = _character_size(source, at, end)
            at += size
        marked[row] = at >= end
