# SPDX-License-Identifier: Apache-2.0
"""Charsets of STRING schemas: Java's producers may write text in another one than UTF-8, and say so in the schema."""

from __future__ import annotations

import codecs
from typing import Final

import pyarrow as pa

from broker_core.base.errors import RowError

PLAIN: Final = "utf-8"
"""The name that Python has for the charset of texts that say none."""


def known_charset(charset: str) -> str | None:
    """The name that Python has for a charset; None for one that it does not have, or that is none of text."""
    try:
        b"\xff".decode(charset, "replace")  # Python's codecs include hex and the like, and some that know no "replace".
        return codecs.lookup(charset).name
    except (LookupError, ValueError):
        return None


def encode_text(rows: pa.Array, charset: str) -> pa.Array:
    """Strings in another charset, binary; null is null. RowError for the first one that it cannot express."""
    found: list[bytes | None] = []
    for number, text in enumerate(rows.cast(pa.binary()).to_pylist()):
        try:
            found.append(None if text is None else text.decode().encode(charset))
        except UnicodeError as error:
            raise RowError(number, f"cannot be written: the value is no text in {charset}: {error}") from error
    return pa.array(found, pa.binary())
