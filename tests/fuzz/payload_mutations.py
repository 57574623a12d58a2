# SPDX-License-Identifier: Apache-2.0
"""Mutations of payloads: bits and bytes, cuts, splices, claims of endless lengths, nesting, texts that are none."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Final

from broker_core.schemas.avro.encoding import zigzag

Mutation = Callable[[random.Random, bytes, bytes], bytes]
"""A mutation of a payload, given another one."""

_CLAIMS: Final = (
    *(zigzag(number) for number in (2**31 - 1, 2**31, -(2**31), 2**62, -(2**62), 70_000, -70_000, 1_000)),
    *(b"\xff" * 10, b"\xff" * 9 + b"\x01", b"\x80" * 9 + b"\x01", b"\x80" * 20),
    *(struct.pack(">i", number) for number in (2**31 - 1, -1, -2, -(2**31))),
)
_NESTS: Final = (b"\x02", b"\x00", b"\x0a\x02", b"[", b'{"r":', b'{"l":[{"k":[', b"\x02\x02", b"\x8b\x03", b'{"a":[')
_TEXTS: Final = (
    *(b"\xff\xfe", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xc0\x80", b"\\ud800", b'"\\udfff"', b"\0"),
    *(b"NaN", b"-Infinity", b"1e999", b"9" * 5_000, b"-9223372036854775809", b"9223372036854775807", b"1.5e300"),
    *(b"null", b"[]", b"{}", b'""', b"true", b"0", b'"9999999999999999999999999999999999999999"', b'{"x":{}}', b"\n"),
    *(b'{"i":1}{"i":2}', b'"1E+999999999"', b'"0x1"', b'" 7 "', b'"1_0"'),
)


def mutated(chance: random.Random, payload: bytes, other: bytes) -> bytes:
    """``payload`` after one to three mutations, some of which take from ``other``."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        payload = chance.choice(_MUTATIONS)(chance, payload, other)
    return payload


def _cut(chance: random.Random, payload: bytes, _other: bytes) -> bytes:
    return payload[: chance.randint(0, len(payload))]


def _flip(chance: random.Random, payload: bytes, _other: bytes) -> bytes:
    content = bytearray(payload)
    for _ in range(chance.choice((1, 1, 2, 8)) if content else 0):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(content)


def _set(chance: random.Random, payload: bytes, _other: bytes) -> bytes:
    return _placed(chance, payload, bytes([chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))]), 1)


def _claim(chance: random.Random, payload: bytes, _other: bytes) -> bytes:
    return _placed(chance, payload, chance.choice(_CLAIMS), chance.choice((0, 1, 4)))


def _nest(chance: random.Random, payload: bytes, _other: bytes) -> bytes:
    return _placed(chance, payload, chance.choice(_NESTS) * chance.choice((10, 300, 3_000)), 0)


def _text(chance: random.Random, payload: bytes, _other: bytes) -> bytes:
    """A value of JSON in place of another one, or odd bytes anywhere."""
    values = [at for at, byte in enumerate(payload) if byte in b":["]
    if not values or chance.random() < 0.3:
        return _placed(chance, payload, chance.choice(_TEXTS), chance.choice((0, 2)))
    at = chance.choice(values) + 1
    end = min((found for mark in (b",", b"}", b"]") if (found := payload.find(mark, at)) >= 0), default=at)
    return payload[:at] + chance.choice(_TEXTS) + payload[end:]


def _splice(chance: random.Random, payload: bytes, other: bytes) -> bytes:
    return payload[: chance.randint(0, len(payload))] + other[chance.randint(0, len(other)) :]


def _noise(chance: random.Random, payload: bytes, _other: bytes) -> bytes:
    return chance.randbytes(chance.choice((0, 1, 2, len(payload), 8, 12, 16, 100)))


def _repeat(chance: random.Random, payload: bytes, _other: bytes) -> bytes:
    begin = chance.randint(0, len(payload))
    part = payload[begin : begin + chance.choice((1, 4, 20))]
    return payload[:begin] + part * chance.choice((2, 50, 500)) + payload[begin:]


_MUTATIONS: Final[tuple[Mutation, ...]] = (
    *(_cut, _cut, _flip, _flip, _set, _claim, _claim, _nest, _text, _text, _splice, _noise, _repeat),
)


def _placed(chance: random.Random, payload: bytes, part: bytes, over: int) -> bytes:
    """``part`` in place of ``over`` bytes."""
    at = chance.randint(0, len(payload))
    return payload[:at] + part + payload[at + over :]
