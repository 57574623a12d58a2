# SPDX-License-Identifier: Apache-2.0
"""Breaks every promise about delivery, in the broker and in the clients, to prove that the rig finds out."""

from __future__ import annotations

import sys
from typing import Any

from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.broker.delayed.tracker import DueRule
from broker_core.broker.dispatch.given_out import GivenOut
from broker_core.broker.dispatch.key_shared import dispatcher
from broker_core.broker.publishing.deduplication import DUPLICATE, NEW, Deduplication
from broker_core.client import Message
from broker_core.client.chunks import chunk_split
from broker_core.client.dead_letters.dead_letters import DeadLetters, Letter, LetterProducers, LetterRouting
from broker_core.client.dead_letters.letter_copies import RECONSUMETIMES, dead_letter
from broker_core.client.messages.outgoing import MessageFields

_EARLY_MS = 60_000
_HEAD_BYTES = 32
"""Of an entry: its checksum is among them, so no other begins like it."""


def lie() -> None:
    """From now on, in children too."""
    _share_keys()
    _hurry()
    _forget_what_is_stored()
    _tear_chunks()
    _drop_dead_letters()
    _lose_and_miscount_retry_letters()


def _share_keys() -> None:
    """K1, K2: every entry counts as a key of its own, and what is handed out together is turned round."""
    send = GivenOut.send

    def turned(self: GivenOut, consumer: Any, ledger: int, deliveries: list[Any]) -> tuple[int, int]:
        by_key = isinstance(self._watcher, dispatcher.KeySharedDispatcher)
        return send(self, consumer, ledger, deliveries[::-1] if by_key else deliveries)

    _replace(GivenOut, "send", turned)
    _replace(dispatcher, "sticky_keys", lambda bodies, _keyless: [bytes(body[:_HEAD_BYTES]) for body in bodies])


def _hurry() -> None:
    """D1, D2: everything is due a minute early, and half a minute later than it would be with honest brokers.

    What is delayed by a second only comes when it is due after all where the machine is slow.
    """
    _replace(DueRule, "cutoff_ms", lambda self: self.clock.now_ms() + _EARLY_MS)
    if (producing := sys.modules.get("tests.kill.producing")) is None:
        return  # we are a broker
    fields = producing.Production._fields

    def delayed_by_more(self: Any, number: int) -> MessageFields:
        found: MessageFields = fields(self, number)
        if (due_ms := found.get("deliver_at_ms")) is not None:
            found["deliver_at_ms"] = self._due_ms[number] = due_ms + _EARLY_MS // 2
        return found

    _replace(producing.Production, "_fields", delayed_by_more)


def _forget_what_is_stored() -> None:
    """U1, U2: nothing was there before, except some messages that were not."""

    def verdict(_self: Deduplication, _name: str, sequence_id: int) -> int:
        return DUPLICATE if sequence_id % 10 == 9 else NEW

    _replace(Deduplication, "verdict", verdict)


def _tear_chunks() -> None:
    """R3: the last part of a message comes from its beginning."""
    split = chunk_split.split

    def torn(payload: bytes, limit_bytes: int) -> list[memoryview]:
        parts = split(payload, limit_bytes)
        return [*parts[:-1], memoryview(payload)[: len(parts[-1])]]

    _replace(chunk_split, "split", torn)


def _drop_dead_letters() -> None:
    """L1, L2: a dead letter is acknowledged and not copied, or its copy is of something else."""

    async def bury(self: DeadLetters, position: Position, messages: list[Message]) -> None:
        for message in messages:
            if message.message_id.entry % 2:
                fields = dead_letter(message, self._origin)
                message.value = b"something else"
                await self._producers.send(self._topic, message, fields, True)
            self._acknowledge(message.message_id)
        del self._leaving[position]

    _replace(DeadLetters, "_bury", bury)


def _lose_and_miscount_retry_letters() -> None:
    """L3, L4: the second letter of a message is never sent, or the first says that it is the third."""
    retry, send = LetterRouting.retry, LetterProducers.send

    def miscounting(self: LetterRouting, message: Message, *others: Any) -> Letter:
        letter = retry(self, message, *others)
        properties = letter.fields["properties"] or {}
        if message.message_id.entry % 2 and properties[RECONSUMETIMES] == "1":
            letter.fields["properties"] = {**properties, RECONSUMETIMES: "3"}
        return letter

    async def losing(
        self: LetterProducers, topic: TopicName, original: Message, fields: MessageFields, dead: bool
    ) -> None:
        if (fields["properties"] or {}).get(RECONSUMETIMES) != "2":
            await send(self, topic, original, fields, dead)

    _replace(LetterRouting, "retry", miscounting)
    _replace(LetterProducers, "send", losing)


def _replace(owner: Any, name: str, value: object) -> None:
    setattr(owner, name, value)
