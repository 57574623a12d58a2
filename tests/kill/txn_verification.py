# SPDX-License-Identifier: Apache-2.0
"""The last look of the transaction rig: reads every topic in two ways, and drains every subscription."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from broker_core.base.errors import OperationTimeoutError
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.client import AsyncClient, Client, ClientConfig
from broker_core.client.settings.config import SubscriptionType
from broker_core.wire.batch import decode_entries
from tests.kill.history import Slot
from tests.kill.txn_history import History, Place
from tests.kill.txn_topics import INPUTS, PLACES, TOPICS, WORKERS, text_of, text_of_value

READ_TIMEOUT_S: Final = 60.0
_QUIET_S: Final = 2.0
"""A subscription that has given all that it owes gives nothing more for so long."""
_STUCK_S: Final = 30.0

Log = list[tuple[Slot, str]]


def last_look(service_url: str, history: History, topics: Collection[str] = TOPICS) -> list[str]:
    """Fill in the final reads of ``history``; what is stuck, in words."""
    stuck: list[str] = []
    with Client(service_url, operation_timeout_s=READ_TIMEOUT_S) as client:
        for topic in topics:
            again = _read if topic in INPUTS and INPUTS[topic].chunks else _read_entries
            history.final[topic] = [_read(client, topic, stuck), again(client, topic, stuck)]
    return stuck


def drain(service_url: str, history: History, settled: dict[Place, set[Slot]]) -> None:
    """Fill in what each subscription gives yet. ``settled``: messages that transactions have acknowledged."""
    asyncio.run(_drain_all(service_url, history, settled))


def _read(client: Client, topic: str, stuck: list[str]) -> Log:
    """A topic as a reader gets it, message by message."""
    log: Log = []
    try:
        with client.create_reader(topic) as reader:
            while reader.has_message_available():
                message = reader.read_next(READ_TIMEOUT_S)
                log.append((Slot.of(message.message_id), text_of(message)))
    except OperationTimeoutError as failure:
        stuck.append(f"a reader of {topic} is stuck behind {log[-1:]}: {failure}")
    return log


def _read_entries(client: Client, topic: str, stuck: list[str]) -> Log:
    """A topic as Spark reads it, entry by entry."""
    log: Log = []
    try:
        last = client.last_entry(topic).position
        names = ("ledger", "entry", "batch_index", "value")
        for entries in client.read_entries(topic, POSITION_EARLIEST, Position(last.ledger, last.entry + 1)):
            batch = decode_entries(entries, set(names))
            columns = (batch.column(name).to_pylist() for name in names)
            for ledger, entry, index, value in zip(*columns, strict=True):
                log.append((Slot(ledger, entry, index), text_of_value(value)))
    except OperationTimeoutError as failure:
        stuck.append(f"an entry reader of {topic} is stuck behind {log[-1:]}: {failure}")
    return log


async def _drain_all(service_url: str, history: History, settled: dict[Place, set[Slot]]) -> None:
    async with AsyncClient(ClientConfig(service_url=service_url, operation_timeout_s=READ_TIMEOUT_S)) as client:
        logs = await asyncio.gather(
            *(_drain_one(client, place, _owed(history, place, settled.get(place, set()))) for place in PLACES)
        )
    history.drained.update(zip(PLACES, logs, strict=True))


def _owed(history: History, place: Place, settled: set[Slot]) -> set[Slot]:
    return {slot for slot, _ in history.final[place.topic][0]} - settled


async def _drain_one(client: AsyncClient, place: Place, owed: set[Slot]) -> Log:
    kind: SubscriptionType = next(each for each in WORKERS.values() if each == place.subscription)
    consumer = await client.subscribe(place.topic, place.subscription, type=kind, initial_position="earliest")
    log: Log = []
    patience = asyncio.get_running_loop().time() + _STUCK_S
    while True:
        messages = await consumer.batch_receive(1000, timeout_s=_QUIET_S)
        log += ((Slot.of(each.message_id), text_of(each)) for each in messages)
        owed -= {Slot.of(each.message_id) for each in messages}
        if not messages and (not owed or asyncio.get_running_loop().time() > patience):
            return log
