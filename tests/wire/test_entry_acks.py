# SPDX-License-Identifier: Apache-2.0
"""ACKs of many entries as they are made for queues: what protobuf reads out of them."""

from __future__ import annotations

from broker_core.base.positions import Position
from broker_core.wire.commands import ENTRIES_AT_ONCE, entry_acks
from broker_core.wire.large_commands import LONG_FROM_BYTES
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandAck
from tests.wire.single_frames import parse_ack

LARGE = 2**62


def test_every_position_is_in_one_ack_that_the_broker_reads_at_once() -> None:
    """Of several ledgers, with ids of all lengths, on a partition: none is lost, none is long enough to be cut."""
    wanted = {
        7: [*range(5_000), *range(2**21 - 3, 2**21 + 3)],
        LARGE: [LARGE + entry for entry in range(ENTRIES_AT_ONCE + 1)],
        9: [2**63 - 1],
    }
    found = []
    for number, ack in enumerate(entry_acks(3, wanted, 12)):
        assert (ack.consumer_id, ack.ack_type) == (3, CommandAck.Individual)
        assert {each.partition for each in ack.message_id} == {12}
        ack.request_id = number
        command = BaseCommand(type=BaseCommand.ACK, ack=ack).SerializeToString()
        assert len(command) < LONG_FROM_BYTES
        head = parse_ack(command)
        assert head is not None
        found += [Position(head.ledger, entry) for entry in head.entries]
    assert found == [Position(ledger, entry) for ledger, entries in wanted.items() for entry in entries]


def test_a_topic_without_partitions_has_none_in_its_acks() -> None:
    """As every client writes it."""
    (ack,) = entry_acks(0, {1: [2]}, -1)
    assert not ack.message_id[0].HasField("partition")
    assert (ack.message_id[0].ledgerId, ack.message_id[0].entryId) == (1, 2)
