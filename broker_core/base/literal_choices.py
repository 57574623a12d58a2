# SPDX-License-Identifier: Apache-2.0
"""The texts that a simple regular expression stands for, such as ``a`` and ``b`` for ``(a|b)``. Pure.

For names that nobody can list, so that an expression over them has to name them itself. Knows alternatives and groups;
what stands for any number of texts is refused. A dot is itself, for names have dots and cannot be guessed.
"""

from __future__ import annotations

import itertools
from typing import Final

CHOICES_MAX: Final = 100
"""Each is a question to the broker, asked again and again."""

_LITERAL: Final = frozenset("-=:._/")


def literal_choices(expression: str) -> tuple[str, ...]:
    """All texts that ``expression`` matches, each once, in its order; ValueError says what it has that is not known."""
    reader = _Reader(expression)
    found = reader.alternatives()
    if reader.at < len(expression):
        raise ValueError(f'"{expression[reader.at]}" at character {reader.at + 1} stands for more than some names')
    return tuple(dict.fromkeys(found))


class _Reader:
    """Reads from left to right; ``at`` is the next character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0

    def alternatives(self) -> list[str]:
        found = self._sequence()
        while self._takes("|"):
            found += self._sequence()
            self._check(len(found))
        return found

    def _sequence(self) -> list[str]:
        found = [""]
        while (parts := self._part()) is not None:
            self._check(len(found) * len(parts))
            found = [before + part for before, part in itertools.product(found, parts)]
        return found

    def _part(self) -> list[str] | None:
        """What one character or group stands for; None at the end of the sequence."""
        if self._takes("("):
            self._takes("?:")
            found = self.alternatives()
            if not self._takes(")"):
                raise ValueError('a "(" has no ")"')
            return found
        escaped = self._text.startswith("\\", self.at)
        next_ = self._text[self.at + escaped : self.at + escaped + 1]
        if not next_ or not (next_ in _LITERAL or (next_.isalnum() and not escaped)):
            return None
        self.at += escaped + 1
        return [next_]

    def _takes(self, token: str) -> bool:
        taken = self._text.startswith(token, self.at)
        self.at += len(token) if taken else 0
        return taken

    def _check(self, count: int) -> None:
        if count > CHOICES_MAX:
            raise ValueError(f"it stands for more than {CHOICES_MAX} names")
