# SPDX-License-Identifier: Apache-2.0
"""The commands that travel most, read and written: SEND, SEND_RECEIPT, MESSAGE, ACK and FLOW.

Same bytes and same meaning as the generated protobuf code. One reader serves all: a table says which field of a command
goes where. It takes the form that every encoder writes (the type first, the command behind it, nothing after) with
fields that it knows, once each where they are messages; all else goes to protobuf (``wire.heads``), so it may give up
but never guess. Ids are signed numbers carried in unsigned fields. Source: ``proto/pulsar_api.proto``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

try:
    import cython
except ImportError:
    from broker_core.wire.core import uncompiled as cython

if cython.compiled:
    from cython.cimports.broker_core.wire.core import fields as pb
    from cython.cimports.cpython.long import PyLong_AsUnsignedLongLongMask
else:
    from broker_core.wire.core import fields as pb

from broker_core.base.errors import RemoteProtocolError
from broker_core.base.invariants import invariant
from broker_core.wire.core.fields import table
from broker_core.wire.heads import (
    AckHead,
    FlowHead,
    MessageHead,
    ReceiptHead,
    SendHead,
    message_by_protobuf,
    receipt_by_protobuf,
    send_by_protobuf,
)

_INT32_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
_new_tuple = tuple.__new__
"""Makes a NamedTuple at half the cost of its own constructor."""

# -- tables: slot 0 is for fields that are not known here, 1 and 2 are start and end of the message id
_ID = cython.declare(cython.int, 1)
_SLOTS = 8

_SEND = cython.declare(bytes, table({1: 3, 2: 4, 3: 5, 6: 6, 7: 7}, {}))
_RECEIPT = cython.declare(bytes, table({1: 3, 2: 4, 4: 5}, {3: _ID}))
_MESSAGE = cython.declare(bytes, table({1: 3, 3: 4, 5: 5}, {2: _ID}))
_MESSAGE_ID = cython.declare(bytes, table({1: 3, 2: 4, 3: 5}, {}))
_ACK = cython.declare(bytes, table({1: 3, 2: 4, 8: 5}, {}))
_FLOW = cython.declare(bytes, table({1: 3, 2: 4}, {}))
_id_slots = cython.declare(cython.p_const_uchar)
_id_slots = _MESSAGE_ID


@cython.cfunc
@cython.exceptval(check=False)
def _walk(
    command: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    slots: cython.p_const_uchar,
    fields: cython.p_longlong,
) -> cython.longlong:
    """Fill ``fields`` from ``command[at:end]``: the slots found; 0 for what is to be left to protobuf."""
    flaw, seen, nested = pb.walk_fields(command, at, end, slots, fields, cython.NULL, cython.NULL, -1, 0)
    return 0 if flaw != pb.SOUND or seen & 1 or nested > 1 else seen


@cython.cfunc
@cython.exceptval(check=False)
def _begin(
    command: cython.p_const_uchar, size: cython.Py_ssize_t, kind: cython.int
) -> tuple[cython.Py_ssize_t, cython.Py_ssize_t]:
    """Where the fields begin of a command of this kind, whose field has the number of the kind; -1: has another form.

    The second number is -1 too if it is a command of another kind.
    """
    if size < 4 or command[0] != 0x08 or command[1] != kind:
        return -1, -1 if size < 2 or command[0] != 0x08 or command[1] != kind else 0
    if command[2] != kind << 3 | 2:
        return -1, 0
    length, at = pb.varint(command, 3, size)
    return at if at > 0 and length == size - at else -1, 0


@cython.cfunc
@cython.exceptval(check=False)
def _walk_id(command: cython.p_const_uchar, fields: cython.p_longlong, numbers: cython.p_longlong) -> cython.bint:
    """Ledger, entry and partition (-1: none) of the noted id into ``numbers``; False: to be left to protobuf."""
    numbers[5] = -1
    seen = _walk(command, fields[_ID], fields[_ID + 1], _id_slots, numbers)
    return seen >> 3 & 3 == 3 and numbers[3] >= 0 and numbers[4] >= 0 and -1 <= numbers[5] <= _INT32_MAX


# -- reading


@cython.cfunc
def _send(command: bytes) -> Any:
    """The head of a SEND, or None if ``command`` is another command; RemoteProtocolError if it is a damaged SEND."""
    data: cython.p_const_uchar = command
    if cython.compiled:
        fields: cython.longlong[8]
    else:
        fields = [0] * _SLOTS
    at, kind = _begin(data, len(command), 6)
    if kind < 0:
        return None
    fields[5], fields[6], fields[7] = 1, -1, 0
    seen = _walk(data, at, len(command), _SEND, fields) if at > 0 else 0
    if seen >> 3 & 3 != 3 or fields[3] < 0 or fields[4] < 0 or not 0 <= fields[5] <= _INT32_MAX or fields[6] < -1:
        return send_by_protobuf(command)
    return _new_tuple(SendHead, (fields[3], fields[4], fields[5], fields[6], fields[7] != 0, None))


def parse_sends(commands: list[bytes], start: cython.Py_ssize_t) -> list[SendHead]:
    """The heads of the SENDs that begin at ``commands[start]``, up to the first command that is another."""
    heads: list[Any] = []
    for number in range(start, len(commands)):
        try:
            head = _send(commands[number])
        except RemoteProtocolError:
            if not heads:
                raise
            break  # the next call begins with it
        if head is None:
            break
        heads.append(head)
    return heads


def parse_receipt(command: bytes) -> ReceiptHead | None:
    """The head of a SEND_RECEIPT, or None if ``command`` is another; RemoteProtocolError if it is a damaged one."""
    data: cython.p_const_uchar = command
    if cython.compiled:
        fields: cython.longlong[8]
        numbers: cython.longlong[8]
    else:
        fields, numbers = [0] * _SLOTS, [0] * _SLOTS
    at, kind = _begin(data, len(command), 7)
    if kind < 0:
        return None
    fields[5] = -1
    numbers[3] = numbers[4] = -1
    seen = _walk(data, at, len(command), _RECEIPT, fields) if at > 0 else 0
    usual = seen >> 3 & 3 == 3 and fields[3] >= 0 and fields[4] >= 0 and fields[5] >= -1
    if not usual or (seen >> _ID & 1 and not _walk_id(data, fields, numbers)):
        return receipt_by_protobuf(command)
    return _new_tuple(ReceiptHead, (fields[3], fields[4], fields[5], numbers[3], numbers[4]))


def parse_message(command: bytes) -> MessageHead | None:
    """The head of a MESSAGE, or None if ``command`` is another command; RemoteProtocolError if it is a damaged one."""
    data: cython.p_const_uchar = command
    if cython.compiled:
        fields: cython.longlong[8]
        numbers: cython.longlong[8]
    else:
        fields, numbers = [0] * _SLOTS, [0] * _SLOTS
    at, kind = _begin(data, len(command), 9)
    if kind < 0:
        return None
    fields[4], fields[5] = 0, -1
    seen = _walk(data, at, len(command), _MESSAGE, fields) if at > 0 else 0
    usual = seen >> 3 & 1 and seen >> _ID & 1 and fields[3] >= 0 and 0 <= fields[4] <= _INT32_MAX and fields[5] >= -1
    if not usual or not _walk_id(data, fields, numbers):
        return message_by_protobuf(command)
    return _new_tuple(MessageHead, (fields[3], numbers[3], numbers[4], numbers[5], fields[4], (), fields[5]))


@cython.cfunc
def _ack(command: bytes, fields: cython.p_longlong, entries: list[Any]) -> cython.bint:
    """Add the entries of an ACK to ``entries``; into ``fields`` from 3 on: consumer, kind, request id, ledger.

    False for what ``parse_acks`` does not take; some entries may have been added then.
    """
    data: cython.p_const_uchar = command
    end: cython.Py_ssize_t = len(command)
    if cython.compiled:
        numbers: cython.longlong[8]
    else:
        numbers = [0] * _SLOTS
    fields[3] = fields[4] = fields[5] = fields[6] = -1
    at, _kind = _begin(data, end, 10)
    while 0 < at < end:
        tag = data[at]
        value, at = pb.varint(data, at + 1, end)
        if at < 0 or value < 0:
            return False
        if tag == 0x1A:
            if value > end - at:
                return False
            fields[_ID], fields[_ID + 1] = at, at + value
            if not _walk_id(data, fields, numbers) or (fields[6] >= 0 and numbers[3] != fields[6]):
                return False
            fields[6] = numbers[3]
            entries.append(numbers[4])
            at += value
        elif tag == 0x08:
            fields[3] = value
        elif tag == 0x10:
            fields[4] = value
        elif tag == 0x40:
            fields[5] = value
        else:
            return False
    return at > 0 and fields[3] >= 0 and fields[4] == 0 and fields[6] >= 0


def parse_acks(commands: list[bytes], start: cython.Py_ssize_t) -> tuple[list[AckHead], int]:
    """The heads of the ACKs that begin at ``commands[start]``, and how many commands that is, up to the first command
    that is another, or an ACK of another kind: protobuf has to read that.

    Other kinds are: cumulative, of parts of batches, of several ledgers, of nothing, in a transaction, of an entry that
    could not be read, damaged. An ACK that wants a receipt comes alone. Clients that do not group acknowledgements send
    one for every message, and a connection of many consumers a few for each of them: those of one consumer that follow
    one another become one.
    """
    heads: list[Any] = []
    entries: list[Any] = []
    number: cython.Py_ssize_t = start
    consumer_id: cython.longlong = -1
    ledger: cython.longlong = -1
    if cython.compiled:
        fields: cython.longlong[8]
    else:
        fields = [0] * _SLOTS
    while number < len(commands):
        before = len(entries)
        if not _ack(commands[number], fields, entries) or (heads and fields[5] >= 0):
            del entries[before:]
            break
        number += 1
        if fields[3] == consumer_id and fields[6] == ledger:
            continue
        if heads:
            theirs = entries[before:]
            del entries[before:]
            entries = theirs
        consumer_id, ledger = fields[3], fields[6]
        heads.append(_new_tuple(AckHead, (consumer_id, ledger, entries, fields[5])))
        if fields[5] >= 0:
            break
    return heads, number - start


def parse_flow(command: bytes) -> FlowHead | None:
    """The head of a FLOW; None for another command, and for one that is left to protobuf."""
    data: cython.p_const_uchar = command
    if cython.compiled:
        fields: cython.longlong[8]
    else:
        fields = [0] * _SLOTS
    at, _kind = _begin(data, len(command), 11)
    seen = _walk(data, at, len(command), _FLOW, fields) if at > 0 else 0
    if seen >> 3 & 3 != 3 or fields[3] < 0 or not 0 <= fields[4] <= _INT32_MAX:
        return None
    return _new_tuple(FlowHead, (fields[3], fields[4]))


# -- writing


@cython.cfunc
def _u64(number: Any) -> cython.ulonglong:
    """The 64 bits in which ``number`` travels, with a sign or without."""
    return PyLong_AsUnsignedLongLongMask(number) if cython.compiled else number % (1 << 64)


@cython.cfunc
@cython.exceptval(check=False)
def _put(out: cython.p_uchar, at: cython.Py_ssize_t, tag: cython.uchar, number: cython.longlong) -> cython.Py_ssize_t:
    """Write a varint field; where it ends."""
    out[at] = tag
    return pb.put_varint(out, at + 1, number)


@cython.cfunc
@cython.exceptval(check=False)
def _put_id(
    out: cython.p_uchar, at: cython.Py_ssize_t, ledger: cython.longlong, entry: cython.longlong, partition: cython.int
) -> cython.Py_ssize_t:
    """Write a message id behind one byte for its length, partition -1: none; where it ends."""
    end = _put(out, _put(out, at + 1, 0x08, ledger), 0x10, entry)
    if partition >= 0:
        end = _put(out, end, 0x18, partition)
    out[at] = end - at - 1
    return end


@cython.cfunc
@cython.exceptval(check=False)
def _put_sizes(
    out: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, kind: cython.int, tail_len: cython.longlong
) -> cython.Py_ssize_t:
    """Write all that comes before the fields of a command, which lie from ``at`` to ``end``; where the frame begins."""
    length = end - at
    begin = at - pb.varint_size(length) - 11
    pb.put_u32(out, begin, end - begin - 4 + tail_len)
    pb.put_u32(out, begin + 4, end - begin - 8)
    out[begin + 8] = 0x08
    out[begin + 9] = kind
    out[begin + 10] = kind << 3 | 2
    pb.put_varint(out, begin + 11, length)
    return begin


def send_frame_head(
    producer_id: Any,
    sequence_id: Any,
    num_messages: cython.int,
    body_len: cython.longlong,
    highest_sequence_id: cython.longlong = -1,
    is_chunk: cython.bint = False,
) -> bytes:
    """Everything of a SEND frame that comes before a body of ``body_len`` bytes."""
    if cython.compiled:
        out: cython.uchar[96]
    else:
        out = bytearray(96)
    at = _put(out, _put(out, 16, 0x08, _u64(producer_id)), 0x10, _u64(sequence_id))
    if num_messages != 1:
        at = _put(out, at, 0x18, num_messages)
    if highest_sequence_id >= 0:
        at = _put(out, at, 0x30, highest_sequence_id)
    if is_chunk:
        at = _put(out, at, 0x38, 1)
    begin = _put_sizes(out, 16, at, 6, body_len)
    return bytes(out[begin:at])


def receipt_frames(
    producer_ids: Sequence[int],
    sequence_ids: Sequence[int],
    ledger: cython.longlong,
    first_entry: cython.longlong,
    partition: cython.int = -1,
    highest_sequence_ids: Sequence[int] = (),
) -> bytes:
    """Whole SEND_RECEIPT frames of entries that follow one another, joined.

    One of ``producer_ids`` is that of all; ``highest_sequence_ids`` is empty if there are none. ``partition`` -1: the
    topic is not partitioned. Ledger and entry -1: a duplicate.
    """
    count = len(sequence_ids)
    written = bytearray(128 * count)
    out: cython.p_uchar = written
    at: cython.Py_ssize_t = 0
    highest: cython.longlong = -1
    producer_id: cython.ulonglong = _u64(producer_ids[0])
    for number in range(count):
        if number < len(producer_ids):
            producer_id = _u64(producer_ids[number])
        if highest_sequence_ids:
            highest = highest_sequence_ids[number]
        begin = at + 12  # behind sizes, type and length, which take no more, as all fields take less than 128 bytes
        at = _put(out, _put(out, begin, 0x08, producer_id), 0x10, _u64(sequence_ids[number]))
        out[at] = 0x1A
        at = _put_id(out, at + 1, ledger, first_entry + number, partition)
        if highest >= 0:
            at = _put(out, at, 0x20, highest)
        _put_sizes(out, begin, at, 7, 0)
    return bytes(out[0:at])


@cython.cfunc
def _put_message(
    out: cython.p_uchar,
    consumer_id: cython.ulonglong,
    ledger: cython.longlong,
    entry: cython.longlong,
    partition: cython.int,
    redelivery_count: cython.longlong,
    ack_set: Any,
    consumer_epoch: cython.longlong,
) -> cython.Py_ssize_t:
    """Write the fields of a MESSAGE at 16; where they end. They take 80 bytes at most, and 11 for each word."""
    at = _put(out, 16, 0x08, consumer_id)
    out[at] = 0x12
    at = _put_id(out, at + 1, ledger, entry, partition)
    if redelivery_count:
        at = _put(out, at, 0x18, redelivery_count)
    if ack_set:
        for word in ack_set:
            at = _put(out, at, 0x20, _u64(word))
    if consumer_epoch >= 0:
        at = _put(out, at, 0x28, consumer_epoch)
    return at


def message_buffers(
    deliveries: list[Any],
    consumer_id: Any,
    partition: cython.int,
    consumer_epoch: cython.longlong,
    with_broker_entry: cython.bint,
) -> tuple[list[bytes], int]:
    """The MESSAGE frames of ``deliveries`` (``broker.sinks.Delivery``), two buffers each, and their bytes together.

    An ack set has signed 64-bit words, 1 = still to be consumed; None or empty if the whole entry is.
    ``consumer_epoch`` -1: the messages belong to no epoch. ``with_broker_entry``: broker time, and the index of its
    last message, come in front of each entry (PIP-70).
    """
    buffers: list[Any] = []
    total: cython.Py_ssize_t = 0
    to: cython.ulonglong = _u64(consumer_id)
    out: cython.p_uchar
    if cython.compiled:
        small: cython.uchar[160]
    else:
        small = bytearray(160)
    for entry, redelivery_count, ack_set in deliveries:
        position, body, _messages, index, broker_timestamp_ms = entry
        out = small
        if ack_set:
            written = bytearray(160 + 11 * len(ack_set))
            out = written
        ledger, number = position
        end = _put_message(out, to, ledger, number, partition, redelivery_count, ack_set, consumer_epoch)
        tail: cython.Py_ssize_t = len(body)
        end_of_prefix = _put_prefix(out, end, _u64(broker_timestamp_ms), _u64(index)) if with_broker_entry else end
        begin = _put_sizes(out, 16, end, 9, tail + end_of_prefix - end)
        buffers.append(bytes(out[begin:end_of_prefix]))
        buffers.append(body)
        total += end_of_prefix - begin + tail
    return buffers, total


@cython.cfunc
@cython.exceptval(check=False)
def _put_prefix(
    out: cython.p_uchar, at: cython.Py_ssize_t, broker_timestamp_ms: cython.longlong, index: cython.longlong
) -> cython.Py_ssize_t:
    out[at], out[at + 1] = 0x0E, 0x02
    end = _put(out, _put(out, at + 6, 0x08, broker_timestamp_ms), 0x10, index)
    pb.put_u32(out, at + 2, end - at - 6)
    return end


def ack_ids(ledger: Any, entries: Sequence[int], partition: cython.int = -1) -> bytes:
    """Field ``message_id`` of an ACK, once for each of ``entries``."""
    written = bytearray(32 * len(entries))
    out: cython.p_uchar = written
    at: cython.Py_ssize_t = 0
    of_ledger = _u64(ledger)
    for entry in entries:
        out[at] = 0x1A
        at = _put_id(out, at + 1, of_ledger, _u64(entry), partition)
    return bytes(out[0:at])


def varint(value: Any) -> bytes:
    """``value`` as a varint. Negative numbers become the ten bytes that int32 and int64 fields use for them."""
    if cython.compiled:
        out: cython.uchar[10]
    else:
        out = bytearray(10)
    invariant(-(2**63) <= value < 2**64, "%d does not fit in 64 bits", value)
    end = pb.put_varint(out, 0, _u64(value))
    return bytes(out[0:end])
