# SPDX-License-Identifier: Apache-2.0
"""Budgets of memory that all connections of a broker share: for input, for output, and for publishes under way.

*Input* before it is whole frames. Every connection has a small buffer of its own (``BUFFER_BYTES_FIRST``); whatever is
larger is lent from one budget. A frame that needs more is given all of its size at once or waits, in the order of
asking, and is not read meanwhile: so a frame that has begun to arrive can be completed, and large frames are not
starved by small ones. While others wait, memory is lent for one frame at a time. A larger buffer that only makes
reading quicker is lent while half of the budget is free, and taken back from connections that have nothing in it when
it is needed. A client that holds memory for which others wait must complete its frame: if it sends less than
``_BYTES_A_SECOND_MIN`` for ``_PATIENCE_S``, its connection is ended, until those that wait are served. While none
waits, a client may take its time.

*Output* that clients do not take. A connection whose client does not read is stalled at a mark and gets no more
messages. The more of the budget is with such connections, the lower is the mark for the next: an eighth of what is
left, for up to twice the mark may lie there, in answers to requests. So a few slow clients have large buffers, and ten
thousand cannot fill the memory.

*Publishes* that wait for the disk: backpressure instead of running out of memory. The producers count what they have in
flight; here it is added up after each read that published something and after each group commit, never per entry. A
connection with too much in flight, or any that publishes while the broker as a whole has too much, is not read any
more; TCP then slows its client down. It is read again once half of that is answered.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from broker_core.base.clock import Clock, TimerHandle, Timers
from broker_core.wire.frames import BUFFER_BYTES_FIRST, FrameReader

# -- input

_PATIENCE_S: Final = 5.0
_BYTES_A_SECOND_MIN: Final = 64 * 1024
"""The interface carries gigabytes a second. With 12 frames of 5 MiB at a time, 200 clients that send nothing are gone
in a minute and a half."""

_LOOK_S: Final = 1.0
"""How often it is looked whether a holder is too slow, while somebody waits."""

_SERVED_A_TURN: Final = 3
"""Connections that get memory in one turn of the loop. For each of them a buffer of another one may have to go, and to
give 5 MiB of pages back to the system takes more than a millisecond."""

_HUNG_UP_A_TURN: Final = 2
"""Connections that lose their place in one turn. The buffer of each goes, and up to ``_SERVED_A_TURN`` get theirs."""

_MAPPED_FROM_BYTES: Final = 256 * 1024
"""From here on a buffer has pages of its own, which go back to the system with it: the allocator would keep them."""


def allocate(size_bytes: int) -> Any:
    """A buffer for reading into."""
    return mmap.mmap(-1, size_bytes) if size_bytes >= _MAPPED_FROM_BYTES else bytearray(size_bytes)


class Holder(Protocol):
    """A connection, as the budget sees it."""

    @property
    def reader(self) -> FrameReader: ...

    @property
    def is_waiting_for_us(self) -> bool:
        """Whether it is the broker that does not go on, with input that is there."""
        ...

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def hang_up(self, reason: str) -> None: ...


@dataclass(slots=True, eq=False)
class InputAccount:
    """Memory that one connection has been lent."""

    holder: Holder
    held_bytes: int = 0
    begins_anew: bool = True
    since_s: float | None = None
    """While others wait: when it was last seen to bring enough of its frame, which had ``seen_bytes`` then."""
    seen_bytes: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether it could do without what it holds."""
        reader = self.holder.reader
        return not self.holder.is_waiting_for_us and reader.pending_bytes == 0


