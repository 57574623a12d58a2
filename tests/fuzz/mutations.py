# SPDX-License-Identifier: Apache-2.0
"""Mutations of frames: bits, bytes, lengths, cuts, splices, bodies and fields of other frames.

A mutated command gets sizes that fit again half the time, so that a mutation reaches the parser behind them too.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Final

_SIZES: Final = struct.Struct(">II")
_TYPE_TAG: Final = 0x08
_TYPES: Final = tuple(range(1, 128))
_WRONG_SIZES: Final = (0, 1, 3, 4, 5, 8, 255, 64 * 1024, 5 * 1024 * 1024, 2**31 - 1, 2**31, 2**32 - 1)

Mutation = Callable[[random.Random, bytearray, bytes], bytearray]
"""A mutation of a frame, given another frame."""


def mutated(chance: random.Random, frame: bytes, other: bytes) -> bytes:
    """``frame`` after one to three mutations, some of which take from ``other``."""
    content = bytearray(frame)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        content = chance.choice(MUTATIONS)(chance, content, other)
    return bytes(_refitted(content) if chance.random() < 0.5 else content)


def ends_with_a_frame(content: bytes) -> bool:
    """Whether the last frame of ``content``, by the sizes that it says, ends where the bytes end."""
    at = 0
    while at + 4 <= len(content):
        at += 4 + int.from_bytes(content[at : at + 4], "big")
    return at == len(content)


def _refitted(content: bytearray) -> bytearray:
    """A frame of the same bytes whose sizes are right."""
    if len(content) < _SIZES.size:
        return content
    _total, command = _SIZES.unpack_from(content)
    total = len(content) - 4
    _SIZES.pack_into(content, 0, total, min(command, total - 4))
    return content


# -- bits and bytes


def _flip_bits(chance: random.Random, content: bytearray, _other: bytes) -> bytearray:
    for _ in range(chance.choice((1, 1, 2, 8))):
        if content:
            content[_place(chance, content)] ^= 1 << chance.randrange(8)
    return content


def _set_byte(chance: random.Random, content: bytearray, _other: bytes) -> bytearray:
    if content:
        content[_place(chance, content)] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
    return content


def _insert(chance: random.Random, content: bytearray, _other: bytes) -> bytearray:
    at = chance.randint(0, len(content))
    content[at:at] = chance.randbytes(chance.choice((1, 2, 8, 100)))
    return content


def _repeat(chance: random.Random, content: bytearray, _other: bytes) -> bytearray:
    begin = chance.randint(0, len(content))
    part = content[begin : begin + chance.choice((1, 4, 20))]
    content[begin:begin] = part * chance.choice((1, 2, 50))
    return content


# -- lengths


def _wrong_total(chance: random.Random, content: bytearray, _other: bytes) -> bytearray:
    content[:4] = _wrong_size(chance, content[:4])
    return content


def _wrong_command_size(chance: random.Random, content: bytearray, _other: bytes) -> bytearray:
    content[4:8] = _wrong_size(chance, content[4:8])
    return content


def _wrong_size(chance: random.Random, size: bytearray) -> bytes:
    if chance.random() < 0.5:
        return chance.choice(_WRONG_SIZES).to_bytes(4, "big")
    return ((int.from_bytes(size, "big") + chance.randint(-9, 9)) % 2**32).to_bytes(4, "big")


# -- cuts and splices


def _cut(chance: random.Random, content: bytearray, _other: bytes) -> bytearray:
    return content[: chance.randint(0, len(content))]


def _delete(chance: random.Random, content: bytearray, _other: bytes) -> bytearray:
    at = chance.randint(0, len(content))
    del content[at : at + chance.choice((1, 2, 8))]
    return content


def _splice(chance: random.Random, content: bytearray, other: bytes) -> bytearray:
    return content[: chance.randint(0, len(content))] + other[chance.randint(0, len(other)) :]


def _add_body(chance: random.Random, content: bytearray, other: bytes) -> bytearray:
    content += other if chance.random() < 0.5 else chance.randbytes(20)
    content[:4] = max(0, len(content) - 4).to_bytes(4, "big")
    return content


# -- fields


def _other_type(chance: random.Random, content: bytearray, _other: bytes) -> bytearray:
    """The fields of one command under the type of another one."""
    if len(content) > 9 and content[8] == _TYPE_TAG:
        content[9] = chance.choice(_TYPES)
    return content


def _other_fields(chance: random.Random, content: bytearray, other: bytes) -> bytearray:
    """The type of this command with the fields of another one."""
    joined = content[8:10] + other[10:]
    return bytearray(_SIZES.pack(len(joined) + 4, len(joined))) + joined


def _both_fields(chance: random.Random, content: bytearray, other: bytes) -> bytearray:
    """The fields of two commands in one."""
    joined = content[8:] + other[10:]
    return bytearray(_SIZES.pack(len(joined) + 4, len(joined))) + joined


MUTATIONS: Final[tuple[Mutation, ...]] = (
    *(_flip_bits, _flip_bits, _set_byte, _insert, _repeat, _wrong_total, _wrong_command_size, _cut, _delete, _splice),
    *(_add_body, _other_type, _other_fields, _both_fields),
)


def _place(chance: random.Random, content: bytearray) -> int:
    """An index: behind the sizes three times in four, where there is anything."""
    return chance.randrange(min(8, len(content) - 1) if chance.random() < 0.75 else 0, len(content))
