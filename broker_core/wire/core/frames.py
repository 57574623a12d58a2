# SPDX-License-Identifier: Apache-2.0
"""Frames cut out of a buffer, and steps over the fields of commands that are too large to be read in one go.

Nothing is believed: a size is compared with what is there before it is used. Source: Pulsar docs, "Binary protocol -
Framing".
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:
    from broker_core.wire.core import uncompiled as cython

if cython.compiled:
    from cython.cimports.broker_core.wire.core import fields as pb
else:
    from broker_core.wire.core import fields as pb

from broker_core.base.errors import RemoteProtocolError


def cut_frames(
    view: memoryview,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    frame_bytes_max: cython.longlong,
    frames_max: cython.Py_ssize_t,
    command_bytes_max: cython.Py_ssize_t,
    viewed_from: cython.Py_ssize_t,
) -> tuple[list[Any], int, int, bool]:
    """Command and body of the next frames in ``view[start:end]`` that are complete, in order; no more than one behind
    ``command_bytes_max`` of commands. A body of ``viewed_from`` bytes or more is a view, any other a copy.

    Also where the frame begins that was not taken, the end of the last view, 0 for none, and whether that frame was not
    taken because its sizes cannot be or are above the limit.
    """
    data: cython.const[cython.uchar][::1] = view
    source: cython.p_const_uchar = cython.address(data[0]) if cython.compiled else view
    frames: list[Any] = []
    viewed_end: cython.Py_ssize_t = 0
    while end - start >= 8 and len(frames) < frames_max and command_bytes_max > 0:
        total = pb.u32(source, start)
        size = pb.u32(source, start + 4)
        if total > frame_bytes_max or size <= 0 or size > total - 4:
            return frames, start, viewed_end, True
        if total + 4 > end - start:
            break
        begin = start + 8
        start += 4 + total
        command = bytes(source[begin : begin + size])
        if start - begin - size >= viewed_from:
            frames.append((command, view[begin + size : start].toreadonly()))
            viewed_end = start
        else:
            frames.append((command, bytes(source[begin + size : start])))
        command_bytes_max -= size
    return frames, start, viewed_end, False


# -- steps over fields


def read_varint(data: bytes, at: cython.Py_ssize_t) -> tuple[int, int]:
    """A varint and where it ends; RemoteProtocolError if it has no end."""
    value, end = pb.varint(data, at, len(data))
    if end < 0:
        raise RemoteProtocolError(f"a command of {len(data)} bytes cannot be read: a number has no end")
    return value, end


def field_end(data: bytes, tag: cython.longlong, at: cython.Py_ssize_t) -> int:
    """Where the field ends whose value begins at ``at``; RemoteProtocolError if that is behind ``data``."""
    end = pb.field_end(data, tag & 7, at, len(data))
    if end < 0:
        raise RemoteProtocolError(f"a command of {len(data)} bytes cannot be read: a field has no end")
    return end


def skip_alike(
    data: bytes,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    tag: cython.int,
    count_max: cython.Py_ssize_t,
    bytes_max: cython.Py_ssize_t,
) -> tuple[int, int]:
    """Step over fields of this tag, which has one byte; where that ends and how many there were.

    It ends before another field, behind ``count_max``, and before the field that ``bytes_max`` does not hold whole; so
    a field in which anything is wrong is not stepped over.
    """
    source: cython.p_const_uchar = data
    last: cython.Py_ssize_t = min(end, at + bytes_max)
    count: cython.Py_ssize_t = 0
    while count < count_max and at < last and source[at] == tag:
        behind = pb.field_end(source, tag & 7, at + 1, last)
        if behind < 0:
            break
        at = behind
        count += 1
    return at, count
