# SPDX-License-Identifier: Apache-2.0
"""Bytes that wait to be written to one connection, written once per turn of the event loop.

Everything a connection says goes through its one ``Outbox``, so the order of ``put`` is the order on the wire: an
answer put after a receipt cannot overtake it. The outbox knows nothing of frames.

What must not be said yet is held back (``hold``, ``release``), and with it all that is put behind it.

Flow control. ``writable`` turns False when the transport holds more than its high mark; dispatch then pauses until
``on_writable`` is called. Bytes not yet handed to the transport are bounded too: a large pile is handed over at once
instead of at the end of the turn, so one pass of dispatch cannot run far past the mark before it learns of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from broker_core.server.budgets import OutputBudget

HAND_OVER_BYTES: Final = 256 * 1024
"""A pile of this size goes to the transport at once. Large enough that one system call carries many frames."""

_JOIN_BELOW_BYTES: Final = 4096
"""Mean size of buffers below which they are joined first: to tell the system of each costs more than a copy."""

_FLOODED_FACTOR: Final = 2
"""Dispatch stops at the high mark, so what lies above this many times of it are answers that nobody reads."""


@dataclass(slots=True, eq=False)
class Outbox:
    """The outgoing side of one connection."""

    _call_soon: Callable[[Callable[[], None]], object]
    _on_writable: Callable[[], None]
    """Called each time ``writable`` becomes True again."""
    _budget: OutputBudget
    _transport: asyncio.Transport | None = None
    _buffers: list[bytes] = field(default_factory=list)
    _piled_bytes: int = 0
    _taken_bytes: int = 0
    _mark_bytes: int = 0
    _high_bytes: int = 0
    _holds: int = 0
    _scheduled: bool = False
    _full: bool = False
    _ending: bool = False
    writable: bool = False

    def attach(self, transport: asyncio.Transport, high_bytes: int) -> None:
        """Write to ``transport``; above ``high_bytes`` unsent bytes the outbox is not writable, or earlier where many
        clients do not read."""
        self._transport = transport
        self._high_bytes = high_bytes
        self._set_mark(high_bytes)
        self.writable = True

    def detach(self) -> None:
        """The connection is gone: what is put from now on is dropped."""
        self._transport = None
        self._buffers.clear()
        self.writable = False
        self._release()

    def put(self, frame: bytes) -> None:
        """Queue one whole frame."""
        self._buffers.append(frame)
        self._piled_bytes += len(frame)
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._end_of_turn)
        elif self._piled_bytes >= HAND_OVER_BYTES:
            self.flush()

    def put_all(self, buffers: Iterable[bytes], total_bytes: int) -> None:
        """Queue the buffers of one or more whole frames, ``total_bytes`` long together."""
        self._buffers.extend(buffers)
        self._piled_bytes += total_bytes
        if self._piled_bytes >= HAND_OVER_BYTES:
            self.flush()
        elif not self._scheduled:
            self._scheduled = True
            self._call_soon(self._end_of_turn)

    def flush(self) -> None:
        """Hand everything to the transport, unless it is held back."""
        buffers = self._buffers
        if self._holds:
            if self.unsent_bytes > self._mark_bytes:
                self.writable = False
        elif buffers:
            piled_bytes, self._buffers, self._piled_bytes = self._piled_bytes, [], 0
            transport = self._transport
            # A connection that was reset is closing before ``detach`` is called; writing to it would raise here, in the
            # middle of a dispatch or a commit that is about many others.
            if transport is None or transport.is_closing():
                return
            if piled_bytes < _JOIN_BELOW_BYTES * len(buffers):
                transport.write(b"".join(buffers))
            else:
                transport.writelines(buffers)
            mark = self._budget.mark(self._high_bytes)
            if mark != self._mark_bytes and not self._full and not transport.is_closing():
                self._set_mark(mark)

    def hold(self) -> None:
        """Hand nothing to the transport until ``release`` was called as often as this."""
        self._holds += 1

    def release(self) -> None:
        """Bytes that were held back may go."""
        self._holds -= 1
        if self._holds:
            return
        self.flush()
        if self._ending:
            self.end()
        elif not self._full and self.unsent_bytes <= self._mark_bytes:
            self._go_on()

    def end(self) -> None:
        """Close the transport when it has everything; nothing more is to be put."""
        self.flush()
        self._ending = True
        self.writable = False
        if not self._holds and self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def cut_off(self) -> None:
        """End the connection at once: what is queued must not be said."""
        if self._transport is not None:
            self._transport.abort()

    def _end_of_turn(self) -> None:
        self._scheduled = False
        self.flush()

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the operating system has not taken yet."""
        held = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return self._piled_bytes + held

    @property
    def flooded(self) -> bool:
        """So much is unsent that the client's requests should wait."""
        return not self.writable and self.unsent_bytes > _FLOODED_FACTOR * self._mark_bytes

    def pause(self) -> None:
        """The transport holds too much, and will say when it has room again; it says neither twice."""
        if not self._taken_bytes and self._transport is not None:
            self._taken_bytes = self._budget.stalled(self._mark_bytes)
        self._full = True
        self.writable = False

    def resume(self) -> None:
        """The transport has room again."""
        self._full = False
        self._release()
        self._go_on()

    def _set_mark(self, mark: int) -> None:
        """Be stalled at so many unsent bytes: at once, if there are more."""
        self._mark_bytes = mark
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=mark, low=mark // 4)

    def _release(self) -> None:
        self._budget.released(self._taken_bytes)
        self._taken_bytes = 0

    def _go_on(self) -> None:
        if self._transport is not None and not self.writable and not self._ending:
            self.writable = True
            self._on_writable()
