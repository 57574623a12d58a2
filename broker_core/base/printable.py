# SPDX-License-Identifier: Apache-2.0
"""Text of others as a terminal may get it: a name, key or payload can hold what moves the cursor or hides a row.

Owns the one rule of what is written as it is, and the two ways to write the rest: ``\\x1b`` for people, ``\\u001b`` in
JSON, where it means the same text. Pure.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any, Final

_OBEYED: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
"""Categories of characters that a terminal obeys or does not show: controls, directions of writing, halves of pairs,
characters that nobody has defined, separators of lines and paragraphs."""

_JOINERS: Final = "\u200c\u200d"
"""Words of some languages, and many emoji, are written with these; they move nothing."""

_PERHAPS_OBEYED: Final = re.compile("[^ -~]")


def printable(text: str, *, keep: str = "") -> str:
    """``text`` with every character that a terminal would obey, but those of ``keep``, in the notation of Python."""
    if text.isprintable():
        return text
    return _PERHAPS_OBEYED.sub(lambda found: found[0] if _is_kept(found[0], keep) else _for_people(found[0]), text)


def printable_json(value: Any, *, indent: int | None = None) -> str:
    """``value`` as JSON that any terminal takes, and any reader of JSON reads back as it was."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.isprintable():
        return text
    return _PERHAPS_OBEYED.sub(lambda found: found[0] if _is_kept(found[0], "\n") else json.dumps(found[0])[1:-1], text)


def _is_kept(character: str, keep: str) -> bool:
    return character in keep or character in _JOINERS or unicodedata.category(character) not in _OBEYED


def _for_people(character: str) -> str:
    code = ord(character)
    if code >= 0x100:
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character, f"\\x{code:02x}")
