# SPDX-License-Identifier: Apache-2.0
"""Discovery of added partitions, and of topics that match a pattern: by looking again, and by a broker's watch.

Owns the time between two looks; knows nothing of what is looked for. Invariants: one look at a time; a failure to look
is logged and changes nothing; after ``stop`` there is no look any more.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress

from broker_core.base.errors import PulsarishError
from broker_core.base.topics_pattern import TopicsPattern
from broker_core.client.connecting.connection import Connection
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.retrying import worth_retrying
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

logger = logging.getLogger(__name__)


class Discovery:
    """Calls ``look`` every ``period_s`` seconds on the running loop. ``what`` names the owner in the log."""

    def __init__(self, what: str, period_s: float, look: Callable[[], Awaitable[None]]) -> None:
        self._what = what
        self._period_s = period_s
        self._look = look
        self._woken = asyncio.Event()
        self._look_lock = asyncio.Lock()
        self._task = asyncio.get_running_loop().create_task(self._look_for_ever())

    def wake(self) -> None:
        """Look at once; if a look is under way, once more behind it."""
        self._woken.set()

    async def at_rest(self) -> None:
        """Return when no look is under way."""
        async with self._look_lock:
            return

    async def stop(self) -> None:
        """Look no more; one that is under way is cut off."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _look_for_ever(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._period_s):
                    await self._woken.wait()
            self._woken.clear()
            try:
                async with self._look_lock:
                    await self._look()
            except PulsarishError as failure:
                logger.warning("discovery failed what=%r error=%s", self._what, failure)


class TopicListWatch:
    """Calls ``changed`` when the topics of ``pattern`` have changed, or may have while there was no watch.

    A watch is no more than a hint that asking is worth it: its owner asks for the whole list, and does so now and then
    anyway, since a broker may not support watches, may refuse a pattern that it cannot match (its expressions are not
    quite Python's), and watches persistent topics only. Kept up through lost connections. Source: PIP-145; semantics
    7.12.
    """

    def __init__(self, network: Network, pattern: TopicsPattern, changed: Callable[[], None]) -> None:
        self._network = network
        self._pattern = pattern
        self._changed = changed
        self._id = network.next_watch_id()
        self._connection: Connection | None = None
        self._lost = asyncio.Event()
        self._task = network.loop.create_task(self._keep_watching())

    async def close(self) -> None:
        """Watch no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._leave()

    def topics_changed(self) -> None:
        self._changed()

    def detached(self, connection: Connection, reason: PulsarishError, address: str) -> None:
        self._connection = None
        self._lost.set()

    async def _keep_watching(self) -> None:
        backoff = self._network.new_backoff()
        while True:
            try:
                connection = await self._network.lookup.service_connection()
                if not connection.features.supports_topic_watchers:
                    return
                await self._register(connection)
            except PulsarishError as failure:
                self._leave()
                if not worth_retrying(failure, attached_before=True):
                    logger.info("topic watch refused pattern=%r reason=%s", self._pattern.text, failure)
                    return
            else:
                backoff.reset()
                self._changed()
                await self._lost.wait()
            await asyncio.sleep(backoff.next_s())

    async def _register(self, connection: Connection) -> None:
        self._lost.clear()
        self._connection = connection
        connection.topic_watches[self._id] = self
        request_id = connection.next_request_id()
        asked = pb.CommandWatchTopicList(
            request_id=request_id,
            watcher_id=self._id,
            namespace=str(self._pattern.namespace),
            topics_pattern=f"{re.escape(str(self._pattern.namespace))}/(?:{self._pattern.local.pattern})",
        )
        await connection.request(BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST, watchTopicList=asked), request_id)

    def _leave(self) -> None:
        """Tell the broker, which may have begun to watch, and do not wait for its answer."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.topic_watches.pop(self._id, None) is not None:
            closing = pb.CommandWatchTopicListClose(request_id=connection.next_request_id(), watcher_id=self._id)
            connection.send(BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST_CLOSE, watchTopicListClose=closing))
