# SPDX-License-Identifier: Apache-2.0
"""``Arrival``: how a task waits for what a broker pushes, and learns that nothing comes any more.

The protocol does not say that a range or a topic has been pushed to its end. So a reader waits until it has been
quiet for ``QUIET_S``, and then asks the broker. Owns the waiting and the length of the quiet time; must not know what
comes, which its user keeps in a buffer of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from broker_core.base.errors import PulsarishError
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.wire.entry import BytesLike, EntryRef, split_broker_entry, verify_entry
from broker_core.wire.heads import MessageHead

_FIRST_WAIT_SHARE: Final = 32
"""The first wait is the whole divided by this: less than two seconds, by default."""

QUIET_S: Final = 0.25
"""After this long without an entry the broker is asked whether there are more."""


class ReattachTimer:
    """The wait for entries that the broker says it has, before their reader is attached anew.

    Apache Pulsar may let a reader into a topic that it is just deleting, or closing, answer its questions, and never
    send anything, nor say that the topic is gone. A broker that is merely slow gets twice as long each time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        """``timeout_s``: how long the reader tries altogether."""
        self._loop = loop
        self._first_s = self._next_s = timeout_s / _FIRST_WAIT_SHARE
        self._until = loop.time() + self._next_s

    @property
    def left_s(self) -> float:
        """Seconds until then."""
        return self._until - self._loop.time()

    @property
    def is_over(self) -> bool:
        return self.left_s <= 0

    def renew(self) -> None:
        """The reader is attached anew."""
        self._next_s *= 2
        self._until = self._loop.time() + self._next_s

    def reset(self) -> None:
        """Begin the wait anew: an entry has come."""
        self._next_s = self._first_s
        self._until = self._loop.time() + self._next_s


class Arrival:
    """Waiting of one task at a time; what came while no task waited is not remembered."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._awaited: asyncio.Future[None] | None = None

    def tell(self) -> None:
        """Wake the task that waits: an entry has come, or nothing will come any more."""
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    async def came(self) -> bool:
        """Return as soon as something comes; false if it stays quiet."""
        self._awaited = self._loop.create_future()
        try:
            async with asyncio.timeout(QUIET_S):
                await self._awaited
                return True
        except TimeoutError:
            return False
        finally:
            self._awaited = None

    async def came_or(self, answer: asyncio.Task[Any]) -> None:
        """Return as soon as something comes, or ``answer`` has ended."""
        self._awaited = self._loop.create_future()
        try:
            await asyncio.wait((self._awaited, answer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._awaited = None


def delivered_entry(
    head: MessageHead, body: bytes, topic: TopicName, as_summed: Callable[[BytesLike], Any] = bytes
) -> EntryRef:
    """The entry of a MESSAGE of ``topic``. Raises the error of a damaged one, which names it; ``as_summed``
    as ``verify_entry`` takes it."""
    try:
        broker, entry = split_broker_entry(body)
        verify_entry(entry, as_summed)
    except PulsarishError as failure:
        raise of_entry(Position(head.ledger, head.entry), topic, failure) from failure
    index, time_ms = (broker.index, broker.broker_timestamp) if broker is not None else (-1, -1)
    return EntryRef(head.ledger, head.entry, entry, index, time_ms)


def of_entry(position: Position, topic: TopicName, failure: PulsarishError) -> PulsarishError:
    """``failure``, naming the entry that it is about."""
    return type(failure)(f"entry {position} of {topic}: {failure.message}", hint=failure.hint)
