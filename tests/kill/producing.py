# SPDX-License-Identifier: Apache-2.0
"""Producers of the kill rig. Their clients reconnect and resend by themselves; here the outcomes are written down."""

from __future__ import annotations

import logging
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pulsar

from broker_core.base.errors import PulsarishError
from broker_core.base.positions import MessageId
from broker_core.client import Client
from broker_core.testing.history import Message, Slot
from tests.kill.records import Receipt, SentRecord
from tests.kill.shared_state import Phase, SharedState
from tests.kill.topics import ProducerPlan, partitions_of
from tests.kill.workload import encode

_log = logging.getLogger(__name__)

_IN_FLIGHT_MAX: Final = 300
_BURST_MAX: Final = 12
_PAUSE_S: Final = 0.006
_RETRY_PAUSE_S: Final = 0.05
_KEYS: Final = 50

OnReceipt = Callable[[str, Slot], None]
"""Called with the topic (partition) and place of a message that was confirmed."""


class Sender(ABC):
    """One producer of some client."""

    @abstractmethod
    def send(self, content: bytes, key: str | None, on_receipt: OnReceipt, on_unknown: Callable[[], None]) -> None:
        """Send; exactly one of the callbacks is called later, on any thread."""

    @abstractmethod
    def flush(self) -> None:
        """Wait for the outcome of everything sent."""


class OwnSender(Sender):
    """Our client."""

    def __init__(self, client: Client, plan: ProducerPlan) -> None:
        self._topics = partitions_of(plan.topic)
        self._producer = client.create_producer(plan.topic, name=plan.name, send_timeout_s=60, **plan.options)

    def send(self, content: bytes, key: str | None, on_receipt: OnReceipt, on_unknown: Callable[[], None]) -> None:
        def on_sent(message_id: MessageId | None, _error: PulsarishError | None) -> None:
            if message_id is None:
                on_unknown()
            else:
                on_receipt(self._topics[max(message_id.partition, 0)], Slot.of(message_id))

        self._producer.send_async(content, key=key, callback=on_sent)

    def flush(self) -> None:
        self._producer.flush()


class OfficialSender(Sender):
    """The official client."""

    def __init__(self, client: pulsar.Client, plan: ProducerPlan) -> None:
        self._topics = partitions_of(plan.topic)
        self._producer = client.create_producer(
            plan.topic, producer_name=plan.name, send_timeout_millis=60_000, block_if_queue_full=True, **plan.options
        )

    def send(self, content: bytes, key: str | None, on_receipt: OnReceipt, on_unknown: Callable[[], None]) -> None:
        def on_sent(result: Any, message_id: pulsar.MessageId) -> None:
            if result != pulsar.Result.Ok:
                on_unknown()
                return
            slot = Slot(message_id.ledger_id(), message_id.entry_id(), message_id.batch_index())
            on_receipt(self._topics[max(message_id.partition(), 0)], slot)

        self._producer.send_async(content, on_sent, partition_key=key)

    def flush(self) -> None:
        self._producer.flush()


class Production:
    """Sends numbered messages through one sender until the rig says stop, and keeps the outcome of each."""

    def __init__(self, plan: ProducerPlan, state: SharedState, load: int) -> None:
        self._plan = plan
        self._state = state
        self._load = load
        self._room = threading.Semaphore(_IN_FLIGHT_MAX)
        self._receipts: list[Receipt] = []
        self._sent = 0

    def run(self, open_sender: Callable[[ProducerPlan], Sender]) -> None:
        """Returns when everything sent has its outcome."""
        sender = self._open(open_sender)
        dice = random.Random(self._plan.name)
        while self._state.phase == Phase.RUN:
            for _ in range(dice.randint(1, _BURST_MAX)):
                self._send_next(sender)
            time.sleep(_PAUSE_S)
        sender.flush()
        for _ in range(_IN_FLIGHT_MAX):  # callbacks may run after flush has returned
            self._room.acquire()

    def record(self) -> SentRecord:
        """What is handed to the rig."""
        return SentRecord(self._plan.name, partitions_of(self._plan.topic), self._sent, self._receipts)

    def _open(self, open_sender: Callable[[ProducerPlan], Sender]) -> Sender:
        while True:
            try:
                return open_sender(self._plan)
            except (PulsarishError, pulsar.PulsarException) as error:
                _log.warning("producer %s cannot be opened yet: %s", self._plan.name, error)
                time.sleep(_RETRY_PAUSE_S)

    def _send_next(self, sender: Sender) -> None:
        message = Message(self._plan.name, self._sent)
        key = f"key-{self._sent % _KEYS}" if self._plan.keyed else None

        def on_receipt(topic: str, slot: Slot) -> None:
            self._receipts.append(Receipt(topic, message, slot))
            self._state.add_progress(self._load, 1)
            self._room.release()

        self._room.acquire()
        self._sent += 1
        sender.send(encode(message), key, on_receipt, self._room.release)


def run_producers(
    plans: tuple[ProducerPlan, ...], service_url: str, state: SharedState, load: int, *, official: bool
) -> list[SentRecord]:
    """Run one thread a producer to the end; what each of them did."""
    productions = [Production(plan, state, load + place) for place, plan in enumerate(plans)]
    client, open_sender = _official_client(service_url) if official else _own_client(service_url)
    with ThreadPoolExecutor(len(plans)) as pool:
        for running in [pool.submit(production.run, open_sender) for production in productions]:
            running.result()
    client.close()
    return [production.record() for production in productions]


def _own_client(service_url: str) -> tuple[Any, Callable[[ProducerPlan], Sender]]:
    client = Client(service_url, operation_timeout_s=60)
    return client, lambda plan: OwnSender(client, plan)


def _official_client(service_url: str) -> tuple[Any, Callable[[ProducerPlan], Sender]]:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(service_url, operation_timeout_seconds=60, logger=quiet)
    return client, lambda plan: OfficialSender(client, plan)