class InputBudget:
    """The memory that the connections of one broker borrow for their input."""

    def __init__(self, bytes_max: int, frame_bytes_max: int, clock: Clock, timers: Timers) -> None:
        """At least two frames of the largest size fit in, whatever ``bytes_max`` says."""
        self.bytes_max = max(bytes_max, 2 * frame_bytes_max)
        self.held_bytes = 0
        self._clock = clock
        self._timers = timers
        self._holders: dict[InputAccount, None] = {}
        self._waiting: dict[InputAccount, int] = {}
        self._timer: TimerHandle | None = None
        self._serving: TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Connections that are not read until there is room for their frame."""
        return len(self._waiting)

    def settle(self, account: InputAccount) -> None:
        """Something was read and acted on: lend what the next frame needs, or stop reading until that is possible."""
        reader = account.holder.reader
        if self._waiting and account.held_bytes and account.begins_anew:
            self._take_back(account)
            self._serve()
        account.begins_anew = False
        needed = reader.needed_bytes
        if needed > reader.allowed_bytes:
            self._need(account, needed)
        elif reader.busy_bytes > reader.allowed_bytes:
            self._offer(account, reader.busy_bytes)
        reader.grow_if_busy()

    def frames_taken(self, account: InputAccount) -> None:
        """The connection of ``account`` has completed a frame."""
        account.begins_anew = True
        account.since_s = None

    def release(self, account: InputAccount) -> None:
        """Take everything back if it has nothing in it."""
        if account.held_bytes and account.is_idle:
            self._take_back(account)
            self._serve()

    def forget(self, account: InputAccount) -> None:
        """The connection is gone, with its buffer."""
        self._waiting.pop(account, None)
        self._lend(account, -account.held_bytes)
        self._serve()

    def _need(self, account: InputAccount, needed: int) -> None:
        more = needed - BUFFER_BYTES_FIRST - account.held_bytes
        if not self._waiting and self._make_room(more, account):
            self._lend(account, more)
            return
        self._waiting[account] = more
        account.holder.pause_reading()
        if self._timer is None:
            self._timer = self._timers.call_later(_LOOK_S, self._look)

    def _offer(self, account: InputAccount, wanted: int) -> None:
        more = wanted - BUFFER_BYTES_FIRST - account.held_bytes
        if not self._waiting and 2 * (self.held_bytes + more) <= self.bytes_max:
            self._lend(account, more)

    def _lend(self, account: InputAccount, more: int) -> None:
        account.held_bytes += more
        self.held_bytes += more
        account.holder.reader.allowed_bytes = BUFFER_BYTES_FIRST + account.held_bytes
        if account.held_bytes:
            self._holders.setdefault(account)
        else:
            account.since_s = None
            self._holders.pop(account, None)

    def _take_back(self, account: InputAccount) -> None:
        """All but what it has in it."""
        reader = account.holder.reader
        reader.shrink()
        self._lend(account, reader.capacity_bytes - BUFFER_BYTES_FIRST - account.held_bytes)

    def _make_room(self, more: int, asking: InputAccount) -> bool:
        """Whether there is room for so much, if need be by taking back what others than ``asking`` do not use."""
        if self.held_bytes + more > self.bytes_max:
            for account in list(self._holders):
                if account is not asking and account.is_idle:
                    self._take_back(account)
                    if self.held_bytes + more <= self.bytes_max:
                        break
        return self.held_bytes + more <= self.bytes_max

    def _serve(self) -> bool:
        """Lend to connections that wait, to a few in a turn of the loop. True if the first of them waits on for want of
        room."""
        for _ in range(_SERVED_A_TURN):
            if not self._waiting:
                return False
            account, more = next(iter(self._waiting.items()))
            if not self._make_room(more, account):
                return True
            del self._waiting[account]
            self._lend(account, more)
            account.holder.resume_reading()
        if self._waiting and self._serving is None:
            self._serving = self._timers.call_later(0, self._serve_more)
        return False

    def _serve_more(self) -> None:
        self._serving = None
        self._serve()

    def _look(self) -> None:
        """While somebody waits: hang up those who keep memory and bring nothing, a few in a turn of the loop."""
        self._timer = None
        is_full = self._serve()
        if not self._waiting:
            return
        now_s = self._clock.monotonic()
        slow = [each for each in self._holders if self._is_too_slow(each, now_s)] if is_full else []
        for account in slow[:_HUNG_UP_A_TURN]:
            if self._waiting:
                account.holder.hang_up(
                    f"a frame of {account.holder.reader.needed_bytes} bytes does not get on while others wait for "
                    "memory (maxUnfinishedInputSizeInMB)"
                )
        self._timer = self._timers.call_later(0 if len(slow) > _HUNG_UP_A_TURN else _LOOK_S, self._look)

    def _is_too_slow(self, account: InputAccount, now_s: float) -> bool:
        bytes_now = account.holder.reader.pending_bytes
        if account.since_s is None or account.holder.is_waiting_for_us:
            account.since_s, account.seen_bytes = now_s, bytes_now
        elif now_s - account.since_s >= _PATIENCE_S:
            if bytes_now - account.seen_bytes < _PATIENCE_S * _BYTES_A_SECOND_MIN:
                return True
            account.since_s, account.seen_bytes = now_s, bytes_now
        return False


# -- output

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


# -- publishes

_CONNECTION_SHARE: Final = 4
"""One connection may use a quarter of the broker's budget, so that one fast producer cannot stop all others."""


@dataclass(slots=True, eq=False)
class PublishAccount:
    """One connection's part of the budget."""

    in_flight: Callable[[], int]
    """Counts the connection's unanswered bytes."""
    pause_reading: Callable[[], None]
    resume_reading: Callable[[], None]
    in_flight_bytes: int = 0
    paused: bool = False

    def recount(self) -> int:
        """Ask again how much is in flight; returns the change since the last time."""
        before = self.in_flight_bytes
        self.in_flight_bytes = self.in_flight()
        return self.in_flight_bytes - before

    def pause(self) -> None:
        if not self.paused:
            self.paused = True
            self.pause_reading()

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            self.resume_reading()


class PublishBudget:
    """Bytes that all connections may have in flight together."""

    __slots__ = ("_active", "bytes_max", "in_flight_bytes", "share_bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.share_bytes_max = bytes_max // _CONNECTION_SHARE
        self.in_flight_bytes = 0
        self._active: set[PublishAccount] = set()

    def published(self, account: PublishAccount) -> None:
        """A read from this connection has published something."""
        self._active.add(account)
        self.in_flight_bytes += account.recount()
        if account.in_flight_bytes > self.share_bytes_max or self.in_flight_bytes > self.bytes_max:
            account.pause()

    def committed(self) -> None:
        """A group commit has answered some of it."""
        idle = []
        for account in self._active:
            self.in_flight_bytes += account.recount()
            if not account.in_flight_bytes and not account.paused:
                idle.append(account)
        self._active.difference_update(idle)
        if self.in_flight_bytes <= self.bytes_max // 2:
            for account in self._active:
                if account.paused and account.in_flight_bytes <= self.share_bytes_max // 2:
                    account.resume()

    def forget(self, account: PublishAccount) -> None:
        """The connection is gone. What it had in flight is not waited for any more."""
        self._active.discard(account)
        self.in_flight_bytes -= account.in_flight_bytes
        account.in_flight_bytes = 0
        if not self._active:
            return
        self.committed()
