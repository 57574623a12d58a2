# SPDX-License-Identifier: Apache-2.0
"""Redelivery of one partition's messages: negative acks, ack timeouts, dead letters.

One file knows all three, so that a message never waits for two of them: each message has exactly one tracker of
timeouts (the parent of several partitions has none), a nack takes the message out of it, and a message that is
redelivered for one reason is forgotten by the others. Runs on the event loop's thread, except ``taken``. Source:
semantics 4.2 to 4.5, 4.7.
"""

from __future__ import annotations

from typing import Final, Protocol

from broker_core.base.clock import Clock, Timers
from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId, Position
from broker_core.client.acks.ack_timeout import AckTimeoutTracker
from broker_core.client.acks.due_positions import NackTracker
from broker_core.client.dead_letters.dead_letters import DeadLetters
from broker_core.client.messages.message import Message
from broker_core.client.settings.callbacks import Interceptors
from broker_core.client.settings.config import ConsumerConfig

RETRY_S: Final = 1.0
"""After this a message comes again whose copy could not be written: not at once, or a broken topic makes a hot loop."""


class Redeliverable(Protocol):
    """The consumer behind it, as ``PartitionAcks``."""

    topic: TopicName

    def drop(self, positions: list[Position]) -> None: ...

    def ask_again(self, positions: list[Position]) -> None: ...

    def rewind(self) -> None: ...


