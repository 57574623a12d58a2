# SPDX-License-Identifier: Apache-2.0
"""Receiving, in batches or singly, where it is interrupted or in vain."""

import asyncio

import pytest

from broker_core.base.errors import OperationTimeoutError
from broker_core.base.positions import MESSAGE_ID_LATEST
from broker_core.client import AsyncClient, Client, Consumer
from broker_core.client.blocking.loop_thread import Latch, shared_loop_thread
from broker_core.client.consuming.consumer import AsyncConsumer
from tests.client.helpers import WAIT_S, numbered, send, values
from tests.client.scenes import flows, run
from tests.client.scripted_broker import ScriptedBroker, plain_entry


async def cancelled_batch_receive(broker: ScriptedBroker, client: AsyncClient) -> AsyncConsumer:
    """A consumer whose batch receive was cancelled when it had taken the messages 0, 1 and 2."""
    consumer = await client.subscribe("t", "s", receiver_queue_size=6)
    for number in range(3):
        broker.peers[0].deliver(number, plain_entry(b"%d" % number))
    waiting = asyncio.ensure_future(consumer.batch_receive(10, timeout_s=60))
    await broker.until(lambda: flows(broker) == [6, 3])  # it has taken all three
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    return consumer


def test_a_batch_receive_that_is_cancelled_loses_nothing() -> None:
    """7.14: what it had taken comes with the next call, of whatever kind, and in order."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await cancelled_batch_receive(broker, client)
        assert await consumer.has_message_available()
        assert (await consumer.receive(WAIT_S)).value == b"0"
        assert [each.value for each in await consumer.batch_receive(2, timeout_s=WAIT_S)] == [b"1", b"2"]

    run(play)


def test_what_a_cancelled_batch_receive_had_taken_reaches_who_waits() -> None:
    """7.14: another call that waits already gets it at once, and not when the next message happens to come."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", receiver_queue_size=6)
        for number in range(3):
            broker.peers[0].deliver(number, plain_entry(b"%d" % number))
        batch = asyncio.ensure_future(consumer.batch_receive(10, timeout_s=60))
        await broker.until(lambda: flows(broker) == [6, 3])  # it has taken all three
        waiting = [asyncio.ensure_future(consumer.receive(WAIT_S)) for _ in range(2)]
        await client.partitions("t")  # by when they wait
        batch.cancel()
        assert [each.value for each in await asyncio.gather(*waiting)] == [b"0", b"1"]

    run(play)


def test_who_is_about_to_wait_is_told_of_what_a_batch_receive_leaves() -> None:
    """7.14: another thread may find nothing, and say that it waits when a call has been cancelled in between."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await cancelled_batch_receive(broker, client)
        woken: list[str] = []
        consumer.wake_later(lambda: woken.append("at once"))
        assert woken == ["at once"]
        assert not consumer._queue.has_waiters

    run(play)


def test_an_interrupt_behind_the_end_of_a_batch_receive_loses_nothing(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """7.14: the messages were taken, and nobody had them; they would have come again with another consumer only."""
    usual = Latch.wait

    def interrupted(latch: Latch, timeout_s: float | None = None) -> bool:
        usual(latch, timeout_s)
        raise KeyboardInterrupt

    with client.subscribe(topic, "s", initial_position="earliest") as consumer:
        send(client, topic, 3)
        with monkeypatch.context() as patched:
            patched.setattr(Latch, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                consumer.batch_receive(3, timeout_s=WAIT_S)
        assert values(consumer.batch_receive(3, timeout_s=WAIT_S)) == numbered(0, 3)


@pytest.mark.parametrize("how", ["seek", "rewind"])
def test_what_a_cancelled_batch_receive_had_taken_does_not_outlive_a_seek(how: str) -> None:
    """7.14, 1.4.6: it comes again if it is behind the place, and must not come if it is before."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await cancelled_batch_receive(broker, client)
        if how == "seek":
            await consumer.seek(MESSAGE_ID_LATEST)
        else:
            consumer.redeliver_unacknowledged()
        assert consumer.take() is None

    run(play)


def test_whoever_asks_in_vain_is_not_remembered() -> None:
    """A program that polls a quiet topic for days would fill its memory, and all would be woken by one message."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s")
        blocking = Consumer(shared_loop_thread(), consumer)
        for _ in range(3):
            with pytest.raises(OperationTimeoutError):
                await consumer.receive(0.001)
            assert await consumer.batch_receive(timeout_s=0.001) == []
            with pytest.raises(OperationTimeoutError):
                await asyncio.to_thread(blocking.receive, 0.001)
        assert not consumer._queue.has_waiters

    run(play)
