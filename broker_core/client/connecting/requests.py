# SPDX-License-Identifier: Apache-2.0
"""The requests of one connection: who waits for which answer, and what was given up meanwhile.

Knows nothing of the socket. Invariant: each waiting caller is told once, of the answer or of the connection's end. What
is asked for a consumer ends with the consumer, too: a request that crosses the broker's CLOSE_CONSUMER is answered with
an error, or by Apache Pulsar not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from broker_core.base.errors import PulsarishError, ServerError, server_error
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

ANSWERS: Final = {
    BaseCommand.SUCCESS: "success",
    BaseCommand.ERROR: "error",
    BaseCommand.PRODUCER_SUCCESS: "producer_success",
    BaseCommand.PARTITIONED_METADATA_RESPONSE: "partitionMetadataResponse",
    BaseCommand.LOOKUP_RESPONSE: "lookupTopicResponse",
    BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE: "getLastMessageIdResponse",
    BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE: "getTopicsOfNamespaceResponse",
    BaseCommand.WATCH_TOPIC_LIST_SUCCESS: "watchTopicListSuccess",
    BaseCommand.ACK_RESPONSE: "ackResponse",
    BaseCommand.CONSUMER_STATS_RESPONSE: "consumerStatsResponse",
    BaseCommand.TC_CLIENT_CONNECT_RESPONSE: "tcClientConnectResponse",
    BaseCommand.NEW_TXN_RESPONSE: "newTxnResponse",
    BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE: "addPartitionToTxnResponse",
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE: "addSubscriptionToTxnResponse",
    BaseCommand.END_TXN_RESPONSE: "endTxnResponse",
    BaseCommand.GET_SCHEMA_RESPONSE: "getSchemaResponse",
    BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE: "getOrCreateSchemaResponse",
}
"""Commands that answer a request, and the field that has its number."""

_FAILURE_FIELDS: Final = (("error", "message"), ("error_code", "error_message"))


class Requests:
    """Requests of one connection to its broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[int, asyncio.Future[BaseCommand]] = {}
        self._consumers: dict[int, int] = {}
        """Which consumer a request is for, where it is for one."""
        self._taken_back: dict[int, Callable[[], None]] = {}
        """Calls for when the broker answers that it has done what was cancelled meanwhile."""

    def expect(self, request_id: int, consumer_id: int | None = None) -> asyncio.Future[BaseCommand]:
        """A future for the answer to a request that is about to be sent, for a consumer perhaps."""
        future = self._waiting[request_id] = self._loop.create_future()
        if consumer_id is not None:
            self._consumers[request_id] = consumer_id
        return future

    def forget(self, request_id: int) -> None:
        """Forget a request for whose answer nobody waits."""
        self._waiting.pop(request_id, None)
        self._consumers.pop(request_id, None)

    def take_back(self, request_id: int, leave: Callable[[], None]) -> None:
        """Call ``leave`` if that request is answered after all, and not with an error."""
        self._taken_back[request_id] = leave

    def answered(self, command: BaseCommand) -> None:
        """The broker has sent one of ``ANSWERS``."""
        answer = getattr(command, ANSWERS[command.type])
        if command.type == BaseCommand.PRODUCER_SUCCESS and not answer.producer_ready:
            if (leave := self._taken_back.get(answer.request_id)) is not None:
                leave()
            return  # The producer waits for its turn; the same request will be answered again.
        future = self._waiting.pop(answer.request_id, None)
        self._consumers.pop(answer.request_id, None)
        leave = self._taken_back.pop(answer.request_id, None)
        failure = _failure_in(answer)
        if leave is not None and failure is None:
            leave()
        if future is None or future.done():
            return
        if failure is not None:
            future.set_exception(failure)
        else:
            future.set_result(command)

    def fail_of(self, consumer_id: int, reason: PulsarishError) -> None:
        """The broker has closed a consumer: no answer may come to what was asked for it."""
        for request_id in [request_id for request_id, asked in self._consumers.items() if asked == consumer_id]:
            del self._consumers[request_id]
            future = self._waiting.pop(request_id)
            if not future.done():
                future.set_exception(reason)

    def fail(self, reason: PulsarishError) -> None:
        """The connection has ended: no answer will come."""
        self._taken_back.clear()
        self._consumers.clear()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(reason)


def _failure_in(answer: Any) -> ServerError | None:
    """The failure that an answer reports, under either of the names that fields for it have."""
    for code, text in _FAILURE_FIELDS:
        if code in answer.DESCRIPTOR.fields_by_name and answer.HasField(code):
            return server_error(getattr(answer, code), getattr(answer, text))
    return None
