# SPDX-License-Identifier: Apache-2.0
"""A client of the transaction rig: takes messages, writes results to two topics and acknowledges, all in transactions.

    python -m tests.kill.txn_load CLIENT LIFE FOLDER SERVICE_URL SEED

Some transactions are aborted, some left to their timeout, and any may be cut off by a kill of the broker or of this
process; a process that follows a killed one has the next number for its life. ``feed`` writes what is taken, in
transactions too; ``watch`` reads all topics.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from broker_core.base.errors import (
    InvalidTxnStatusError,
    OperationTimeoutError,
    PulsarishError,
    TransactionHasOperationFailedError,
    TransactionNotFoundError,
    TransactionUnconfirmedError,
)
from broker_core.client import AsyncClient, ClientConfig, Message, MessageId
from broker_core.client.consuming.consumer import AsyncConsumer
from broker_core.client.producing.producer import AsyncProducer
from broker_core.client.settings.config import SubscriptionType
from broker_core.client.transactions.transaction import AsyncTransaction
from broker_core.wire.heads import TxnId
from tests.kill.history import Slot
from tests.kill.load import STATE_FILE
from tests.kill.shared_state import Phase, SharedState
from tests.kill.txn_history import Asked, Outcome, Place
from tests.kill.txn_notes import NOTES, Notebook, text_of, unended

_log = logging.getLogger(__name__)

INPUTS: Final = {"batched": True, "single": False}
"""Topics that are taken from -> whether their messages come in batches."""
OUTPUTS: Final = ("B", "C")
WORKERS: Final[dict[str, SubscriptionType]] = {
    "shared-0": "shared",
    "shared-1": "shared",
    "exclusive-0": "exclusive",
    "keyed-0": "key_shared",
    "keyed-1": "key_shared",
}
"""Clients -> type of their subscriptions, which is the subscription's name too."""
FEED: Final = "feed"
WATCH: Final = "watch"
CLIENTS: Final = (*WORKERS, FEED, WATCH)
TASKS: Final = 2
"""Consumers of each topic in a worker; Exclusive has one."""
KEYS: Final = 16

TIMEOUT_S: Final = 8.0
"""Time-out of transactions that are to be ended. Those of killed clients end by it."""
LEFT_S: Final = 0.4
"""Time-out of those that are left."""
ABORTED: Final = 0.15
LEFT: Final = 0.06
LEAVES: Final = 0.5
"""A consumer whose cumulative acknowledgement did not come about subscribes anew, or else asks for everything again."""
_OPERATION_TIMEOUT_S: Final = 5.0
_ASKED_TIMES: Final = 4
_AHEAD: Final = 400
_FED_FOR_EACH: Final = 0.6
"""The feed of each topic is ahead of the workers by so many messages, and goes on by so many for each transaction."""
_PAUSE_S: Final = 0.02


class Load:
    """One life of one client."""

    def __init__(self, name: str, life: int, folder: Path, client: AsyncClient, dice: random.Random) -> None:
        self.name = f"{name}.{life}"
        self.index = CLIENTS.index(name)
        self.client = client
        self.dice = dice
        self.state = SharedState(folder / STATE_FILE)
        self.notes = Notebook(folder / f"{name}.{life}.{NOTES}")

    @property
    def is_running(self) -> bool:
        return self.state.phase is Phase.RUN

    async def begin(self, *, left: bool) -> AsyncTransaction:
        return await self.client.new_transaction(LEFT_S if left else TIMEOUT_S)

    def choose(self) -> Asked:
        """The end that a transaction is to have."""
        drawn = self.dice.random()
        return "nothing" if drawn < LEFT else "abort" if drawn < LEFT + ABORTED else "commit"

    async def end(self, name: str, txn: AsyncTransaction, asked: Asked) -> Outcome:
        """Ask for the end of a transaction, and again if there is no answer."""
        outcome: Outcome = "unknown"
        if asked != "nothing":
            self.notes.asks(name, asked)
            for _ in range(_ASKED_TIMES):
                outcome = await _asked_once(txn, asked)
                if outcome != "unknown":
                    break
            self.notes.ended(name, outcome)
        self.state.add_progress(self.index, 1)
        return outcome

    async def resolve(self, name: str, txn_id: TxnId) -> None:
        """Abort a transaction that may be open, or learn how it ended, as long as the broker may be away."""
        while True:
            try:
                await self.client.end_transaction(txn_id, commit=False)
                return self.notes.resolved(name, committed=False)
            except InvalidTxnStatusError:
                return self.notes.resolved(name, committed=True)
            except TransactionNotFoundError:
                return None  # Apache Pulsar forgets
            except PulsarishError as failure:
                _log.info("%s is asked again: %s", name, failure)
                await asyncio.sleep(_PAUSE_S)

    async def repeat(self, session: Session) -> None:
        """One session after the other."""
        while self.is_running:
            try:
                await session.run()
            except PulsarishError as failure:
                _log.info("session of %s ended: %s", session.name, failure)
                await asyncio.sleep(_PAUSE_S)


