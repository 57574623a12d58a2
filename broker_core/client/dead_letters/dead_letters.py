# SPDX-License-Identifier: Apache-2.0
"""Messages of one partition that were delivered as often as the policy allows, and their copies in another topic.

A message whose redelivery count has reached the limit is shown once more and remembered. When it is to be redelivered
after all, or comes with a higher count, a copy goes to the dead letter topic instead. Invariants: the original is
acknowledged only after its copy is stored; while a copy is on its way the message is not shown.
Source: semantics 4.7.4, 4.7.5.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker_core.base.errors import PulsarishError
from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId, Position
from broker_core.client.dead_letters.letter_copies import dead_letter
from broker_core.client.dead_letters.letter_routing import LetterProducers
from broker_core.client.messages.message import Message

logger = logging.getLogger(__name__)


class DeadLetters:
    """The dead letters and retry letters of one topic or partition. ``origin``: what copies name as their first
    topic."""

    def __init__(
        self,
        producers: LetterProducers,
        topic: TopicName,
        origin: str,
        max_redeliver_count: int,
        acknowledge: Callable[[MessageId], None],
        failed: Callable[[Position], None],
    ) -> None:
        self._producers = producers
        self._topic = topic
        self._origin = origin
        self._max = max_redeliver_count
        self._acknowledge = acknowledge
        self._failed = failed
        self._candidates: dict[Position, dict[int, Message]] = {}
        self._leaving: dict[Position, asyncio.Task[None]] = {}

    def arrived(self, messages: list[Message]) -> list[Message]:
        """The messages of an entry that may be shown: all or none."""
        if not messages:
            return messages
        position = messages[0].message_id.position
        if position in self._leaving:
            return []
        if messages[0].redelivery_count < self._max:
            return messages
        self._candidates[position] = {each.message_id.batch_index: each for each in messages}
        if messages[0].redelivery_count == self._max:
            return messages
        self._send(position)
        return []

    def acknowledged(self, message_id: MessageId, *, whole: bool) -> None:
        """A message, or the last one of its entry, was acknowledged: it is no candidate any more."""
        position = message_id.position
        if whole:
            self._candidates.pop(position, None)
        elif position in self._candidates:
            self._candidates[position].pop(message_id.batch_index, None)

    def divert(self, positions: list[Position]) -> list[Position]:
        """Send copies of those that have reached the limit; returns the others, which are to be redelivered."""
        others = []
        for position in positions:
            if position in self._candidates:
                self._send(position)
            elif position not in self._leaving:
                others.append(position)
        return others

    def clear(self) -> None:
        """Everything comes again, with its count."""
        self._candidates.clear()

    async def settled(self) -> None:
        """Return when no copy is on its way any more."""
        await asyncio.gather(*self._leaving.values())

    def _send(self, position: Position) -> None:
        messages = list(self._candidates.pop(position).values())
        self._leaving[position] = asyncio.get_running_loop().create_task(self._bury(position, messages))

    async def _bury(self, position: Position, messages: list[Message]) -> None:
        """Copy the messages of one entry, and acknowledge each behind its copy.

        Behind the last one the whole entry is: what is known of its batch may have been forgotten meanwhile, since all
        was asked for again or the consumer was attached anew, and what came again then was not shown.
        """
        try:
            for number, message in enumerate(messages, 1):
                await self._producers.send(self._topic, message.value, dead_letter(message, self._origin), True)
                message_id = message.message_id
                if number == len(messages) and message_id.batch_index >= 0:
                    message_id = MessageId(*position, message_id.partition)
                self._acknowledge(message_id)
        except PulsarishError as failure:
            logger.warning("consumer dead letter failed topic=%s entry=%s error=%s", self._topic, position, failure)
            self._failed(position)
        finally:
            del self._leaving[position]
