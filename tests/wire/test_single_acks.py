# SPDX-License-Identifier: Apache-2.0
"""ACKs of one message each, read together, against each of them read by itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.wire.commands import ping
from broker_core.wire.heads import AckHead, parse_ack
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandAck
from broker_core.wire.single_acks import parse_single_acks

SETTINGS = settings(derandomize=True, deadline=None, max_examples=300)


def ack(entry: int, consumer: int = 3, ledger: int = 9, partition: int = -1, **fields: int) -> bytes:
    """An ACK of one entry."""
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id, command.ack.ack_type = consumer, CommandAck.Individual
    where = command.ack.message_id.add(ledgerId=ledger, entryId=entry)
    if partition >= 0:
        where.partition = partition
    for name, value in fields.items():
        setattr(command.ack, name, value)
    return command.SerializeToString()


@SETTINGS
@given(
    st.lists(st.one_of(st.integers(0, 300), st.integers(0, 2**49)), min_size=1, max_size=20),
    st.integers(0, 300),
    st.integers(0, 2**60),
    st.sampled_from([-1, 0, 200]),
)
def test_acks_of_one_consumer_say_the_same_together(
    entries: list[int], consumer: int, ledger: int, partition: int
) -> None:
    """As many as have ids of one length, at least two; of one alone nobody has to be told together."""
    commands = [ack(entry, consumer, ledger, partition) for entry in entries]
    alike = next((n for n, each in enumerate(commands) if len(each) != len(commands[0])), len(commands))
    found = parse_single_acks(commands, 0)
    assert found == (AckHead(consumer, ledger, entries[:alike], -1) if alike > 1 else None)


@pytest.mark.parametrize(
    "other",
    [
        ack(7, consumer=4),
        ack(7, ledger=8),
        ack(7, partition=1),
        ack(7, request_id=1),
        ack(7, ack_type=CommandAck.Cumulative),
        ack(300),
        ack(7)[:-1],
        ping().SerializeToString(),
        b"",
    ],
)
def test_whatever_else_comes_ends_them(other: bytes) -> None:
    """Another consumer, ledger or kind, one that wants a receipt, a damaged one."""
    found = parse_single_acks([ack(5), ack(6), other, ack(7)], 0)
    assert found == AckHead(3, 9, [5, 6], -1)
    assert parse_single_acks([other, ack(6), ack(7)], 0) is None
    assert parse_single_acks([ack(6), other], 0) is None


def test_several_ids_in_one_command_are_left_to_the_others() -> None:
    """Each command here stands for one entry, which is how many were acted on."""
    command = BaseCommand.FromString(ack(5))
    command.ack.message_id.add(ledgerId=9, entryId=6)
    assert parse_single_acks([command.SerializeToString()] * 3, 0) is None


@SETTINGS
@given(st.data())
def test_damage_in_one_of_them_is_never_read_as_an_entry(data: st.DataObject) -> None:
    """What is read together is what each of the commands says by itself."""
    commands = [bytearray(ack(entry, partition=data.draw(st.sampled_from([-1, 2])))) for entry in (5, 6, 7)]
    broken = data.draw(st.sampled_from(commands))
    broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    found = parse_single_acks([bytes(each) for each in commands], 0)
    if found is not None:
        alone = [parse_ack(bytes(each)) for each in commands[: len(found.entries)]]
        assert alone == [AckHead(found.consumer_id, found.ledger, [entry], -1) for entry in found.entries]
