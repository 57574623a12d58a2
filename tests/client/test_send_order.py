# SPDX-License-Identifier: Apache-2.0
"""Messages and rows that wait for room are sent in the order in which they were given."""

import asyncio
import random

import pyarrow as pa
import pytest

from broker_core.base.errors import OperationTimeoutError
from broker_core.client import AsyncClient
from broker_core.wire.entry import split_entry
from tests.client.helpers import WAIT_S
from tests.client.scenes import run
from tests.client.scripted_broker import ScriptedBroker


def values(broker: ScriptedBroker) -> list[bytes]:
    """The first four bytes of every single message that the broker got, in order."""
    return [bytes(split_entry(bytes(body))[1])[:4] for _, (_, body) in broker.peers[0].sends]


def test_a_small_message_does_not_overtake_a_large_one_that_waits_for_room() -> None:
    """1.7.6, 1.7.7 whichever of the limits it waits for."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer("t", batching_enabled=False, block_if_queue_full=True)
        sends = [asyncio.ensure_future(producer.send(b"1st " + bytes(800)))]
        await broker.until(lambda: len(broker.peers[0].sends) == 1)
        sends += [asyncio.ensure_future(producer.send(value)) for value in (b"2nd " + bytes(700), b"3rd ", b"4th ")]
        await asyncio.sleep(0)
        broker.on_send = lambda peer, sequence_id: peer.receipt(sequence_id, sequence_id)
        broker.peers[0].receipt(0, 0)
        await asyncio.wait_for(asyncio.gather(*sends), WAIT_S)
        assert values(broker) == [b"1st ", b"2nd ", b"3rd ", b"4th "]

    run(play, memory_limit_bytes=1000)


@pytest.mark.parametrize("limit", [{"max_pending_messages": 2}, {"max_pending_bytes": 700}])
def test_who_waits_for_room_is_served_in_turn(limit: dict[str, int]) -> None:
    """1.7.6, 1.7.7 also sends that begin at the moment when room comes, and beside others that are cut off."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        dice = random.Random(7)
        producer = await client.create_producer("t", batching_enabled=False, block_if_queue_full=True, **limit)  # type: ignore[arg-type]
        sends = []
        for number in range(300):
            sends.append(asyncio.ensure_future(producer.send(b"%04d" % number + bytes(dice.randrange(600)))))
            for _ in range(dice.randrange(4)):
                await asyncio.sleep(0)
            if dice.random() < 0.1:
                sends[-1].cancel()
        await asyncio.wait_for(asyncio.gather(*sends, return_exceptions=True), WAIT_S)
        assert len(values(broker)) >= 250
        assert values(broker) == sorted(values(broker))

    run(play)


def test_who_waits_in_vain_lets_the_next_one_wait() -> None:
    """1.7.6 the time of each counts from its own call."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer("t", send_timeout_s=1, block_if_queue_full=True, max_pending_messages=1)
        room = producer.window.try_take(10)
        assert room
        waiting = [asyncio.ensure_future(producer.send("x")) for _ in range(3)]
        for each in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(each, OperationTimeoutError)
            assert "found no room" in each.message
        producer.window.give_back(1, 10)
        broker.on_send = lambda peer, sequence_id: peer.receipt(sequence_id, sequence_id)
        assert (await producer.send("y")).entry == 0

    run(play)


def test_rows_of_two_tasks_are_written_one_after_the_other() -> None:
    """1.7.2 encoded at once, they had the same sequence ids."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        writer = await client.write_rows("t", window_bytes_max=1, batching_max_messages=100)
        parts = [pa.record_batch({"value": [b"%04d" % number] * 2000}) for number in range(8)]
        await asyncio.wait_for(asyncio.gather(*(writer.write(part) for part in parts)), WAIT_S)
        await writer.flush()
        assert [sequence_id for sequence_id, _ in broker.peers[0].sends] == list(range(0, 16_000, 100))

    run(play)
