# SPDX-License-Identifier: Apache-2.0
"""How much output that clients do not take may lie in memory, of all connections together.

A connection whose client does not read is stalled at a mark and gets no more messages. The more of the budget is with
such connections, the lower is the mark for the next: an eighth of what is left, for up to twice the mark may lie there,
in answers to requests. So a few slow clients have large buffers, and ten thousand cannot fill the memory. Knows no
sockets.
"""

from __future__ import annotations

from typing import Final

MARK_BYTES_MIN: Final = 64 * 1024
"""Every connection may have this much unsent, or none would get on."""

_PARTS: Final = 8


class OutputBudget:
    """The memory for output that stalled connections of one broker hold."""

    __slots__ = ("bytes_max", "stalled_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.stalled_bytes = 0

    def mark(self, high_bytes: int) -> int:
        """At how many unsent bytes the next connection is stalled; ``high_bytes`` while there is plenty."""
        return max(MARK_BYTES_MIN, min(high_bytes, (self.bytes_max - self.stalled_bytes) // _PARTS))

    def stalled(self, mark: int) -> int:
        """A connection has stalled at ``mark``. Returns what ``released`` is to be called with when it goes on."""
        taken = 2 * mark
        self.stalled_bytes += taken
        return taken

    def released(self, taken: int) -> None:
        """The connection goes on, or has ended: give back what ``stalled`` returned."""
        self.stalled_bytes -= taken