async def _asked_once(txn: AsyncTransaction, asked: Asked) -> Outcome:
    try:
        await (txn.commit() if asked == "commit" else txn.abort())
    except (TransactionHasOperationFailedError, InvalidTxnStatusError) as refused:
        _log.info("%s", refused)
        return "fail"
    except TransactionNotFoundError:
        return "fail"
    except TransactionUnconfirmedError:
        return "unknown"
    except PulsarishError as failure:
        _log.info("%s has not ended: %s", txn, failure)
        return "unknown"
    return "ok"


def _transaction_knows(_message_id: MessageId | None, _failure: PulsarishError | None) -> None:
    """A transaction with a message that failed is not committed; nobody else needs to hear of the failure."""


class Session(ABC):
    """A series of consumers, or of producers, of one task."""

    def __init__(self, load: Load, name: str, batches: bool) -> None:
        self.name = name
        self._load = load
        self._batches = batches
        self._producers: dict[str, AsyncProducer] = {}
        self._written = 0
        self._transactions = 0

    @abstractmethod
    async def run(self) -> None:
        """One consumer or producer, to its end."""

    def _next_name(self) -> str:
        self._transactions += 1
        return f"{self.name}#{self._transactions}"

    def _value(self, about: str = "") -> str:
        self._written += 1
        return f"{self.name}/{self._written} {about}".rstrip()

    async def _write(self, writes: dict[str, list[str]], txn: AsyncTransaction) -> None:
        for topic, values in writes.items():
            if topic not in self._producers:
                self._producers[topic] = await self._load.client.create_producer(
                    topic, name=f"{self.name}>{topic}", batching_enabled=self._batches
                )
            producer = self._producers[topic]
            for value in values:
                message = producer.outgoing(value, key=f"k{self._load.dice.randrange(KEYS)}")
                await producer.reserve(message.size_bytes)
                producer.enqueue(message, _transaction_knows, txn=txn)


class Feeding(Session):
    """Writes one topic, in transactions of a few messages."""

    def __init__(self, load: Load, topic: str) -> None:
        super().__init__(load, f"{load.name}.{topic}", INPUTS[topic])
        self._topic = topic

    async def run(self) -> None:
        while self._load.is_running:
            if self._written > _AHEAD + _FED_FOR_EACH * self._load.state.total_progress():
                await asyncio.sleep(_PAUSE_S)
                continue
            await self._transact()

    async def _transact(self) -> None:
        load, asked = self._load, self._load.choose()
        txn = await load.begin(left=asked == "nothing")
        name = self._next_name()
        writes = {self._topic: [self._value() for _ in range(load.dice.randint(1, 12))]}
        load.notes.plan(name, txn.id, writes, None, [])
        with suppress(PulsarishError):
            await self._write(writes, txn)
        await load.end(name, txn, asked)


