# SPDX-License-Identifier: Apache-2.0
"""Producers of retry letters and dead letters that cannot be made, against a scripted broker."""

from broker_core.client import AsyncClient, DeadLetterPolicy
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.scenes import run
from tests.client.scripted_broker import ScriptedBroker, plain_entry
from tests.wire.single_frames import message_frame_head


def test_letters_do_not_wait_in_turn_for_a_producer_that_cannot_be_made() -> None:
    """4.6.5, 4.7.5: each asked by itself, one after the other, and a consumer with a thousand could not be closed."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        policy = DeadLetterPolicy(max_redeliver_count=1)
        consumer = await client.subscribe("t", "s", type="shared", dead_letter_policy=policy)
        peer = broker.peers[0]
        broker.handlers[BaseCommand.PRODUCER] = lambda peer, command: None
        body = plain_entry(b"poison")
        for entry in range(5):
            peer.transport.write(message_frame_head(0, 1, entry, -1, 2, None, len(body)) + body)
        await broker.until(lambda: peer.count(BaseCommand.PRODUCER) == 1)
        await consumer.close()
        assert peer.count(BaseCommand.PRODUCER) == 1
        assert peer.count(BaseCommand.ACK) == 0

    run(play, operation_timeout_s=1.0)
