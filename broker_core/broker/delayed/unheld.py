# SPDX-License-Identifier: Apache-2.0
"""The parts of the log that a dispatcher has read while delays were switched off.

Owns their ends: what is read then is sent and neither indexed nor noted as seen, and others may have indexed entries of
it, so that nothing else tells. Knows nothing of keys and buckets. Invariant: at most the last part has no end yet.
"""

from __future__ import annotations

from broker_core.base.positions import Position


class UnheldParts:
    """The parts that one dispatcher has read so, in the order in which it read them."""

    def __init__(self) -> None:
        self._parts: list[tuple[Position, Position]] = []
        self._begun: Position | None = None

    def begin(self, at: Position) -> None:
        """The entry ``at`` and those behind it are read while delays are off. Does nothing within such a part."""
        if self._begun is None:
            self._begun = at

    def end(self, at: Position) -> None:
        """Delays are on, and the dispatcher comes back to ``at``, what it could not send: only what lies before that
        was sent."""
        if self._begun is not None:
            self._parts.append((self._begun, at))
            self._begun = None

    def has(self, position: Position) -> bool:
        """Whether it was read and sent so, if it was read."""
        if self._begun is not None and position >= self._begun:
            return True
        return any(first <= position < end for first, end in self._parts)
