# SPDX-License-Identifier: Apache-2.0
"""The keys whose routes are compared with those of the official clients: short, long, of every width of UTF-8."""

from __future__ import annotations

import hashlib
from typing import Final

PARTITIONS: Final = tuple(range(2, 18))

TEXTS: Final = (
    *(f"user-{number}" for number in range(30)),
    *(str(number) for number in range(10)),
    *(hashlib.sha1(str(number).encode()).hexdigest() for number in range(10)),
    *("abcdefghijklmnopqrstuvwxyz"[:size] for size in range(1, 20)),
    *(
        "Order-3459134",
        "hello",
        "key-0",
        "key-1",
        "a b",
        " ",
        "\t",
        "\x00",
        "x" * 1000,
        '{"id":7}',
        "a/b?c=d&e",
        "dXNlci0w",
    ),
    *("é", "aé", "Zürich", "Straße 7", "ñandú", "Ω", "\u07ff", "\u0800", "日本", "東京都-1", "\uffff", "ﬀ", "e\u0301"),
    *("😀", "key-😀", "😀😀😀", "\U00010000", "\U0010ffff", "👩\u200d👩\u200d👧", "mixed é日😀 text"),
)
"""Keys as text. An empty one is no key to the Go and the Python client, so it is not among them."""

BYTES: Final = (
    *(b"user-0", b"user-1", "Zürich".encode(), b"", b"\x00", b"\xff", b"\xff\x00", bytes(range(256))),
    *(hashlib.sha1(str(number).encode()).digest() for number in range(10)),
)
"""Keys as bytes, which only the Java client can send: they travel as base64 and are routed by that text."""
