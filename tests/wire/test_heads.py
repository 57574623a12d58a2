# SPDX-License-Identifier: Apache-2.0
"""The hand-coded heads against protobuf, both ways, for every value that a field can hold and for damaged ones."""

from __future__ import annotations

import struct
from itertools import takewhile
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.base.errors import RemoteProtocolError
from broker_core.base.positions import to_signed64, to_unsigned64
from broker_core.wire import heads
from broker_core.wire.commands import ping
from broker_core.wire.core import hot_commands as core
from broker_core.wire.heads import TxnId
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.wire import single_frames as single

SETTINGS = settings(derandomize=True, deadline=None, max_examples=300)

small = st.integers(0, 2**31 - 1)
signed = st.one_of(st.integers(0, 200), st.integers(0, 2**40), st.integers(-(2**63), 2**63 - 1), st.just(-1))
partition = st.one_of(st.just(-1), st.integers(0, 2**31 - 1))
optional = st.one_of(st.just(-1), st.integers(0, 2**63 - 1))


def command_of(frame_head: bytes, tail_len: int = 0) -> bytes:
    """The command inside a frame head, whose sizes must fit a frame with ``tail_len`` more bytes."""
    total, size = struct.unpack(">II", frame_head[:8])
    assert len(frame_head) == 8 + size
    assert total == 4 + size + tail_len
    return frame_head[8:]


def outcome(parse: object, command: bytes) -> object:
    """What a parser makes of ``command``: a head, None, or the class of its error."""
    try:
        return parse(command)  # type: ignore[operator]
    except RemoteProtocolError:
        return RemoteProtocolError


@SETTINGS
@given(small, signed, st.integers(-5, 2**31 - 1), st.integers(0, 2**31), optional, st.booleans())
def test_send_is_written_and_read_as_by_protobuf(
    producer_id: int, sequence_id: int, messages: int, body_len: int, highest: int, is_chunk: bool
) -> None:
    """Same bytes as the generated code, and the fields come back."""
    frame_head = core.send_frame_head(producer_id, sequence_id, messages, body_len, highest, is_chunk)
    send = pb.CommandSend(producer_id=producer_id, sequence_id=to_unsigned64(sequence_id))
    if messages != 1:
        send.num_messages = messages
    if highest >= 0:
        send.highest_sequence_id = highest
    if is_chunk:
        send.is_chunk = True
    command = command_of(frame_head, body_len)
    assert command == BaseCommand(type=BaseCommand.SEND, send=send).SerializeToString()
    assert single.parse_send(command) == heads.SendHead(producer_id, sequence_id, messages, highest, is_chunk)


@SETTINGS
@given(small, signed, signed, signed, partition, optional)
def test_a_receipt_is_written_and_read_as_by_protobuf(
    producer_id: int, sequence_id: int, ledger: int, entry: int, index: int, highest: int
) -> None:
    """Same bytes as the generated code, and the fields come back; a duplicate's id is -1:-1 (semantics 1.4.3)."""
    frame = single.receipt_frame(producer_id, sequence_id, ledger, entry, index, highest)
    where = pb.MessageIdData(ledgerId=to_unsigned64(ledger), entryId=to_unsigned64(entry))
    if index >= 0:
        where.partition = index
    receipt = pb.CommandSendReceipt(producer_id=producer_id, sequence_id=to_unsigned64(sequence_id), message_id=where)
    if highest >= 0:
        receipt.highest_sequence_id = highest
    command = command_of(frame)
    assert command == BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=receipt).SerializeToString()
    assert core.parse_receipt(command) == heads.ReceiptHead(producer_id, sequence_id, highest, ledger, entry)


