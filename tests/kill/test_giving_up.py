# SPDX-License-Identifier: Apache-2.0
"""Clients give up what has waited too long for its receipt: what the rig may and may not expect then."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.base.errors import SendUnconfirmedError
from broker_core.base.names import TopicName
from broker_core.client import AsyncClient, Client
from broker_core.client.admin import AdminApi
from broker_core.testing.running_broker import RunningBroker
from tests.client.helpers import eventually
from tests.client.scenes import run
from tests.client.scripted_broker import Peer, ScriptedBroker
from tests.kill.delivery_rules import known_but_missing
from tests.kill.history import Message, Slot, TopicHistory, check_topic
from tests.kill.resending import ResendingProduction
from tests.kill.senders import OwnSender, Sender
from tests.kill.shared_state import SharedState
from tests.kill.topics import ONCE, ProducerPlan
from tests.kill.verification import read_log

PATIENCE_S = 2.0
NOT_CONNECTED_S_MAX = 0.1
"""A small part of the patience: what is sent while there is a broker gets there in time."""


class HeldUpProduction(ResendingProduction):
    """Its thread stands still before the second message until the first one has timed out and the broker is back."""

    killed: RunningBroker | None = None

    def send_again(self, sender: Sender, message: Message, unknown: list[int]) -> None:
        if message.number == 1 and self.killed is not None:
            eventually(lambda: unknown == [0], "the first message has timed out")
            self.killed.start()
            self.killed = None
        super().send_again(sender, message, unknown)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """With the topic ONCE."""
    with RunningBroker(tmp_path / "data") as broker:
        with AdminApi(broker.http_url, timeout_s=60) as admin:
            admin.create_topic(TopicName.parse(ONCE), 0)
            admin.set_policy(TopicName.parse(ONCE), "deduplicationEnabled", True)
        yield broker


def test_a_producer_that_is_held_up_bars_the_way_for_nothing(broker: RunningBroker, tmp_path: Path) -> None:
    """1.8.4: the message behind the one that timed out is not stored; so what is sent again is not refused as known."""
    plan = ProducerPlan("p", ONCE, options={"batching_enabled": False, "send_timeout_s": PATIENCE_S}, resends=True)
    production = HeldUpProduction(plan, SharedState(tmp_path / "state"), 0)
    with Client(broker.service_url, backoff_max_s=NOT_CONNECTED_S_MAX) as client:
        sender = production.open_at(lambda each: OwnSender(client, each), 0)
        broker.kill()
        production.killed = broker
        assert production.send_burst(sender, 0, 2) == [0, 1]
        sender.close()
        sender = production.open_at(lambda each: OwnSender(client, each), 0)
        assert production.send_burst(sender, 0, 2) == []
        violations: list[str] = []
        log = read_log(client, ONCE, violations)
    record = production.record()
    assert (record.unknown, record.given_up()) == ([0, 1], set())
    assert not list(known_but_missing([Message("p", number) for number in record.known], log))
    assert [message and message.number for message in log.values()] == [0, 1]
    assert not violations


def test_a_client_that_gives_up_half_way_through_a_resend_steps_over_the_rest() -> None:
    """1.7.6, R5: a broker stores 0 to 2 and dies, the next one stores 0 once more and nothing else for a while."""
    log: list[int] = []

    def store(peer: Peer, sequence_id: int) -> None:
        log.append(sequence_id)

    def store_the_first(peer: Peer, sequence_id: int) -> None:
        if sequence_id == 0:
            log.append(sequence_id)

    def store_and_confirm(peer: Peer, sequence_id: int) -> None:
        log.append(sequence_id)
        peer.receipt(sequence_id, len(log) - 1)

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = store
        producer = await client.create_producer("t", send_timeout_s=PATIENCE_S, batching_enabled=False)
        sends = [asyncio.ensure_future(producer.send(str(number))) for number in range(3)]
        await broker.until(lambda: len(log) == 3)
        broker.on_send = store_the_first
        broker.peers[0].transport.abort()
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(each) for each in outcomes] == [SendUnconfirmedError] * 3
        broker.on_send = store_and_confirm
        await producer.send("3")

    run(play)
    assert log == [0, 1, 2, 0, 3]
    slots = {Slot(1, entry, -1): Message("p", number) for entry, number in enumerate(log)}
    history = TopicHistory({"p": 4}, receipts={Message("p", 3): Slot(1, 4, -1)}, log=dict(slots))
    assert check_topic("t", history, drained=False).broken == {"R5": 1}
    history.given_up = {Message("p", number) for number in range(3)}
    assert not check_topic("t", history, drained=False).broken
