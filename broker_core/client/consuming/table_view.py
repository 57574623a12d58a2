# SPDX-License-Identifier: Apache-2.0
"""The asyncio table view: a topic read as a table, the latest value of each key.

Reads from the first message on, in the compacted form where there is one, and goes on for as long as it lives. A null
or empty value removes its key; a message without a key is no row. Keys are text: a key of bytes stands in its base64
form. With a schema values are read by it, and a value that cannot be is the end of the view, as it would be wrong
without it; keys of separated pairs are those of the pair.
Everything is for the event loop, except that ``values`` may be read on any thread. Invariant: ``values`` is what a
reader of everything up to some message of each partition would have found. Source: Pulsar docs, "TableView"; PIP-104;
semantics 7.13.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Final, TypeAlias

from broker_core.base.errors import AlreadyClosedError, OperationTimeoutError, PulsarishError
from broker_core.base.names import TopicName
from broker_core.base.positions import MESSAGE_ID_EARLIEST, MessageId
from broker_core.client.connecting.network import Network
from broker_core.client.consuming.reader import AsyncReader
from broker_core.client.messages.message import Message
from broker_core.client.schemas.key_values import KeyValueSchema
from broker_core.client.schemas.schema import Schema
from broker_core.client.settings.callbacks import call_application
from broker_core.client.settings.config import ReaderConfig

logger = logging.getLogger(__name__)

OnChange: TypeAlias = Callable[[Any, Any], None]
"""Called with a key and its new value; None: the key was removed."""

MESSAGES_AT_ONCE: Final = 1000
"""Messages after which, with the rest of the last one's entry, others on the event loop get a turn."""


class AsyncTableView:
    """A table. Made by ``AsyncClient.create_table_view``."""

    def __init__(self, reader: AsyncReader, network: Network, schema: Schema[Any] | None = None) -> None:
        self.values: dict[Any, Any] = {}
        """Rows of the table; only this class changes them."""
        self._schema = schema
        self.failure: PulsarishError | None = None
        """The reason why nothing more comes, if so."""
        self._reader = reader
        self._network = network
        self._listeners: list[OnChange] = []
        self._applied: dict[str, MessageId] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._task = network.loop.create_task(self._follow())

    @classmethod
    async def create(cls, network: Network, topic: TopicName, schema: Schema[Any] | None = None) -> AsyncTableView:
        """Read what is published; raises why that is impossible."""
        config = ReaderConfig(read_compacted=True, schema=schema)
        reader = await AsyncReader.create(network, topic, MESSAGE_ID_EARLIEST, config)
        view = cls(reader, network, schema)
        try:
            await view.refresh()
        except BaseException:
            await view.close()
            raise
        return view

    def listen(self, listener: OnChange, with_present: bool = False) -> None:
        """Call ``listener`` with every change from now on; ``with_present``: and with what is there, first."""
        if with_present:
            for key, value in self.values.items():
                call_application(listener, key, value)
        self._listeners.append(listener)

    async def refresh(self) -> None:
        """Return when everything that was published before is in ``values``; raises what has ended the view."""
        last = await self._reader.consumer.last_messages()
        goals = {each.topic: each.message_id for each in last if each.message_id.entry >= 0}
        limit_s = self._network.config.operation_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                while not self._has_reached(goals):
                    waiter = self._network.loop.create_future()
                    self._waiters.append(waiter)
                    await waiter
        except TimeoutError:
            raise OperationTimeoutError(
                f"the table view of {', '.join(goals)} did not reach the last messages in {limit_s:g} s",
                hint="is the last message a chunk of one that is not complete?",
            ) from None

    def _has_reached(self, goals: Mapping[str, MessageId]) -> bool:
        if self.failure is not None:  # Of the last message, perhaps.
            raise copy(self.failure)
        return all(goal.position <= self._position_of(topic) for topic, goal in goals.items())

    def _position_of(self, topic: str) -> tuple[int, int]:
        return self._applied.get(topic, MESSAGE_ID_EARLIEST).position

    async def close(self) -> None:
        """Stop following the topic; ``values`` stays as it is. Harmless if closed."""
        self._network.open.discard(self)
        self._fail(AlreadyClosedError(f"the table view of {', '.join(self._reader.consumer.topics)} is closed"))
        await self._network.to_the_end(self._leave())

    async def _leave(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._reader.close()

    async def _follow(self) -> None:
        ahead: Message | None = None
        try:
            while True:
                message = ahead or await self._reader.read_next()
                await self._reader.consumer.learn_schemas([message])
                ahead = self._apply_some(message)
                self._wake()
                await asyncio.sleep(0)
        except PulsarishError as failure:
            if self.failure is None:
                logger.error("table view failed topics=%s error=%s", self._reader.consumer.topics, failure)
            self._fail(failure)

    def _apply_some(self, message: Message) -> Message | None:
        """Apply ``message`` and what is here behind it; return the next one if that is too much for one turn.

        A turn ends with an entry: whoever is woken amid a batch would miss the rest of it, and not know.
        """
        applied = 0
        while True:
            self._apply(message)
            applied += 1
            following = self._reader.consumer.take()
            if following is None:
                return None
            self._reader.has_read(following)
            if self._reader.consumer.lacks_schema(following):
                return following
            if applied >= MESSAGES_AT_ONCE and following.message_id.position != message.message_id.position:
                return following
            message = following

    def _apply(self, message: Message) -> None:
        self._applied[message.topic] = message.message_id
        key = message.key
        if key is None:
            return
        name: Any = key if isinstance(key, str) else base64.b64encode(key).decode("ascii")
        value: Any = message.value or None  # an empty value is a tombstone to compaction, too
        if self._schema is not None:
            name, value = _read(self._schema, message, name)
        if value is not None:
            self.values[name] = value
        elif self.values.pop(name, None) is None:
            return
        for listener in self._listeners:
            call_application(listener, name, value)

    def _fail(self, failure: PulsarishError) -> None:
        self.failure = self.failure or failure
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _read(schema: Schema[Any], message: Message, name: str) -> tuple[Any, Any]:
    """Key and value of a row. The key is ``name``, or that of a separated pair if it can be one of a dict."""
    if not isinstance(schema, KeyValueSchema) or not schema.is_separated:
        return name, message.decoded if message.value else None
    pair = message.decoded
    try:
        hash(pair.key)
    except TypeError:
        return name, pair.value
    return pair.key, pair.value
