# SPDX-License-Identifier: Apache-2.0
"""A client of the transaction rig: takes messages, writes results, and acknowledges, all in transactions.

    python -m tests.kill.txn_load CLIENT LIFE FOLDER SERVICE_URL SEED

Workers of all subscription types take single messages, batches, messages in chunks and partitions. Some transactions
are aborted, some left to their timeout, and any may be cut off by a kill of the broker or of this process; a process
that follows a killed one has the next number for its life. ``feed`` writes what is taken, in transactions too;
``watch`` reads all topics.
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
from tests.kill.txn_notes import NOTES, Notebook, unended
from tests.kill.txn_topics import (
    CHUNK_BYTES,
    CUMULATIVE,
    INPUTS,
    OUTPUTS,
    TAIL,
    TOPICS,
    WORKERS,
    is_taken,
    keys_of,
    names_of,
    place_of,
    text_of,
    whole_topic,
)  # fmt: skip

_log = logging.getLogger(__name__)

FEED: Final = "feed"
WATCH: Final = "watch"
CLIENTS: Final = (*WORKERS, FEED, WATCH)
TASKS: Final = 2
"""Consumers of each topic in a worker; Exclusive has one."""

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

    def __init__(self, load: Load, name: str, *, batches: bool = False, chunks: bool = False) -> None:
        self.name = name
        self._load = load
        self._batches = batches
        self._chunks = chunks
        self._tail = f"\n{TAIL}" if chunks else ""
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
        for name, values in writes.items():
            topic, keys = whole_topic(name), keys_of(name)
            if topic not in self._producers:
                self._producers[topic] = await self._load.client.create_producer(
                    topic, name=f"{self.name}>{topic}", batching_enabled=self._batches, chunking_enabled=self._chunks,
                    chunk_max_message_size=CHUNK_BYTES,
                )  # fmt: skip
            producer = self._producers[topic]
            for value in values:
                message = producer.outgoing(f"{value}{self._tail}", key=self._load.dice.choice(keys))
                await producer.reserve(message.size_bytes)
                producer.enqueue(message, _transaction_knows, txn=txn)


class Feeding(Session):
    """Writes one topic, in transactions of a few messages."""

    def __init__(self, load: Load, topic: str) -> None:
        kind = INPUTS[topic]
        super().__init__(load, f"{load.name}.{topic}", batches=kind.batches, chunks=kind.chunks)
        self._names = names_of(topic, kind)

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
        writes = {each: [self._value() for _ in range(load.dice.randint(1, 12))] for each in self._names}
        load.notes.plan(name, txn.id, writes)
        with suppress(PulsarishError):
            await self._write(writes, txn)
        await load.end(name, txn, asked)


class Turn:
    """Turns of a subscription's consumers, where they acknowledge cumulatively: one of them takes messages.

    Another one may have been given the same messages, or later ones, before the broker made it the active one. So the
    next one in turn has to ask for everything again, once nothing is under way. ``taken``: messages that were taken,
    unless their transaction was aborted.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.taken: set[Slot] = set()
        self._last: AsyncConsumer | None = None

    def passes_to(self, consumer: AsyncConsumer) -> bool:
        """Whether it was another one's; then everything is asked for again."""
        if consumer is self._last:
            return False
        self._last = consumer
        consumer.redeliver_unacknowledged()
        return True


