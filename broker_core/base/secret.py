# SPDX-License-Identifier: Apache-2.0
"""``Secret``: a text that must not be shown by accident: a token, a password, a client secret.

Owns that it shows as stars in ``repr``, ``str`` and format strings, and so in logs, errors and plans; only ``reveal``
gives it away. It travels in a pickle, for that is how Spark hands it to its tasks. Knows nothing of what it is for.
"""

from __future__ import annotations

import hmac
from typing import Final

HIDDEN: Final = "***"


class Secret:
    """A text that shows as ``***``. Equal to a Secret of the same text, and to nothing else."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself: for the wire, never for people."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._encoded(), other._encoded())

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._text,)

    def _encoded(self) -> bytes:
        return self._text.encode("utf-8", "surrogatepass")
