# SPDX-License-Identifier: Apache-2.0
"""Heads read by what differs from the one before say what those say that are read alone."""

from __future__ import annotations

import random

import pytest

from broker_core.base.errors import RemoteProtocolError
from broker_core.wire.arriving_heads import ArrivingHeads
from broker_core.wire.heads import message_frame_head, parse_message

HEAD_BYTES = 8


def command_of(*fields: int, ack_set: tuple[int, ...] = (), epoch: int = -1) -> bytes:
    """Consumer, ledger, entry, partition, redelivery count."""
    consumer_id, ledger, entry, partition, redeliveries = fields
    return message_frame_head(consumer_id, ledger, entry, partition, redeliveries, ack_set, 0, epoch)[HEAD_BYTES:]


def test_any_order_of_heads_reads_as_each_alone() -> None:
    """Consumers, ledgers, ack sets, redelivery counts and lengths of ids change at random."""
    source = random.Random(7)
    heads = ArrivingHeads()
    at = [source.choice([0, 120, 16_380, 2**21 - 5, 2**28 - 5]) for _ in range(3)]
    for _ in range(5_000):
        consumer = source.choice([0, 0, 0, 0, 0, 1, 300])
        entry = at[consumer % 3]
        at[consumer % 3] += source.choice([1, 1, 1, 200])
        words = source.choice([(), (), (), (5,), (0, -1)])
        fields = (consumer, source.choice([7, 7, 7, 900]), entry, consumer % 2 - 1, source.choice([0, 0, 0, 2]))
        command = command_of(*fields, ack_set=words, epoch=source.choice([-1, -1, 3]))
        assert heads.read(command) == parse_message(command)


def test_a_damaged_head_is_not_taken_for_the_one_before() -> None:
    """Every single byte changed: either both ways refuse it, or both read the same."""
    usual = command_of(3, 17, 70_000, 2, 0)
    for place in range(len(usual)):
        for byte in (0, 1, 0x7F, 0x80, 0xFF):
            heads = ArrivingHeads()
            heads.read(usual)
            damaged = usual[:place] + bytes((byte,)) + usual[place + 1 :]
            try:
                expected = parse_message(damaged)
            except RemoteProtocolError:
                with pytest.raises(RemoteProtocolError):
                    heads.read(damaged)
            else:
                assert heads.read(damaged) == expected
