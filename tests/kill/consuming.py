# SPDX-License-Identifier: Apache-2.0
"""Consumers of the kill rig: they acknowledge with receipts, and make a new client for every broker.

A session is one client. It began before the broker could give it anything, and ends when the rig has started another
broker: what comes after that moment is thrown away, because it may be of either. So a message that a session was given
was sent by the broker after the session's beginning, and must not be one that was acknowledged, with receipt, before.
"""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from broker_core.base.errors import OperationTimeoutError, PulsarishError
from broker_core.client import Client, Consumer
from broker_core.client import Message as Delivered
from tests.kill.history import Message, Session, Slot
from tests.kill.records import ConsumedRecord
from tests.kill.shared_state import Phase, SharedState
from tests.kill.topics import ConsumerPlan, is_poison
from tests.kill.tracing import Trace
from tests.kill.workload import decode

_log = logging.getLogger(__name__)

_OPERATION_TIMEOUT_S: Final = 5.0
_RECEIVE_TIMEOUT_S: Final = 0.05
_RETRY_PAUSE_S: Final = 0.01
_ACK_AFTER: Final = 25
_LATER_MAX_S: Final = 0.1
_QUIET_S: Final = 8.0
"""A consumer that got nothing for so long, while nobody sends, has drained its topic. Delays are a third of it; a busy
machine may hold up the broker or the consumer for the rest."""


class Consumption:
    """One consumer of one topic, over all its sessions."""

    def __init__(self, plan: ConsumerPlan, service_url: str, state: SharedState, load: int, trace: Trace) -> None:
        self._plan = plan
        self._service_url = service_url
        self._state = state
        self._load = load
        self._last_message_at = time.monotonic()
        self._acks = ThreadPoolExecutor(_ACK_AFTER)
        self._trace = trace
        self._dice = random.Random(trace.consumer)
        self.record = ConsumedRecord(plan.topic, plan.subscription, [], [], trace.deliveries)

    def run(self) -> None:
        """One session after the other, until there is nothing left to drain."""
        while not self._drained():
            try:
                self._run_session()
            except PulsarishError as error:
                _log.info("session of %s ended: %s", self._plan, error)
                time.sleep(_RETRY_PAUSE_S)

    def _run_session(self) -> None:
        incarnation = self._state.incarnation
        session = Session(time.monotonic(), self._plan.is_alone, [])
        self.record.sessions.append(session)
        with Client(self._service_url, operation_timeout_s=_OPERATION_TIMEOUT_S) as client:
            consumer = client.subscribe(
                self._plan.topic,
                self._plan.subscription,
                type=self._plan.type,
                initial_position="earliest",
                receiver_queue_size=200,
                acknowledgment_group_time_s=0,
                **self._plan.options,
            )
            self._last_message_at = time.monotonic()  # quiet is who could have got something
            try:
                self._consume(consumer, incarnation, session)
            finally:
                self._trace.leave()

    def _consume(self, consumer: Consumer, incarnation: int, session: Session) -> None:
        """Until there is another broker, or it is time to leave this one."""
        leave_after = self._dice.randint(1, 2 * self._plan.leaves_after) if self._plan.leaves_after else 0
        unacked: list[Delivered] = []
        for message in self._messages(consumer, incarnation):
            if message is not None:
                content = decode(message.value or b"") or Message("damaged", -1)
                if message.topic == self._plan.topic:  # the letters of a retry topic are another log
                    session.delivered.append((Slot.of(message.message_id), content))
                    self._trace.took(incarnation, message, content)
                if self._plan.refuses and is_poison(content.number):
                    self._refuse(consumer, message)
                else:
                    unacked.append(message)
            if leave_after and len(session.delivered) >= leave_after:
                return
            if len(unacked) >= _ACK_AFTER or (message is None and unacked):
                self._trace.release(unacked)
                self._acknowledge(consumer, unacked)
                unacked = []

    def _messages(self, consumer: Consumer, incarnation: int) -> Iterator[Delivered | None]:
        """What the broker of this session gives; None where it gave nothing for a while."""
        while not self._drained():
            message = _receive(consumer)
            if self._state.incarnation != incarnation:
                return
            if message is not None:
                self._last_message_at = time.monotonic()
            yield message

    def _refuse(self, consumer: Consumer, message: Delivered) -> None:
        if self._plan.refuses == "nack":
            consumer.negative_acknowledge(message)
        else:
            consumer.reconsume_later(message, self._dice.uniform(0, _LATER_MAX_S))
            self._state.add_progress(self._load, 1)

    def _acknowledge(self, consumer: Consumer, messages: list[Delivered]) -> None:
        """Acknowledge with receipt: only what the broker has confirmed is written down."""
        if not self._plan.is_alone:
            # At the same time, so that they share the broker's group commits.
            list(self._acks.map(lambda message: consumer.acknowledge(message, wait=True), messages))
        else:
            consumer.acknowledge_cumulative(messages[-1], wait=True)
        now = time.monotonic()
        self.record.acked.extend((Slot.of(message.message_id), now) for message in messages)
        self._state.add_progress(self._load, len(messages))

    def _drained(self) -> bool:
        quiet_s = time.monotonic() - self._last_message_at
        return self._state.phase == Phase.DRAIN_AND_STOP and quiet_s > _QUIET_S


def _receive(consumer: Consumer) -> Delivered | None:
    try:
        return consumer.receive(_RECEIVE_TIMEOUT_S)
    except OperationTimeoutError:
        return None


def run_consumers(
    plans: tuple[ConsumerPlan, ...], service_url: str, state: SharedState, load: int
) -> list[ConsumedRecord]:
    """Run one thread a consumer to the end; what each of them did."""
    clock = itertools.count()
    consumptions = [
        Consumption(plan, service_url, state, load + place, Trace(f"{plan.topic}#{place}", clock))
        for place, plan in enumerate(plans)
    ]
    with ThreadPoolExecutor(len(plans)) as pool:
        for running in [pool.submit(consumption.run) for consumption in consumptions]:
            running.result()
    return [consumption.record for consumption in consumptions]
