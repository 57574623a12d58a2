# SPDX-License-Identifier: Apache-2.0
"""``Misfit``: a value or a payload is not what its schema says, with the path of the field."""

from __future__ import annotations

from typing import Any, Final

_SHOWN_MAX: Final = 60
"""Characters of a value in an error."""


class Misfit(ValueError):  # noqa: N818 - no error of the tree: who catches it knows the message, and makes one of it
    """``reason`` says what is wrong; the path grows on its way out, from the inside."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self._names: list[str] = []

    def within(self, name: str) -> Misfit:
        """The same, seen from outside of the field ``name``; ``[]`` for an item and ``{}`` for a value of a map."""
        self._names.append(name)
        return self

    def __str__(self) -> str:
        path = "".join(name if name in ("[]", "{}") else f".{name}" for name in reversed(self._names)).lstrip(".")
        return f"{path}: {self.reason}" if path else self.reason


def shown(value: Any) -> str:
    """``value`` for an error."""
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def wanted(kind: str, value: Any) -> Misfit:
    """The misfit of ``value`` where ``kind`` is asked for."""
    return Misfit(f"{shown(value)} is not {kind}")