@SETTINGS
@given(small, signed, signed, partition, small, st.lists(signed, max_size=40), st.integers(0, 2**31), optional)
def test_a_message_is_written_and_read_as_by_protobuf(
    consumer_id: int,
    ledger: int,
    entry: int,
    index: int,
    redeliveries: int,
    ack_set: list[int],
    tail_len: int,
    epoch: int,
) -> None:
    """Same bytes as the generated code, and the fields come back, ack set words as signed numbers."""
    frame_head = single.message_frame_head(consumer_id, ledger, entry, index, redeliveries, ack_set, tail_len, epoch)
    where = pb.MessageIdData(ledgerId=to_unsigned64(ledger), entryId=to_unsigned64(entry))
    if index >= 0:
        where.partition = index
    message = pb.CommandMessage(consumer_id=consumer_id, message_id=where, ack_set=ack_set)
    if redeliveries:
        message.redelivery_count = redeliveries
    if epoch >= 0:
        message.consumer_epoch = epoch
    command = command_of(frame_head, tail_len)
    assert command == BaseCommand(type=BaseCommand.MESSAGE, message=message).SerializeToString()
    wanted = heads.MessageHead(consumer_id, ledger, entry, index, redeliveries, tuple(ack_set), epoch)
    assert core.parse_message(command) == wanted


@SETTINGS
@given(
    small,
    partition,
    optional,
    st.booleans(),
    st.lists(
        st.tuples(
            signed, signed, st.binary(max_size=9), small, st.none() | st.lists(signed, max_size=40), signed, signed
        )
    ),
)
def test_frames_of_deliveries_are_those_of_each_entry(
    consumer_id: int, index: int, epoch: int, with_broker_entry: bool, entries: list[tuple[Any, ...]]
) -> None:
    """The head, what the broker puts in front of the entry if the client understands it, and the entry itself."""
    deliveries, expected = [], b""
    for ledger, entry, body, count, ack_set, broker_time, message_index in entries:
        deliveries.append((((ledger, entry), body, 1, message_index, broker_time), count, ack_set))
        tail = (single.broker_entry_prefix(broker_time, message_index) if with_broker_entry else b"") + body
        expected += (
            single.message_frame_head(consumer_id, ledger, entry, index, count, ack_set, len(tail), epoch) + tail
        )
    buffers, total = core.message_buffers(deliveries, consumer_id, index, epoch, with_broker_entry)
    assert b"".join(buffers) == expected
    assert total == len(expected)


edges = st.sampled_from([0, 100, 2**14 - 3, 2**28 - 1, 2**62, 2**63 - 20]) | signed
"""Where numbers begin of which a few are counted up from there."""


@SETTINGS
@given(small, partition, signed, edges, edges, st.integers(1, 20), st.none() | st.lists(signed, min_size=1, max_size=5))
def test_receipts_of_a_run_are_those_of_its_entries(
    producer_id: int, index: int, ledger: int, first_id: int, entry: int, count: int, others: list[int] | None
) -> None:
    """Whether the sequence ids count up or not, and wherever numbers grow longer."""
    ids = others or [min(first_id + number, 2**63 - 1) for number in range(count)]
    entry = min(entry, 2**63 - 30)
    wanted = [single.receipt_frame(producer_id, each, ledger, entry + n, index) for n, each in enumerate(ids)]
    assert core.receipt_frames((producer_id,), ids, ledger, entry, index) == b"".join(wanted)
    assert core.receipt_frames([producer_id] * len(ids), ids, ledger, entry, index) == b"".join(wanted)


@st.composite
def sends_in_a_row(draw: st.DrawFn) -> list[bytes]:
    """SENDs of few producers, which mostly count up, with something else among them."""
    commands: list[bytes] = []
    for _ in range(draw(st.integers(1, 6))):
        producer_id, first = draw(st.integers(0, 2)), draw(edges)
        messages, highest, chunk = draw(st.sampled_from([(1, -1, False), (7, -1, False), (1, -1, True), (5, 9, False)]))
        for number in range(draw(st.integers(1, 12))):
            sequence_id = first + number if first + number < 2**63 else number
            frame = core.send_frame_head(producer_id, sequence_id, messages, 0, highest, chunk)
            commands.append(command_of(frame, 0))
    for _ in range(draw(st.integers(0, 3))):
        odd = draw(st.sampled_from([b"\x08\x06\x32\x06\x08\x01\x10\x02\x10\x02", ping().SerializeToString()]))
        commands.insert(draw(st.integers(0, len(commands))), odd)
    return commands


