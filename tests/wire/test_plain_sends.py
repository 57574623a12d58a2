# SPDX-License-Identifier: Apache-2.0
"""SENDs of many producers read by columns, and their receipts, against the heads read and written one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.wire.commands import ping
from broker_core.wire.heads import ReceiptHead, SendHead, parse_receipt, parse_send, receipt_frame, send_frame_head
from broker_core.wire.plain_sends import are_of_two, head_of, parse_plain_sends, plain_receipts
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

SETTINGS = settings(derandomize=True, deadline=None, max_examples=300)

producer_ids = st.one_of(st.integers(0, 300), st.integers(0, 2**14 - 1))
sequence_ids = st.one_of(st.integers(0, 300), st.integers(0, 2**62))


def send(producer_id: int, sequence_id: int, **fields: int) -> bytes:
    """The command of a SEND."""
    return send_frame_head(producer_id, sequence_id, fields.get("messages", 1), 0, fields.get("highest", -1))[8:]


@SETTINGS
@given(st.lists(st.tuples(producer_ids, sequence_ids), min_size=1, max_size=20))
def test_sends_of_many_producers_are_read_like_each_of_them(sends: list[tuple[int, int]]) -> None:
    """However long their numbers are; what was not worked out comes back from the bytes."""
    commands = [send(*each) for each in sends]
    plain = parse_plain_sends(commands, 0)
    heads = [parse_send(command) for command in commands]
    assert [head_of(ids) for ids in plain.ids] == heads
    assert plain.producer_ids == [head.producer_id for head in heads if head is not None]


@SETTINGS
@given(
    st.lists(st.tuples(producer_ids, sequence_ids), min_size=1, max_size=20),
    st.integers(0, 2**50),
    st.one_of(st.integers(0, 200), st.integers(0, 2**40)),
    st.sampled_from([-1, 0, 5, 300]),
)
def test_their_receipts_are_those_of_single_sends(
    sends: list[tuple[int, int]], ledger: int, first_entry: int, partition: int
) -> None:
    """Byte for byte, at every border where a number grows longer."""
    plain = parse_plain_sends([send(*each) for each in sends], 0)
    expected = b"".join(
        receipt_frame(producer_id, sequence_id, ledger, first_entry + number, partition)
        for number, (producer_id, sequence_id) in enumerate(sends)
    )
    assert plain_receipts(plain.ids, ledger, first_entry, partition) == expected


def test_an_explicit_count_of_one_message_is_plain() -> None:
    """Clients may write the default or leave it away."""
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id, command.send.sequence_id, command.send.num_messages = 300, 7, 1
    plain = parse_plain_sends([command.SerializeToString()], 0)
    assert (plain.producer_ids, head_of(plain.ids[0])) == ([300], SendHead(300, 7))


def test_numbers_that_are_longer_than_they_need_be_are_echoed() -> None:
    """Legal on the wire; the client that wrote them so reads the same number."""
    command = bytes((0x08, 0x06, 0x32, 6, 0x08, 0x83, 0x00, 0x10, 0x85, 0x00))
    plain = parse_plain_sends([command], 0)
    assert plain.producer_ids == [3]
    receipt = parse_receipt(plain_receipts(plain.ids, 9, 4)[8:])
    assert receipt == ReceiptHead(3, 5, -1, 9, 4)


@pytest.mark.parametrize(
    "other",
    [
        send(1, 5, messages=2),
        send(1, 5, highest=6),
        send(1, -1),
        send(2**14, 5),
        send(1, 5) + b"\x18\x01",
        send(1, 5)[:-1],
        ping().SerializeToString(),
        b"",
    ],
)
def test_whatever_else_comes_ends_them(other: bytes) -> None:
    """Batches, large numbers, other commands and damaged ones are for those who read them one by one."""
    plain = parse_plain_sends([send(1, 4), send(2, 4), other, send(3, 4)], 0)
    assert plain.producer_ids == [1, 2]
    assert parse_plain_sends([send(1, 4), other], 1).ids == []


def test_neighbours_of_one_producer_are_told_from_those_of_two() -> None:
    """So a single producer's run is read in the way that is made for it."""
    assert are_of_two([send(1, 4), send(2, 4)], 0)
    assert are_of_two([send(1, 4), send(130, 4)], 0)
    assert not are_of_two([send(1, 4), send(1, 5)], 0)
    assert not are_of_two([send(1, 4), send(2, 4)], 1)
