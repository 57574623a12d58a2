# SPDX-License-Identifier: Apache-2.0
"""Keeps one producer or consumer attached to the broker that serves its topic, through lost connections and moves.

States: opening (``open``), attached, detached (a task tries again and again), given up, closed. Owns the lookup of
the broker, the connection and the waiting; the owner's ``attach`` speaks the protocol. Invariants: at most one task
attaches at a time; the owner hears ``attach`` only while not closed; once ``given_up`` was called nothing follows.
"""

from __future__ import annotations

import asyncio
import logging
from copy import copy
from typing import Protocol

from broker_core.base.errors import (
    AlreadyClosedError,
    ConfigError,
    ConnectionLostError,
    OperationTimeoutError,
    PulsarishError,
)
from broker_core.base.names import TopicName
from broker_core.client.connecting.connection import Connection
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.retrying import explained, retrying, worth_retrying
from broker_core.client.connecting.service_url import BrokerAddress, address_named_by
from broker_core.client.connecting.waiting import outcome_of
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

logger = logging.getLogger(__name__)

STABLE_S = 1.0
"""An attachment that lasted this long was a success, so that the next one may be tried without delay."""


class Attached(Protocol):
    """The owner of an attachment. ``attach`` registers at ``connection``, and raises what the broker answers.

    ``given_up``: the broker refuses for good; there will be no other attempt.
    """

    async def attach(self, connection: Connection) -> None: ...

    def given_up(self, failure: PulsarishError) -> None: ...


class Attachment:
    """The relation of ``owner`` to the broker of ``topic``. ``what`` names the owner in errors.

    ``dedicated``: over a connection of its own. ``knows_broker``: who served the topic last is tried first, for owners
    whose topic was asked about a moment ago.
    """

    def __init__(
        self,
        network: Network,
        topic: TopicName,
        owner: Attached,
        what: str,
        *,
        dedicated: bool = False,
        knows_broker: bool = False,
    ):
        self.connection: Connection | None = None
        """The connection at which the owner is attached, or None."""
        self._network = network
        self._topic = topic
        self._owner = owner
        self._what = what
        self._dedicated = dedicated
        self._knows_broker = knows_broker or dedicated
        self._target: BrokerAddress | None = None
        self._detached_meanwhile = False
        self.end: PulsarishError | None = None
        """The reason why there will be no other attempt: given up or closed; None as long as there may be."""
        self._task: asyncio.Task[None] | None = None
        self._backoff = network.new_backoff()
        self._attached_at = 0.0
        self._change: asyncio.Future[None] | None = None
        self._last_failure: PulsarishError | None = None

    async def open(self, timeout_s: float | None = None) -> None:
        """Attach for the first time, within ``timeout_s`` or the operation timeout; raises why it is impossible."""
        limit_s = self._network.config.operation_timeout_s if timeout_s is None else timeout_s
        await retrying(self._attach_once, f"attach {self._what}", limit_s, self._network.new_backoff())

    async def attached(self) -> Connection:
        """The connection, as soon as there is one; raises why there is none after the operation timeout."""
        connection, timeout_s = self.connection, self._network.config.operation_timeout_s
        if connection is not None:
            return connection
        try:
            async with asyncio.timeout(timeout_s):
                while self.connection is None:
                    if self.end is not None:
                        raise copy(self.end)
                    if self._change is None:
                        self._change = self._network.loop.create_future()
                    await outcome_of(self._change)
                return self.connection
        except TimeoutError:
            why = f", the last answer was: {self._last_failure.message}" if self._last_failure else ""
            raise OperationTimeoutError(f"{self._what} has no broker since {timeout_s:g} s{why}") from None

    def detached(self, connection: Connection, reason: PulsarishError, address: str, *, at_once: bool = False) -> None:
        """The owner's port was told so by ``connection``: attach again, at ``address`` if the broker named one.

        ``at_once``: this was expected, so there is nothing to wait for.
        """
        if self.end is not None:
            return
        if at_once:
            self._attached_at = -STABLE_S
        self._target = self._named(connection, address)
        self._detached_meanwhile = True
        self._last_failure = reason
        if self.connection is connection:
            logger.info("attachment lost owner=%r reason=%s", self._what, reason)
            self.connection = None
            self.again()

    def _named(self, connection: Connection, address: str) -> BrokerAddress | None:
        """The broker that ``connection`` has named as the next one, None to ask the cluster."""
        try:
            return address_named_by(connection.address, address) if address else None
        except ConfigError as unusable:
            logger.warning("broker names no usable address owner=%r error=%s", self._what, unusable)
            return None

    def again(self) -> None:
        """Attach anew in the background, unless that is under way."""
        self.connection = None
        if self.end is not None or (self._task is not None and not self._task.done()):
            return
        if self._network.loop.time() - self._attached_at >= STABLE_S:
            self._backoff.reset()
            delay_s = 0.0
        else:
            delay_s = self._backoff.next_s()
        self._task = self._network.loop.create_task(self._attach_until_done(delay_s))

    def give_back(self, goodbye: asyncio.Future[BaseCommand]) -> None:
        """The owner leaves its dedicated connection to the next, once the broker has answered its ``goodbye``."""
        connection, self.connection = self.connection, None
        if connection is not None:
            self._network.pool.give_back(connection, goodbye)

    async def close(self) -> None:
        """Stop attaching. The owner has said goodbye to the broker, or will not."""
        self.end = self.end or AlreadyClosedError(f"{self._what} is closed")
        connection, self.connection = self.connection, None
        self._changed()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._dedicated and connection is not None:
            connection.close()

    async def _attach_until_done(self, delay_s: float) -> None:
        while True:
            await asyncio.sleep(delay_s)
            try:
                await self._attach_once()
            except PulsarishError as failure:
                self._last_failure = failure = explained(failure, f"attach {self._what}")
                if not worth_retrying(failure, attached_before=True):
                    if not isinstance(failure, AlreadyClosedError):
                        logger.warning("attachment refused owner=%r error=%s", self._what, failure)
                    self.end = failure
                    self._changed()
                    self._owner.given_up(failure)
                    return
                logger.info("attachment failed owner=%r reason=%s", self._what, failure)
            else:
                logger.info("attachment back owner=%r", self._what)
                return
            delay_s = self._backoff.next_s()

    async def _attach_once(self) -> None:
        target, self._target = self._target, None
        if target is None:
            lookup = self._network.lookup
            target = await (lookup.known_broker_of if self._knows_broker else lookup.broker_of)(self._topic)
        connection = await self._network.lookup.connect(target, dedicated=self._dedicated)
        self._detached_meanwhile = False
        try:
            await self._owner.attach(connection)
        except BaseException:
            if self._dedicated:
                connection.close()
            raise
        if self._detached_meanwhile or not connection.is_open:
            raise ConnectionLostError(f"{self._what} was detached while it was being attached")
        if self._knows_broker:
            self._network.lookup.serves(self._topic, target)
        self.connection = connection
        self._attached_at = self._network.loop.time()
        self._changed()

    def _changed(self) -> None:
        if self._change is not None and not self._change.done():
            self._change.set_result(None)
        self._change = None
