# SPDX-License-Identifier: Apache-2.0
"""The coordinators of transactions: how many there are, who serves each, and requests to them that survive reconnects.

A coordinator is a partition of a topic that nobody reads or writes: the broker that serves the partition is asked by
TC_CLIENT_CONNECT to be the coordinator of this connection, and then takes its requests. Coordinators are found when the
first transaction is begun, and attached when one is begun there. Knows nothing of what a transaction is about.

Invariants: a request keeps its id however often it is sent; it is sent again only when its connection has ended, or
when the broker is no coordinator any more, and then to the next one; it counts how often it has been sent, for an
answer to a repeated request may be about the first one.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import Final

from broker_core.base.errors import (
    ConnectionLostError,
    InvalidTxnStatusError,
    NotAllowedError,
    OperationTimeoutError,
    PulsarishError,
    TopicNotFoundError,
    TransactionCoordinatorNotFoundError,
    TransactionNotFoundError,
)
from broker_core.base.names import TopicName
from broker_core.client.connecting.attachment import Attachment
from broker_core.client.connecting.connection import Connection
from broker_core.client.connecting.gathered import outcomes
from broker_core.client.connecting.network import Network
from broker_core.wire.heads import TxnId
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from broker_core.wire.transactions import add_partitions_to_txn, end_txn, shown, tc_client_connect

logger = logging.getLogger(__name__)

ASSIGN_TOPIC: Final = TopicName.parse("persistent://pulsar/system/transaction_coordinator_assign")
"""Its partitions are the coordinators, by their numbers."""

REQUESTS_AT_ONCE: Final = 1000
"""Requests to one coordinator that wait for their answers, as in the Java client."""


class CoordinatorRequest:
    """A request to one coordinator: the same command under the same id, however often it is sent."""

    def __init__(self, network: Network, command: Callable[[int], BaseCommand]) -> None:
        """``command`` makes the command with its request id."""
        self.id = network.next_coordinator_request_id()
        self.command = command(self.id)
        self.times_sent = 0


class Coordinator:
    """One coordinator."""

    def __init__(self, network: Network, number: int) -> None:
        self.number = number
        self._network = network
        self._what = f"transaction coordinator {number}"
        self._attachment = Attachment(network, ASSIGN_TOPIC.partition(number), self, self._what)
        self._opening = asyncio.Lock()
        self._is_open = False
        self._turns = asyncio.Semaphore(REQUESTS_AT_ONCE)

    @property
    def has_ended(self) -> bool:
        """Whether a broker has refused to serve it, so that it is attached no more."""
        return self._attachment.end is not None

    async def open(self) -> None:
        """Attach it, unless that was done before."""
        async with self._opening:
            if not self._is_open:
                await self._attachment.open()
                self._is_open = True

    async def ask(self, request: CoordinatorRequest) -> BaseCommand:
        """The answer to ``request``, which is sent again whenever its connection ends, for the operation timeout.

        Raises what the coordinator answers, or why there is no answer.
        """
        limit_s = self._network.config.operation_timeout_s
        try:
            async with asyncio.timeout(limit_s), self._turns:
                return await self._answered(request)
        except TimeoutError:
            raise OperationTimeoutError(f"{self._what} gave no answer in {limit_s:g} s") from None

    async def _answered(self, request: CoordinatorRequest) -> BaseCommand:
        backoff = self._network.new_backoff()
        while True:
            connection = await self._attachment.attached()
            request.times_sent += 1
            try:
                return await connection.request(request.command, request.id, math.inf)
            except ConnectionLostError as lost:
                logger.info("request is sent again to=%r reason=%s", self._what, lost)
            except TransactionCoordinatorNotFoundError as moved:
                logger.info("coordinator has moved which=%r answer=%s", self._what, moved)
                await asyncio.sleep(backoff.next_s())
                if connection.coordinators.get(self.number) is self:  # else another request has noticed it before
                    del connection.coordinators[self.number]
                    self._attachment.detached(connection, moved, "")

    async def close(self) -> None:
        """Leave it. Its transactions stay as they are."""
        await self._attachment.close()

    # -- the broker's side

    async def attach(self, connection: Connection) -> None:
        request_id = connection.next_request_id()
        connection.coordinators[self.number] = self
        try:
            await connection.request(tc_client_connect(self.number, request_id), request_id)
        except BaseException:
            connection.coordinators.pop(self.number, None)
            raise

    def given_up(self, failure: PulsarishError) -> None:
        """Requests that wait for a connection are told by the attachment."""

    def detached(self, connection: Connection, reason: PulsarishError, address: str) -> None:
        self._attachment.detached(connection, reason, address)


async def ended(coordinator: Coordinator, end: CoordinatorRequest) -> None:
    """Ask to end a transaction, and ask again where the answer may be one to a race of the request with itself.

    Apache Pulsar handles a repeated request beside the first one, and refuses one of the two for its status while
    the other ends the transaction. A status that refuses once more is that of a transaction with another end.
    """
    try:
        await coordinator.ask(end)
    except InvalidTxnStatusError:
        if end.times_sent == 1:
            raise
        logger.info("end is asked for again request=%d times_sent=%d", end.id, end.times_sent)
        await coordinator.ask(end)


class Coordinators:
    """The coordinators of one cluster, as one client uses them."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._finding = asyncio.Lock()
        self._found: list[Coordinator] = []
        self._turn = 0

    async def next(self) -> Coordinator:
        """The coordinator of the next transaction: each in turn, from the second one on as the official clients do.

        NotAllowedError where the brokers have no transactions.
        """
        await self._find()
        self._turn += 1
        return await self._opened(self._turn % len(self._found))

    async def are_there(self) -> bool:
        """Whether there are any. False is what a broker has answered; a failure to get its answer is raised."""
        try:
            await self.next()
        except NotAllowedError:
            return False
        return True

    async def end(self, txn_ids: Sequence[TxnId], action: pb.TxnAction) -> list[PulsarishError | None]:
        """Have the coordinators end transactions that may be another process's, side by side; each with its failure."""

        async def end_one(txn_id: TxnId) -> None:
            coordinator = await self._of(txn_id)
            await ended(coordinator, CoordinatorRequest(self._network, lambda number: end_txn(txn_id, action, number)))

        return await outcomes(end_one, txn_ids, REQUESTS_AT_ONCE)

    async def check_open(self, txn_ids: Sequence[TxnId]) -> list[PulsarishError | None]:
        """Ask of each transaction whether it is open, side by side; each with what its coordinator says if it is not.

        The question is a request to add no topic to it, which brokers refuse unless it is open.
        """

        async def check_one(txn_id: TxnId) -> None:
            coordinator = await self._of(txn_id)
            asked = CoordinatorRequest(self._network, lambda number: add_partitions_to_txn(txn_id, (), number))
            await coordinator.ask(asked)

        return await outcomes(check_one, txn_ids, REQUESTS_AT_ONCE)

    async def close(self) -> None:
        """Leave all of them."""
        await asyncio.gather(*(each.close() for each in self._found))

    async def _of(self, txn_id: TxnId) -> Coordinator:
        """The coordinator of a transaction; TransactionNotFoundError if none has its number."""
        await self._find(txn_id.most_bits)
        if not 0 <= txn_id.most_bits < len(self._found):
            raise TransactionNotFoundError(f"no coordinator has the number of transaction {shown(txn_id)}")
        return await self._opened(txn_id.most_bits)

    async def _find(self, number: int = 0) -> None:
        """Find coordinators, again if there were too few for one with that number: brokers may get more of them."""
        async with self._finding:
            if number >= len(self._found):
                added = range(len(self._found), await self._count())
                self._found += [Coordinator(self._network, each) for each in added]

    async def _count(self) -> int:
        task = "find the coordinators of transactions"
        try:
            count = await self._network.partitions(ASSIGN_TOPIC, task, create=False)
        except TopicNotFoundError:
            count = 0
        if not count:
            raise NotAllowedError(
                f"{self._network.config.service_url} has no coordinators of transactions",
                hint="set transactionCoordinatorEnabled=true in the broker's configuration",
            )
        return count

    async def _opened(self, number: int) -> Coordinator:
        if self._found[number].has_ended:
            self._found[number] = Coordinator(self._network, number)
        coordinator = self._found[number]
        await coordinator.open()
        return coordinator
