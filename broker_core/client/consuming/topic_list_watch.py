# SPDX-License-Identifier: Apache-2.0
"""Being told by a broker when topics that match a pattern come or go, instead of only asking from time to time.

A watch is no more than a hint that asking is worth it: its owner asks for the whole list, and does so now and then
anyway, since a broker may not support watches, may refuse a pattern that it cannot match (its expressions are not
quite Python's), and watches persistent topics only. Kept up through lost connections. Source: PIP-145; semantics 7.12.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable

from broker_core.base.errors import PulsarishError
from broker_core.base.topics_pattern import TopicsPattern
from broker_core.client.connecting.connection import Connection
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.retrying import worth_retrying
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

logger = logging.getLogger(__name__)


class TopicListWatch:
    """Calls ``changed`` when the topics of ``pattern`` have changed, or may have while there was no watch."""

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