class Working(Session):
    """Takes messages of one topic."""

    def __init__(self, load: Load, topic: str, kind: SubscriptionType, number: int) -> None:
        super().__init__(load, f"{load.name}.{topic}.{number}", batches=number % 2 == 0)
        self._place = Place(topic, kind)
        self._is_cumulative = kind == "exclusive"
        self._kind = kind
        self._sessions = 0

    async def run(self) -> None:
        load = self._load
        self._sessions += 1
        session = f"{self.name}:{self._sessions}"
        load.notes.session(session, self._place)
        consumer = await load.client.subscribe(
            self._place.topic, self._place.subscription, type=self._kind, initial_position="earliest",
            receiver_queue_size=100,
        )  # fmt: skip
        try:
            taken: set[Slot] = set()
            for _ in range(load.dice.randint(5, 60)):
                messages = await consumer.batch_receive(load.dice.randint(1, 5), timeout_s=0.05)
                if not load.is_running:
                    return
                load.notes.got(session, messages)
                messages = self._unseen(messages, taken)
                if messages and not await self._transact(consumer, messages) and self._is_cumulative:
                    if load.dice.random() < LEAVES:
                        return
                    taken.difference_update(Slot.of(each.message_id) for each in messages)
                    consumer.redeliver_unacknowledged()
        finally:
            await consumer.close()

    def _unseen(self, messages: Sequence[Message], taken: set[Slot]) -> list[Message]:
        """Messages without repeats. A connection that was lost repeats what was not acknowledged then.

        Of an Exclusive consumer they may be acknowledged by now, and to take them once more would not be refused.
        """
        if not self._is_cumulative:
            taken.clear()
        fresh = []
        for each in messages:
            if (slot := Slot.of(each.message_id)) not in taken:
                taken.add(slot)
                fresh.append(each)
        return fresh

    async def _transact(self, consumer: AsyncConsumer, messages: Sequence[Message]) -> bool:
        """Whether the transaction was committed. If not, it has ended for certain where acknowledging is cumulative."""
        load, asked = self._load, self._load.choose()
        txn = await load.begin(left=asked == "nothing")
        name = self._next_name()
        writes = {topic: [self._value(text_of(each)) for each in messages] for topic in OUTPUTS}
        load.notes.plan(name, txn.id, writes, self._place, [Slot.of(each.message_id) for each in messages])
        try:
            await self._acknowledge(consumer, messages, txn)
            await self._write(writes, txn)
        except PulsarishError as failure:
            _log.info("%s is aborted: %s", name, failure)
            asked = "abort"
        outcome = await load.end(name, txn, asked)
        if self._is_cumulative and outcome != "ok":
            if asked == "nothing":
                await asyncio.sleep(LEFT_S + _PAUSE_S)
            await load.resolve(name, txn.id)
        return asked == "commit" and outcome == "ok"

    async def _acknowledge(self, consumer: AsyncConsumer, messages: Sequence[Message], txn: AsyncTransaction) -> None:
        if self._is_cumulative:
            await consumer.acknowledge_cumulative(messages[-1], txn=txn)
        else:
            for each in messages:
                await consumer.acknowledge(each, txn=txn)


class Watching(Session):
    """Reads one topic for as long as anybody writes."""

    def __init__(self, load: Load, topic: str) -> None:
        super().__init__(load, f"{load.name}.{topic}", batches=False)
        self._topic = topic
        self._sessions = 0

    async def run(self) -> None:
        load = self._load
        self._sessions += 1
        session = f"{self.name}:{self._sessions}"
        load.notes.session(session, Place(self._topic, ""))
        reader = await load.client.create_reader(self._topic)
        while load.is_running:
            with suppress(OperationTimeoutError):
                messages = [await reader.read_next(0.1)]
                while (message := reader.consumer.take()) is not None:
                    messages.append(message)
                load.notes.got(session, messages)


def sessions_of(load: Load, client: str) -> list[Session]:
    """What ``client`` does at the same time."""
    if client == FEED:
        return [Feeding(load, topic) for topic in INPUTS]
    if client == WATCH:
        return [Watching(load, topic) for topic in (*INPUTS, *OUTPUTS)]
    kind = WORKERS[client]
    tasks = range(1 if kind == "exclusive" else TASKS)
    return [Working(load, topic, kind, number) for topic in INPUTS for number in tasks]


async def run(name: str, life: int, folder: Path, service_url: str, seed: int) -> None:
    """One life of a client."""
    config = ClientConfig(service_url=service_url, operation_timeout_s=_OPERATION_TIMEOUT_S)
    async with AsyncClient(config) as client:
        load = Load(name, life, folder, client, random.Random(f"{seed} {name} {life}"))
        if WORKERS.get(name) == "exclusive":
            # Messages behind a transaction that is open yet would come first, and acknowledge its own with them.
            for earlier in range(life):
                for txn_name, txn_id in unended(folder / f"{name}.{earlier}.{NOTES}").items():
                    await load.resolve(txn_name, txn_id)
        await asyncio.gather(*(load.repeat(session) for session in sessions_of(load, name)))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], int(sys.argv[5])))