class Working(Session):
    """Takes messages of one topic. ``turn`` is None where they are acknowledged one by one."""

    def __init__(self, load: Load, topic: str, kind: SubscriptionType, number: int, turn: Turn | None) -> None:
        super().__init__(load, f"{load.name}.{topic}.{number}", batches=number % 2 == 0)
        self._topic = topic
        self._kind = kind
        self._turn = turn
        self._sessions = 0

    async def run(self) -> None:
        load = self._load
        self._sessions += 1
        for name in names_of(self._topic, INPUTS[self._topic]):
            load.notes.session(self._session_at(name), Place(name, self._kind))
        consumer = await load.client.subscribe(
            self._topic, self._kind, type=self._kind, initial_position="earliest", receiver_queue_size=100
        )
        try:
            for _ in range(load.dice.randint(5, 60)):
                messages = await consumer.batch_receive(load.dice.randint(1, 5), timeout_s=0.05)
                if not load.is_running:
                    return
                for place, theirs in self._by_place(messages).items():
                    load.notes.got(self._session_at(place.topic), theirs)
                if self._turn is None:
                    await self._transact(consumer, _once(messages))
                elif await self._leaves_after_turn(consumer, messages, self._turn):
                    return
        finally:
            await consumer.close()

    def _session_at(self, name: str) -> str:
        return f"{self.name}:{self._sessions}@{name}"

    def _by_place(self, messages: Sequence[Message]) -> dict[Place, list[Message]]:
        found: dict[Place, list[Message]] = {}
        for each in messages:
            found.setdefault(place_of(each, self._kind), []).append(each)
        return found

    async def _leaves_after_turn(self, consumer: AsyncConsumer, messages: Sequence[Message], turn: Turn) -> bool:
        """Take ``messages``, without repeats: a connection that was lost repeats what was not acknowledged then, and it
        may be acknowledged by now. Whether the consumer leaves."""
        async with turn.lock:
            if not messages or turn.passes_to(consumer):
                return False
            fresh = [each for each in _once(messages) if Slot.of(each.message_id) not in turn.taken]
            turn.taken.update(Slot.of(each.message_id) for each in fresh)
            is_done = False
            try:
                is_done = await self._transact(consumer, fresh)
            finally:
                if not is_done:
                    turn.taken.difference_update(Slot.of(each.message_id) for each in fresh)
            if is_done:
                return False
            if self._load.dice.random() < LEAVES:
                return True
            consumer.redeliver_unacknowledged()
            return False

    async def _transact(self, consumer: AsyncConsumer, messages: Sequence[Message]) -> bool:
        """Whether the transaction was committed, or there is nothing to do. If not, it has ended for certain where
        acknowledging is cumulative."""
        if not messages:
            return True
        load, asked = self._load, self._load.choose()
        txn = await load.begin(left=asked == "nothing")
        name = self._next_name()
        writes = self._results_of(messages)
        taken = self._by_place(messages).items()
        load.notes.plan(
            name, txn.id, writes, {place: [Slot.of(each.message_id) for each in theirs] for place, theirs in taken}
        )
        try:
            await self._acknowledge(consumer, messages, txn)
            await self._write(writes, txn)
        except PulsarishError as failure:
            _log.info("%s is aborted: %s", name, failure)
            asked = "abort"
        outcome = await load.end(name, txn, asked)
        if self._turn is not None and outcome != "ok":
            if asked == "nothing":
                await asyncio.sleep(LEFT_S + _PAUSE_S)
            await load.resolve(name, txn.id)
        return asked == "commit" and outcome == "ok"

    def _results_of(self, messages: Sequence[Message]) -> dict[str, list[str]]:
        """A value for each message on each topic, on some partition of it if it has any."""
        writes: dict[str, list[str]] = {}
        for topic, kind in OUTPUTS.items():
            for each in messages:
                name = self._load.dice.choice(names_of(topic, kind))
                writes.setdefault(name, []).append(self._value(text_of(each)))
        return writes

    async def _acknowledge(self, consumer: AsyncConsumer, messages: Sequence[Message], txn: AsyncTransaction) -> None:
        if self._turn is not None:
            await consumer.acknowledge_cumulative(messages[-1], txn=txn)
        else:
            for each in messages:
                await consumer.acknowledge(each, txn=txn)


def _once(messages: Sequence[Message]) -> list[Message]:
    """Each message once."""
    return list({(each.topic, Slot.of(each.message_id)): each for each in messages}.values())


class Watching(Session):
    """Reads one topic for as long as anybody writes."""

    def __init__(self, load: Load, topic: str) -> None:
        super().__init__(load, f"{load.name}.{topic}")
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
        return [Watching(load, topic) for topic in TOPICS]
    kind = WORKERS[client]
    tasks = range(1 if kind == "exclusive" else TASKS)
    turns = {topic: Turn() if kind in CUMULATIVE else None for topic in INPUTS if is_taken(topic, kind)}
    return [Working(load, topic, kind, number, turn) for topic, turn in turns.items() for number in tasks]


async def run(name: str, life: int, folder: Path, service_url: str, seed: int) -> None:
    """One life of a client."""
    config = ClientConfig(service_url=service_url, operation_timeout_s=_OPERATION_TIMEOUT_S)
    async with AsyncClient(config) as client:
        load = Load(name, life, folder, client, random.Random(f"{seed} {name} {life}"))
        if WORKERS.get(name) in CUMULATIVE:
            # Messages behind a transaction that is open yet would come first, and acknowledge its own with them.
            for earlier in range(life):
                for txn_name, txn_id in unended(folder / f"{name}.{earlier}.{NOTES}").items():
                    await load.resolve(txn_name, txn_id)
        await asyncio.gather(*(load.repeat(session) for session in sessions_of(load, name)))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], int(sys.argv[5])))