@SETTINGS
@given(sends_in_a_row())
def test_sends_that_come_together_are_read_like_each_of_them(commands: list[bytes]) -> None:
    """Of one producer or of many, up to any other command: also in the odd form, a field twice."""
    for at in range(len(commands)):
        alone = list(takewhile(lambda head: head is not None, map(single.parse_send, commands[at:])))
        assert core.parse_sends(commands, at) == alone


@pytest.mark.parametrize("messages", [1, 5])
@pytest.mark.parametrize("last_short", [2**7 - 1, 2**14 - 1, 2**56 - 1])
def test_a_number_that_grows_longer_needs_another_size(last_short: int, messages: int) -> None:
    """A SEND with the size of the one before it, whose number was a byte shorter, is damaged."""
    short = command_of(core.send_frame_head(3, last_short, messages, 0), 0)
    long = command_of(core.send_frame_head(3, last_short + 1, messages, 0), 0)
    damaged = long[:3] + short[3:4] + long[4:]
    assert [len(core.parse_sends([short, long], at)) for at in (0, 1)] == [2, 1]
    assert core.parse_sends([short, damaged], 0) == [single.parse_send(short)]
    with pytest.raises(RemoteProtocolError):
        core.parse_sends([short, damaged], 1)


def ack_by_protobuf(command: bytes) -> heads.AckHead | None:
    """What ``parse_ack`` may report of ``command``, by the generated code."""
    try:
        parsed = BaseCommand.FromString(command)
    except DecodeError:
        return None
    ack = parsed.ack
    ids = [(to_signed64(each.ledgerId), to_signed64(each.entryId)) for each in ack.message_id]
    if not parsed.IsInitialized() or parsed.type != BaseCommand.ACK or len({ledger for ledger, _ in ids}) != 1:
        return None
    if ack.ack_type != pb.CommandAck.Individual or any(each.ack_set for each in ack.message_id):
        return None
    request_id = to_signed64(ack.request_id) if ack.HasField("request_id") else -1
    return heads.AckHead(ack.consumer_id, ids[0][0], [entry for _, entry in ids], request_id)


def ack_command(consumer_id: int, ids: list[tuple[int, int]], index: int, request_id: int) -> BaseCommand:
    ack = pb.CommandAck(consumer_id=consumer_id, ack_type=pb.CommandAck.Individual)
    for ledger, entry in ids:
        where = ack.message_id.add(ledgerId=to_unsigned64(ledger), entryId=to_unsigned64(entry))
        if index >= 0:
            where.partition = index
    if request_id >= 0:
        ack.request_id = request_id
    return BaseCommand(type=BaseCommand.ACK, ack=ack)


entry_ids = st.lists(st.integers(0, 2**14) | st.integers(0, 2**40), min_size=1, max_size=60)
ids_of_one_length = st.sampled_from((0, 7, 14, 21, 56)).flatmap(
    lambda bits: st.lists(st.integers(2**bits if bits else 0, 2 ** (bits + 7) - 1), min_size=15, max_size=60)
)


@SETTINGS
@given(small, st.integers(0, 2**63 - 1), entry_ids | ids_of_one_length, partition, optional)
def test_an_ack_of_whole_entries_is_read_as_by_protobuf(
    consumer_id: int, ledger: int, entries: list[int], index: int, request_id: int
) -> None:
    """3.1.1, 3.3.5: ids of every length, one after the other, with and without a request for a receipt."""
    command = ack_command(consumer_id, [(ledger, entry) for entry in entries], index, request_id).SerializeToString()
    assert single.parse_ack(command) == heads.AckHead(consumer_id, ledger, entries, request_id)


one_ack = st.tuples(small, st.sampled_from((7, 300)), entry_ids, st.sampled_from((-1, 2)), st.sampled_from((-1, -1, 9)))
alike_ack = st.tuples(
    small, st.just(7), st.lists(st.integers(128, 2**14 - 1), min_size=1, max_size=3), st.just(-1), st.just(-1)
)


