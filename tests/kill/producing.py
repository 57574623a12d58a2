# SPDX-License-Identifier: Apache-2.0
"""Producers of the kill rig. Their clients reconnect and resend by themselves; here the outcomes are written down."""

from __future__ import annotations

import logging
import random
import threading
import time
from typing import Final

import pulsar

from broker_core.base.errors import PulsarishError
from broker_core.client.messages.outgoing import MessageFields
from tests.kill.history import Message, Slot
from tests.kill.records import Receipt, SentRecord
from tests.kill.senders import OpenSender, Sender
from tests.kill.shared_state import Phase, SharedState
from tests.kill.topics import KEYS, ProducerPlan, partitions_of
from tests.kill.workload import encode

_log = logging.getLogger(__name__)

BURST_MAX: Final = 12
_IN_FLIGHT_MAX: Final = 300
_RETRY_PAUSE_S: Final = 0.05


class Production:
    """Sends numbered messages through one sender until the rig says stop, and keeps the outcome of each."""

    def __init__(self, plan: ProducerPlan, state: SharedState, load: int) -> None:
        self._plan = plan
        self._state = state
        self._load = load
        self._room = threading.Semaphore(_IN_FLIGHT_MAX)
        self._receipts: list[Receipt] = []
        self._unknown: list[int] = []
        self._known: list[int] = []
        self._due_ms: dict[int, int] = {}
        self._sent = 0
        self._dice = random.Random(plan.name)

    def run(self, open_sender: OpenSender) -> None:
        """Returns when everything sent has its outcome."""
        sender = self._open(open_sender, self._plan)
        while self._state.phase == Phase.RUN:
            for _ in range(self._dice.randint(1, BURST_MAX)):
                self._send_next(sender)
            time.sleep(self._plan.pause_s)
        sender.flush()
        self._wait_for_outcomes()  # callbacks may run after flush has returned

    def record(self) -> SentRecord:
        """What is handed to the rig."""
        topics = partitions_of(self._plan.topic)
        return SentRecord(self._plan.name, topics, self._sent, self._receipts, self._unknown, self._known, self._due_ms)

    def _open(self, open_sender: OpenSender, plan: ProducerPlan) -> Sender:
        while True:
            try:
                return open_sender(plan)
            except (PulsarishError, pulsar.PulsarException) as error:
                _log.warning("producer %s cannot be opened yet: %s", self._plan.name, error)
                time.sleep(_RETRY_PAUSE_S)

    def _wait_for_outcomes(self) -> None:
        for _ in range(_IN_FLIGHT_MAX):
            self._room.acquire()
        self._room.release(_IN_FLIGHT_MAX)

    def _send_next(self, sender: Sender) -> None:
        message = Message(self._plan.name, self._sent)

        def on_receipt(topic: str, slot: Slot) -> None:
            self._confirmed(topic, message, slot)
            self._room.release()

        def on_unknown() -> None:
            self._unknown.append(message.number)
            self._room.release()

        self._room.acquire()
        self._sent += 1
        sender.send(encode(message), self._fields(message.number), on_receipt, on_unknown)

    def _confirmed(self, topic: str, message: Message, slot: Slot) -> None:
        if slot.ledger < 0:
            self._known.append(message.number)
        else:
            self._receipts.append(Receipt(topic, message, slot))
        self._state.add_progress(self._load, 1)

    def _fields(self, number: int) -> MessageFields:
        fields = MessageFields()
        if self._plan.keyed:
            fields["key"] = f"key-{number % KEYS}"
        if self._plan.delay_max_s:
            delay_s = self._dice.uniform(0, self._plan.delay_max_s)
            fields["deliver_at_ms"] = self._due_ms[number] = int((time.time() + delay_s) * 1000)
        return fields
