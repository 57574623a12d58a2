# SPDX-License-Identifier: Apache-2.0
"""``RateLimit``: how many messages and bytes may pass in a second, and who waits until more may. ``SubscribeLimit``:
how often a consumer may subscribe.

Tokens come in at the rate, and what passes is paid for afterwards: an entry of any size goes through while there are
tokens, and the debt that it leaves is paid off before the next one. So the mean is exact whatever the size of entries.
What nobody uses is kept for ``_KEPT_S`` only: a pause is not made up for by a burst.

Those that wait go on in the order of waiting, one after the other while there is room, and nobody passes them by: a
subscription that is always ready cannot keep the topic's rate for itself. Source: semantics 7.16.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from broker_core.base.clock import Clock, TimerHandle, Timers
from broker_core.base.errors import NotAllowedError
from broker_core.base.names import TopicName
from broker_core.broker.requests import SubscribeRequest

_KEPT_S: Final = 0.1
"""Enough for a timer that fires late on a busy machine, and a hundredth of what passes in ten seconds."""

_STEP_S: Final = 0.02
"""So much is let through at a time: a pass of dispatch for each single message would cost more than the messages."""

_WAIT_S_MIN: Final = 0.001
"""Timers know no shorter time."""

_CONSUMERS_MAX: Final = 10_000
"""Consumers of a topic whose subscribing is counted, a few MB; with more, all begin anew."""

UNLIMITED: Final = 1 << 62


class Room(NamedTuple):
    """How much may pass now; the last entry may go beyond."""

    messages: int
    size_bytes: int


_ANY_AMOUNT: Final = Room(UNLIMITED, UNLIMITED)


GoOn: TypeAlias = Callable[[], None]
"""Told to one that waits: there is room. It waits no more, and may wait again at once. Equal ones are the same one."""


class _Tokens:
    """What may pass of one kind, messages or bytes. ``per_s`` is 0 if any amount may."""

    __slots__ = ("_kept", "_left", "_since_s", "_step", "per_s")

    def __init__(self, per_s: float, now_s: float) -> None:
        self.per_s = per_s
        self._step = max(1.0, per_s * _STEP_S)
        self._kept = max(self._step, per_s * _KEPT_S)
        self._left = self._kept
        self._since_s = now_s

    def room(self, now_s: float) -> int:
        """How much may pass now, 0 until a step of it may."""
        if not self.per_s:
            return UNLIMITED
        self._left = min(self._kept, self._left + (now_s - self._since_s) * self.per_s)
        self._since_s = now_s
        return int(self._left) if self._left >= self._step else 0

    def take(self, amount: int) -> None:
        """So much has passed."""
        if self.per_s:
            self._left -= amount

    def missing_s(self) -> float:
        """In how many seconds there is room, as of the last ``room``."""
        return max(0.0, self._step - self._left) / self.per_s if self.per_s else 0.0


_ANY_NUMBER: Final = _Tokens(0, 0)


class SubscribeLimit:
    """How often each consumer may subscribe in a period. All of them begin anew with each period."""

    __slots__ = ("_clock", "_period_s", "_seen", "_times", "_until_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times = 0
        self._period_s = 1
        self._until_s = 0.0
        self._seen: Counter[tuple[str, str]] = Counter()

    def set(self, times: int, period_s: int) -> None:
        """Limit to so many from now on; 0 or less is no limit. Nothing happens if that is so already."""
        if (times, period_s) == (self._times, self._period_s):
            return
        self._times, self._period_s, self._until_s = times, period_s, 0.0

    def check(self, topic: TopicName, request: SubscribeRequest) -> None:
        """NotAllowedError if this consumer, known by its host and name, has subscribed as often as it may; otherwise
        it has done so once more (semantics 7.16)."""
        if self._times <= 0:
            return
        now_s = self._clock.monotonic()
        consumer = request.peer.address.rpartition(":")[0], request.consumer_name
        is_full = len(self._seen) >= _CONSUMERS_MAX and consumer not in self._seen
        if now_s >= self._until_s or is_full:
            self._seen.clear()
            self._until_s = now_s + self._period_s
        if self._seen[consumer] >= self._times:
            raise NotAllowedError(
                f"consumer {request.consumer_name!r} subscribes to {topic} too often: "
                f"{self._times} times in {self._period_s} s are allowed",
                hint="wait before it subscribes again, or raise subscribeRate",
            )
        self._seen[consumer] += 1


class RateLimit:
    """A limit that several parts of the broker share, in messages and in bytes. Without a rate nothing is limited.

    ``used_up_times``: how often one had to wait, for statistics.
    """

    __slots__ = (
        "_bytes", "_clock", "_messages", "_served", "_timer", "_timers", "_waiting", "limited", "used_up_times",
    )  # fmt: skip

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._waiting: dict[GoOn, None] = {}
        self._served: GoOn | None = None
        self._timer: TimerHandle | None = None
        self._messages = self._bytes = _ANY_NUMBER
        self.limited = False
        self.used_up_times = 0

    def set(self, messages_per_s: float, bytes_per_s: float) -> None:
        """Limit to these rates from now on; 0 or less is no limit. Nothing happens if they are those that it has."""
        wanted = max(messages_per_s, 0), max(bytes_per_s, 0)
        if wanted == (self._messages.per_s, self._bytes.per_s):
            return
        now_s = self._clock.monotonic()
        self._messages, self._bytes = _Tokens(wanted[0], now_s), _Tokens(wanted[1], now_s)
        self.limited = wanted != (0, 0)
        self._serve()

    def room(self, go_on: GoOn) -> Room | None:
        """How much may pass; None if nothing may, or others wait: then ``go_on`` waits behind them."""
        if not self.limited:
            return _ANY_AMOUNT
        room = None if self._waiting and self._served != go_on else self._room()
        if room is None:
            self.wait(go_on)
        return room

    def take(self, messages: int, size_bytes: int) -> None:
        """So much has passed."""
        self._messages.take(messages)
        self._bytes.take(size_bytes)

    @property
    def is_used_up(self) -> bool:
        """Whether nothing may pass now."""
        return self.limited and self._room() is None

    def wait(self, go_on: GoOn) -> None:
        """Call ``go_on`` once there is room and those before it have gone on. It may wait already."""
        self._waiting.setdefault(go_on)
        self.used_up_times += 1
        self._arm()

    def forget(self, go_on: GoOn) -> None:
        """``go_on`` waits no more. Harmless if it did not."""
        self._waiting.pop(go_on, None)

    def _room(self) -> Room | None:
        now_s = self._clock.monotonic()
        room = Room(self._messages.room(now_s), self._bytes.room(now_s))
        return room if room.messages > 0 and room.size_bytes > 0 else None

    def _arm(self) -> None:
        if self._timer is None and self._served is None:
            self._room()  # for what is missing as of now
            delay_s = max(self._messages.missing_s(), self._bytes.missing_s(), _WAIT_S_MIN)
            self._timer = self._timers.call_later(delay_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self._serve()

    def _serve(self) -> None:
        """Let those go on that wait, one after the other while there is room."""
        if self._served is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and (not self.limited or self._room() is not None):
            self._served = go_on = next(iter(self._waiting))
            del self._waiting[go_on]
            try:
                go_on()
            finally:
                self._served = None
        if self._waiting:
            self._arm()


class Gate:
    """The two rates that one dispatcher keeps: that of its subscription, and its topic's.

    It waits for one that is used up, and then asks for both again; the topic's last, so that none waits there that
    could not go on.
    """

    __slots__ = ("_go_on", "_own", "_shared")

    def __init__(self, own: RateLimit, shared: RateLimit, go_on: GoOn) -> None:
        """``go_on`` is called when there may be room again."""
        self._own = own
        self._shared = shared
        self._go_on = go_on

    @property
    def limited(self) -> bool:
        return self._own.limited or self._shared.limited

    def room(self) -> Room | None:
        """How much may be sent; None: nothing, until ``go_on`` is called."""
        if not self.limited:
            return _ANY_AMOUNT
        own = self._own.room(self._go_on)
        shared = None if own is None else self._shared.room(self._go_on)
        if own is None or shared is None:
            return None
        return Room(min(own.messages, shared.messages), min(own.size_bytes, shared.size_bytes))

    def take(self, messages: int, size_bytes: int) -> None:
        """So much was sent."""
        self._own.take(messages, size_bytes)
        self._shared.take(messages, size_bytes)

    def close(self) -> None:
        """Nothing is sent any more."""
        self._own.forget(self._go_on)
        self._shared.forget(self._go_on)