@SETTINGS
@given(st.lists(alike_ack | one_ack, min_size=1, max_size=30) | st.lists(alike_ack, min_size=1, max_size=30))
def test_acks_that_came_together_are_read_as_one_by_one(acks: list[tuple[int, int, list[int], int, int]]) -> None:
    """3.1.1, 3.3.5: of many consumers, whatever their ids are like; those of one consumer as one."""
    commands = [
        ack_command(consumer_id, [(ledger, entry) for entry in entries], index, request_id).SerializeToString()
        for consumer_id, ledger, entries, index, request_id in acks
    ]
    at = 0
    while at < len(commands):
        run, count = core.parse_acks(commands, at)
        assert run == merged([single.parse_ack(command) for command in commands[at : at + count]])
        assert count == 1 or all(head.request_id < 0 for head in run)
        at += count


def merged(acks: list[heads.AckHead | None]) -> list[heads.AckHead]:
    """Neighbours of one consumer and one ledger as one."""
    found: list[heads.AckHead] = []
    for head in acks:
        assert head is not None
        if found and head[:2] == found[-1][:2]:
            found[-1] = found[-1]._replace(entries=found[-1].entries + head.entries)
        else:
            found.append(head)
    return found


def test_acks_of_many_consumers_are_read_together() -> None:
    """All of them at once: that is what it is for. Any other command ends it; one that wants a receipt comes alone."""
    commands = [ack_command(number, [(7, 200 + number)], -1, -1).SerializeToString() for number in range(64)]
    assert [core.parse_acks(commands, at)[1] for at in (0, 63)] == [64, 1]
    receipt = ack_command(3, [(7, 200)], -1, 5).SerializeToString()
    flow = BaseCommand(type=BaseCommand.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=1)).SerializeToString()
    for other, alone in ((receipt, 1), (flow, 0)):
        mixed = [*commands[:5], other, *commands[5:]]
        assert core.parse_acks(mixed, 0)[1] == 5
        assert core.parse_acks(mixed, 5)[1] == alone


@SETTINGS
@given(st.data())
def test_a_damaged_ack_among_others_is_read_as_by_itself(data: st.DataObject) -> None:
    """Whatever a run holds is what each command holds by itself."""
    commands = [ack_command(3, [(7, 200), (7, 201)], -1, -1).SerializeToString() for _ in range(8)]
    damaged = bytearray(commands[0])
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(2, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(2, len(damaged))) :]
    commands[data.draw(st.integers(0, 7))] = bytes(damaged)
    at = 0
    while at < len(commands):
        run, count = core.parse_acks(commands, at)
        assert run == merged([single.parse_ack(command) for command in commands[at : at + count]])
        assert run or single.parse_ack(commands[at]) is None
        at += max(count, 1)


def test_other_acks_are_left_to_protobuf() -> None:
    """None for what is not whole entries of one ledger, each by itself."""
    others = [ack_command(1, [(3, 4), (3, 5)], -1, -1) for _ in range(7)]
    others[0].ack.ack_type = pb.CommandAck.Cumulative
    others[1].ack.message_id[1].ack_set.append(5)
    others[2].ack.message_id[1].ledgerId = 4
    others[3].ack.txnid_least_bits = 1
    others[4].ack.validation_error = pb.CommandAck.ChecksumMismatch
    others[5].ack.message_id[0].entryId = to_unsigned64(-1)
    del others[6].ack.message_id[:]
    for other in others:
        assert single.parse_ack(other.SerializeToString()) is None


