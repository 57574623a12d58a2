# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements of one turn of the loop, which subscriptions hear of together."""

from __future__ import annotations

from collections.abc import Callable

from broker_core.broker.consumer import Consumer
from broker_core.broker.requests import SubscriptionType
from broker_core.server.gathered_acks import GatheredAcks
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.entry import seal_entry
from broker_core.wire.frames import encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandAck, CommandSubscribe, MessageMetadata
from tests.broker.world import World

SHARED = SubscriptionType.SHARED


class _Turn:
    """A turn of the loop that ends when a test says so."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []
        self.acks = GatheredAcks(self._calls.append)

    def end(self) -> None:
        calls = self._calls[:]
        self._calls.clear()
        for call in calls:
            call()


def _world(entries: int) -> tuple[World, list[Consumer], list[list[int]]]:
    """Two consumers, and the entries of one ledger that each was given."""
    world = World(managed_ledger_max_entries_per_ledger=10_000, managed_ledger_min_ledger_rollover_time_minutes=60)
    world.topic().create_subscription("s")
    world.publish(entries)
    clients = [world.subscribe(SHARED, name=name, permits=entries) for name in "ab"]
    world.settle()
    return world, [consumer for consumer, _mailbox in clients], [[p.entry for p in m.positions] for _c, m in clients]


def test_acks_of_several_consumers_count_at_the_end_of_the_turn() -> None:
    """3.3.1 However many commands they came in; those of a turn that has nothing more to say cost nothing."""
    world, (one, two), (hers, his) = _world(40)
    turn = _Turn()
    ledger = world.topic().log.last_confirmed.ledger
    for entry in hers:
        turn.acks.add(one, ledger, [entry])
    turn.acks.add(two, ledger, his)
    assert world.subscription().backlog_entries() == 40
    turn.end()
    assert world.subscription().backlog_entries() == 0
    assert (one.pending.unacked, two.pending.unacked) == (0, 0)
    turn.end()


def test_very_many_acks_do_not_wait_for_the_end_of_the_turn() -> None:
    """A turn must not end with a pile of work that nobody has counted."""
    world, (one, two), _given = _world(1200)
    turn = _Turn()
    ledger = world.topic().log.last_confirmed.ledger
    turn.acks.add(one, ledger, range(600))
    turn.acks.add(two, ledger, range(600, 1100))
    assert world.subscription().backlog_entries() == 100


def test_who_has_left_before_the_end_of_the_turn_acknowledges_nothing() -> None:
    """As if its last words had come too late: what it held has gone to others."""
    world, (one, two), (hers, _his) = _world(40)
    turn = _Turn()
    turn.acks.add(one, world.topic().log.last_confirmed.ledger, hers)
    one.close()
    turn.end()
    assert world.subscription().backlog_entries() == 40
    world.settle()
    assert two.pending.unacked == 40


def _ack(entry: int, ledger: int) -> bytes:
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id, command.ack.ack_type = 0, CommandAck.Individual
    command.ack.message_id.add(ledgerId=ledger, entryId=entry)
    return encode_command(command)


def test_acks_count_before_what_the_same_client_says_next(broker: RunningBroker, topic: str) -> None:
    """3.3.1, 4.4.1 ACKs and, in one write behind them, a request to redeliver all the rest: only that comes again."""
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        must_succeed(client.subscribe(topic, "s", kind=CommandSubscribe.Shared, permits=1000))
        body = seal_entry(
            MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString(), b"value"
        )
        for number in range(20):
            client.send_entry(0, number, body)
        ledger, came = -1, 0
        while came < 20:
            command = client.next_command()
            if command.type == BaseCommand.MESSAGE:
                ledger, came = command.message.message_id.ledgerId, came + 1
        again = BaseCommand(type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
        again.redeliverUnacknowledgedMessages.consumer_id = 0
        acks = [_ack(entry, ledger) for entry in range(20) if entry != 13]
        client.socket.sendall(b"".join(acks) + encode_command(again))
        while (command := client.next_command()).type != BaseCommand.MESSAGE:
            pass
        assert (command.message.message_id.entryId, command.message.redelivery_count) == (13, 1)
