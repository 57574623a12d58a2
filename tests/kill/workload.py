# SPDX-License-Identifier: Apache-2.0
"""The messages of the kill rig: content that names its message and shows whether it is intact."""

from __future__ import annotations

from typing import Final

from tests.kill.history import Message

_LARGE_EVERY: Final = 701
_LARGE_BYTES: Final = 300_000
_SIZES_BYTES: Final = (24, 100, 100, 257, 1024, 4096)
"""Most messages are small; every ``_LARGE_EVERY``-th spans many disk blocks, so that a kill can tear it."""

CHUNKED: Final = "chunked"
"""What the names of producers begin with whose messages are sent in chunks."""
CHUNK_BYTES: Final = 16_384
_CHUNKED_BYTES: Final = (40_000, 100, 16_384, 100_000, 17_000, 250_000)
"""Many chunks, few, and none at all."""


def encode(message: Message) -> bytes:
    """The one content of this message: its name, repeated to the size that its number asks for."""
    name = f"{message.producer}:{message.number};".encode()
    sizes = _CHUNKED_BYTES if message.producer.startswith(CHUNKED) else _SIZES_BYTES
    large = message.number % _LARGE_EVERY == _LARGE_EVERY - 1
    size = _LARGE_BYTES if large else sizes[message.number % len(sizes)]
    return (name * (size // len(name) + 1))[: max(size, len(name))]


def decode(content: bytes) -> Message | None:
    """The message that this is the content of; None if it is not exactly the content of any."""
    name, _, _ = content[:100].partition(b";")
    producer, _, number = name.decode(errors="replace").partition(":")
    if not number.isdecimal():
        return None
    message = Message(producer, int(number))
    return message if encode(message) == content else None