class Redelivery:
    """The trackers of one partition. ``dead_letters`` is set by its owner; None without a policy."""

    def __init__(
        self,
        owner: Redeliverable,
        config: ConsumerConfig,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._owner = owner
        self._keeps_order = not config.is_shared
        self._nacks = NackTracker(
            config.negative_ack_redelivery_backoff or config.negative_ack_redelivery_delay_s,
            config.negative_ack_precision_bits,
            clock,
            timers,
            self._nacks_due,
        )
        self._awaited: set[Position] = set()
        """Positions in ``_nacks`` of entries that were never shown: they are taken out once the entry has come
        again."""
        self._interceptors = Interceptors(config.interceptors)
        self._timeouts: AckTimeoutTracker | None = None
        if config.ack_timeout_s:
            self._timeouts = AckTimeoutTracker(
                config.ack_timeout_s,
                config.ack_timeout_tick_s,
                config.ack_timeout_redelivery_backoff,
                clock,
                timers,
                self._timed_out,
                elsewhere=self._nacks,
            )
            self._timeouts.start()
        self.dead_letters: DeadLetters | None = None

    def taken(self, message: Message) -> None:
        """The application got ``message``; on any thread."""
        if self._timeouts is not None:
            self._timeouts.taken(message.message_id.position, message.redelivery_count)

    def arrived(self, messages: list[Message]) -> list[Message]:
        """The messages of an entry that may be shown, all or none: not while a nack waits, nor when given up."""
        if messages and messages[0].message_id.position in self._nacks:
            # A lost connection brought it back before its delay was over; it is asked for again in time, all of it:
            # others of its batch may have been queued and not taken, and nothing else would bring them.
            for each in messages:
                self._nacks.add(each.message_id.position, 0.0, each.message_id.batch_index)
            return []
        return messages if self.dead_letters is None else self.dead_letters.arrived(messages)

    def await_again(self, positions: tuple[Position, ...], delay_s: float) -> None:
        """Redeliver entries that were never shown: by the ack timeout, or else after ``delay_s`` (0: never)."""
        for each in positions:
            if self._timeouts is not None:
                self._timeouts.taken(each, 0)
            elif delay_s:
                self._nacks.add(each, delay_s)
                self._awaited.add(each)

    def here_again(self, position: Position) -> None:
        """An entry has come which may have been awaited."""
        if position in self._awaited:
            self._awaited.discard(position)
            self._nacks.discard(position)
        self._untime([position])

    def nack(self, message_id: MessageId, redelivery_count: int) -> None:
        """Redeliver the entry of ``message_id`` after the configured delay."""
        self._awaited.discard(message_id.position)
        self._nacks.nack(message_id, redelivery_count)
        self._untime([message_id.position])

    def again_soon(self, position: Position) -> None:
        """Redeliver an entry that was not negatively acknowledged."""
        self._nacks.add(position, RETRY_S)

    def copying(self, message_id: MessageId) -> None:
        """The application has a copy of this message written: until that has failed nothing else brings it back.

        Unless others of its batch do, which the application may hold or want again.
        """
        self._forget_nack(message_id)
        if message_id.batch_index < 0:
            self._untime([message_id.position])

    def acknowledged(self, message_id: MessageId, *, whole: bool) -> None:
        """A message was acknowledged; ``whole``: and with it its entry."""
        if self._timeouts is None and self.dead_letters is None and not self._nacks:
            return  # As nearly always, and for each message.
        position = message_id.position
        if whole:
            self._nacks.discard(position)
            self._awaited.discard(position)
            self._untime([position])
        else:
            self._forget_nack(message_id)
        if self.dead_letters is not None:
            self.dead_letters.acknowledged(message_id, whole=whole)

    def acknowledged_through(self, message_id: MessageId, *, whole: bool) -> None:
        """A message and all before it were acknowledged; ``whole``: and with it its entry."""
        if self._timeouts is None and not self._nacks:
            return
        position = message_id.position
        self._nacks.discard_through(message_id)
        if self._timeouts is not None:
            self._timeouts.discard_before(position)
        if whole:
            self._untime([position])

    def _nacks_due(self, positions: list[Position]) -> None:
        self._interceptors.told(lambda each: each.on_negative_acks_send, str(self._owner.topic), positions)
        self.redeliver(positions)

    def _timed_out(self, positions: list[Position]) -> None:
        self._interceptors.told(lambda each: each.on_ack_timeout_send, str(self._owner.topic), positions)
        self.redeliver(positions)

    def redeliver(self, positions: list[Position]) -> None:
        """Bring these entries back now, or send copies of them to the dead letter topic."""
        if self._keeps_order:
            # Order matters here more than repetition: everything from the mark-delete position on (4.2.5, 4.3.7).
            self._owner.rewind()
            return
        # Dropped first: what is taken in this very moment was taken before, and is forgotten with the rest.
        self._untrack(positions)
        self._awaited.difference_update(positions)
        again = positions if self.dead_letters is None else self.dead_letters.divert(positions)
        if again:
            self._owner.ask_again(again)

    def give_back(self, positions: list[Position]) -> None:
        """Bring entries back that nobody has refused: it is no reason for a dead letter."""
        self._untrack(positions)
        self._owner.ask_again(positions)

    def _untrack(self, positions: list[Position]) -> None:
        self._owner.drop(positions)
        self._untime(positions)
        for each in positions:
            self._nacks.discard(each)

    def clear(self) -> None:
        """Everything comes again anyway, or never: after a seek or a rewind."""
        self._nacks.clear()
        self._awaited.clear()
        self.reattached()

    def reattached(self) -> None:
        """A new connection: what was handed out comes again, with its count. Nacks keep their time."""
        if self._timeouts is not None:
            self._timeouts.clear()
        if self.dead_letters is not None:
            self.dead_letters.clear()

    def stop(self) -> None:
        """Stop all trackers."""
        self._nacks.clear()
        if self._timeouts is not None:
            self._timeouts.stop()

    async def settled(self) -> None:
        """Stop all trackers; returns when every pending dead letter is stored or has failed."""
        self.stop()
        if self.dead_letters is not None:
            await self.dead_letters.settled()

    def _forget_nack(self, message_id: MessageId) -> None:
        """Forget the nack of a message; others of its batch that the application holds may still need redelivery."""
        position = message_id.position
        if position not in self._nacks:
            return
        self._nacks.discard(position, message_id.batch_index)
        if self._timeouts is not None and position not in self._nacks:
            # Nothing else brings those others back any more.
            self._timeouts.taken(position, 0)

    def _untime(self, positions: list[Position]) -> None:
        if self._timeouts is not None:
            self._timeouts.discard(positions)