@SETTINGS
@given(st.data())
def test_damaged_acks_are_read_as_protobuf_reads_them_or_left_to_it(data: st.DataObject) -> None:
    """A fast path may give up, but what it reports is what protobuf reports."""
    entries = st.lists(st.integers(100, 300), min_size=1, max_size=5) | st.lists(st.integers(128, 300), min_size=20)
    ids = [(7, entry) for entry in data.draw(entries)]
    command = bytearray(ack_command(3, ids, data.draw(st.sampled_from((-1, 2))), 9).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        command[data.draw(st.integers(2, len(command) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del command[data.draw(st.integers(2, len(command))) :]
    found = single.parse_ack(bytes(command))
    assert found is None or found == ack_by_protobuf(bytes(command))


@SETTINGS
@given(small, small, st.data())
def test_a_flow_is_read_as_by_protobuf_or_left_to_it(consumer_id: int, permits: int, data: st.DataObject) -> None:
    """Whole ones are read, and of damaged ones nothing but what protobuf reads."""
    flow = pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits)
    whole = BaseCommand(type=BaseCommand.FLOW, flow=flow).SerializeToString()
    assert core.parse_flow(whole) == heads.FlowHead(consumer_id, permits)
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 2))):
        damaged[data.draw(st.integers(2, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(2, len(damaged))) :]
    found = core.parse_flow(bytes(damaged))
    if found is not None:
        read = BaseCommand.FromString(bytes(damaged)).flow
        assert found == heads.FlowHead(read.consumer_id, read.messagePermits)


@SETTINGS
@given(st.data())
def test_damaged_heads_heads_are_read_as_protobuf_reads_them_or_refused(data: st.DataObject) -> None:
    """A fast path may give up, but what it reports is what protobuf reports."""
    originals = (
        core.send_frame_head(3, 1_000_000, 1000, 0, 1_000_999)[8:],
        single.receipt_frame(3, 1_000_000, 7, 300, 2, 5)[8:],
        single.message_frame_head(3, 7, 300, 2, 1, (-1, 5), 0)[8:],
    )
    command = bytearray(data.draw(st.sampled_from(originals)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(2, len(command) - 1))
        command[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del command[data.draw(st.integers(2, len(command))) :]
    raw = bytes(command)
    pairs = (
        (single.parse_send, heads.send_by_protobuf),
        (core.parse_receipt, heads.receipt_by_protobuf),
        (core.parse_message, heads.message_by_protobuf),
    )
    fast, slow = pairs[raw[1] - 6] if raw[1] < 8 else pairs[2]
    assert outcome(fast, raw) == outcome(slow, raw)


def test_fields_that_are_unknown_or_unusual_go_through_protobuf() -> None:
    """Unknown fields and numbers in the long way of writing do not change what is read; a transaction is noticed."""
    send = pb.CommandSend(producer_id=1, sequence_id=2, txnid_least_bits=3, txnid_most_bits=4, marker=True)
    command = BaseCommand(type=BaseCommand.SEND, send=send).SerializeToString()
    assert single.parse_send(command) == heads.SendHead(1, 2, transaction=TxnId(4, 3))
    long_way = b"\x08\x06\x32\x0c\x08\x81\x80\x00\x10\x82\x80\x80\x80\x80\x80\x00"
    assert single.parse_send(long_way) == heads.SendHead(1, 2, 1, -1, False)
    without_id = BaseCommand(
        type=BaseCommand.SEND_RECEIPT, send_receipt=pb.CommandSendReceipt(producer_id=1, sequence_id=2)
    )
    assert core.parse_receipt(without_id.SerializeToString()) == heads.ReceiptHead(1, 2, -1, -1, -1)


@pytest.mark.parametrize("parse", [single.parse_send, core.parse_receipt, core.parse_message, single.parse_ack])
def test_other_commands_are_none_of_these(parse: object) -> None:
    """None means: not mine."""
    assert parse(ping().SerializeToString()) is None  # type: ignore[operator]
    assert parse(b"") is None  # type: ignore[operator]


@pytest.mark.parametrize(
    "command", [b"\x08\x06", b"\x08\x06\x32\x00", b"\x08\x06\x32\x02\x08\x01", b"\x08\x06\x32\x05\x08\x01\x10\x02"]
)
def test_a_send_without_its_fields_is_refused(command: bytes) -> None:
    """A command that says it is a SEND but lacks producer or sequence id is an error, not None."""
    with pytest.raises(RemoteProtocolError, match="send"):
        single.parse_send(command)


def test_ids_are_signed() -> None:
    """Earliest and latest survive the unsigned fields they travel in (semantics 1.4.3)."""
    for number in (-1, 2**63 - 1):
        head = core.parse_message(single.message_frame_head(0, number, number, -1, 0, None, 0)[8:])
        assert head is not None
        assert (head.ledger, head.entry) == (number, number)
        assert to_signed64(to_unsigned64(number)) == number
