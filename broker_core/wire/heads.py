# SPDX-License-Identifier: Apache-2.0
"""Hand-coded heads of the commands that travel once per entry: SEND, SEND_RECEIPT and MESSAGE, and how ACK is read.

Same bytes and same meaning as the generated protobuf code, several times faster. A reader takes the form that every
encoder writes (the type first, the command behind it, nothing after); whatever looks different goes to protobuf, so a
fast path may give up but never guess. A command whose type field does not come first is not recognised here.
Ids are signed numbers carried in unsigned fields (``base.positions``). Source: ``proto/pulsar_api.proto``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import accumulate, repeat
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from broker_core.base.errors import RemoteProtocolError
from broker_core.base.positions import to_signed64
from broker_core.base.txn_id import TxnId
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from broker_core.wire.varint import LOW_BITS, LOW_MASK, SHORT, VARINTS, beside_low_bits, varint, varints

# Bare numbers below are protobuf tags: field number * 8 + wire type (0 a varint, 2 bytes or a nested message).
_INT64_MAX: Final = 2**63 - 1

_COLUMNS_FROM: Final = 16
"""Message ids from which on reading them by columns is worth it."""

_ID_BYTES_MAX: Final = 8
"""Longer entry ids are left to protobuf."""

_SIZES_KNOWN: Final = 8
"""Heads that are kept for a consumer, of which there may be very many: of entries of so many sizes."""

_COUNTED_BELOW: Final = 2**62
"""Sequence ids from here on are parsed one by one: counting up could end beyond 64 bits."""

_pack_sizes = struct.Struct(">II").pack
_new_tuple = tuple.__new__
"""Makes a NamedTuple at half the cost of its own constructor."""

_RECEIPT_STARTS: Final = tuple(b"%b\x08\x07\x3a%c" % (_pack_sizes(size + 8, size + 4), size) for size in range(80))
"""What comes before a CommandSendReceipt, by its size. The largest has 6 varints of 10 bytes and 8 bytes more."""


class SendHead(NamedTuple):
    """CommandSend. ``highest_sequence_id`` is -1 if absent."""

    producer_id: int
    sequence_id: int
    num_messages: int = 1
    highest_sequence_id: int = -1
    is_chunk: bool = False
    transaction: TxnId | None = None


class SendColumns(NamedTuple):
    """The fields of several heads in the order of ``SendHead``, one column for each field. See ``send_columns``."""

    producer_ids: tuple[int, ...]
    sequence_ids: tuple[int, ...]
    num_messages: tuple[int, ...]
    highest_sequence_ids: tuple[int, ...]
    are_chunks: tuple[bool, ...]
    transactions: tuple[TxnId | None, ...]


class ReceiptHead(NamedTuple):
    """CommandSendReceipt. ``ledger`` and ``entry`` are -1 for a duplicate; ``highest_sequence_id`` -1 if absent."""

    producer_id: int
    sequence_id: int
    highest_sequence_id: int
    ledger: int
    entry: int


class MessageHead(NamedTuple):
    """CommandMessage. ``ack_set`` holds signed 64-bit words; ``consumer_epoch`` is -1 if absent."""

    consumer_id: int
    ledger: int
    entry: int
    partition: int
    redelivery_count: int
    ack_set: tuple[int, ...]
    consumer_epoch: int


class AckHead(NamedTuple):
    """CommandAck of whole entries of one ledger, each by itself. ``request_id`` is -1 if no receipt is wanted."""

    consumer_id: int
    ledger: int
    entries: list[int]
    request_id: int


SHORT_VARINT: Final = rb"([\x00-\x7f]|[\x80-\xff][\x00-\x7f])"
_ack_start = re.compile(rb"\x08\x0a\x52%b\x08%b\x10\x00(?=\x1a.)" % (SHORT_VARINT, SHORT_VARINT), re.DOTALL).match
"""An ACK of single entries up to its first id: the size of what follows it, and the consumer id."""

_send_head_of_fields = partial(_new_tuple, SendHead)


class _UnusualError(Exception):
    """Not the form that the fast path knows; protobuf decides."""


# -- SEND


def send_frame_head(
    producer_id: int,
    sequence_id: int,
    num_messages: int,
    body_len: int,
    highest_sequence_id: int = -1,
    is_chunk: bool = False,
) -> bytes:
    """Everything of a SEND frame that comes before a body of ``body_len`` bytes."""
    number = varint(sequence_id)
    before, after = _around_sequence_id(producer_id, len(number), num_messages, highest_sequence_id, is_chunk)
    command = before + number + after
    return _pack_sizes(len(command) + 4 + body_len, len(command)) + command


def _around_sequence_id(
    producer_id: int, number_bytes: int, num_messages: int, highest_sequence_id: int, is_chunk: bool
) -> tuple[bytes, bytes]:
    """A SEND as every encoder writes it: what comes before a sequence id of ``number_bytes`` bytes, and what after."""
    before = b"\x08" + varint(producer_id) + b"\x10"
    after = b""
    if num_messages != 1:
        after += b"\x18" + varint(num_messages)
    if highest_sequence_id >= 0:
        after += b"\x30" + varint(highest_sequence_id)
    if is_chunk:
        after += b"\x38\x01"
    return b"\x08\x06\x32%c%b" % (len(before) + number_bytes + len(after), before), after


def send_columns(heads: Sequence[SendHead]) -> SendColumns:
    """The columns of at least one head."""
    return _new_tuple(SendColumns, zip(*heads, strict=True))


def parse_sends(commands: list[bytes], start: int) -> list[SendHead]:
    """The heads of the SENDs that begin at ``commands[start]`` and differ in the sequence id only, which counts up.

    Empty if another command is there. A producer that does not batch sends hundreds of such at a time, and to compare
    a command with what is expected costs a quarter of parsing it.
    """
    head = parse_send(commands[start])
    if head is None:
        return []
    if start + 1 == len(commands):
        return [head]
    producer_id, sequence_id, num_messages, highest_sequence_id, is_chunk, transaction = head
    if transaction or highest_sequence_id >= 0 or not 0 <= sequence_id < _COUNTED_BELOW:
        return [head]  # batches do not count up by one
    number = varint(sequence_id)
    before, after = _around_sequence_id(producer_id, len(number), num_messages, highest_sequence_id, is_chunk)
    if commands[start] != before + number + after:
        return [head]
    of_same_length = (1 << 7 * len(number)) - sequence_id  # a longer number needs another size in front of it
    count = _count_alike(commands, start, min(len(commands), start + of_same_length), sequence_id, before, after)
    ids = range(sequence_id, sequence_id + count)
    same = map(repeat, (num_messages, highest_sequence_id, is_chunk, None))
    return list(map(_send_head_of_fields, zip(repeat(producer_id), ids, *same, strict=False)))


def _count_alike(commands: list[bytes], start: int, end: int, sequence_id: int, before: bytes, after: bytes) -> int:
    """How many commands from ``start`` on, but before ``end``, are ``before``, the next sequence id, ``after``."""
    alike = ahead = 1
    while expected := commands[start + alike : min(start + alike + ahead, end)]:
        numbers = varints(sequence_id + alike, len(expected))
        if expected != [before + number + after for number in numbers]:
            break
        alike += len(expected)
        ahead *= 2  # what is encoded in vain stays less than what was found
    return alike


def parse_send(command: bytes) -> SendHead | None:
    """The head of a SEND, or None if ``command`` is another command; RemoteProtocolError if it is a damaged SEND."""
    if command[:2] != b"\x08\x06":
        return None
    producer_id = sequence_id = highest_sequence_id = -1
    num_messages, is_chunk = 1, False
    try:
        end = len(command)
        if command[2] != 0x32 or command[3] != end - 4 or end >= SHORT:
            return _send_by_protobuf(command)
        at = 4
        while at < end:
            tag, value = command[at], command[at + 1]
            at += 2
            if value >= 0x80:
                value, at = _varint_rest(command, value, at)
            if tag == 0x08:
                producer_id = value
            elif tag == 0x10:
                sequence_id = value
            elif tag == 0x18:
                num_messages = value
            elif tag == 0x30:
                highest_sequence_id = value
            elif tag == 0x38:
                is_chunk = value != 0
            else:
                return _send_by_protobuf(command)
    except (IndexError, _UnusualError):
        return _send_by_protobuf(command)
    if producer_id < 0 or sequence_id < 0 or num_messages > 0x7FFFFFFF:
        return _send_by_protobuf(command)
    return _new_tuple(SendHead, (producer_id, sequence_id, num_messages, highest_sequence_id, is_chunk, None))


def _send_by_protobuf(command: bytes) -> SendHead:
    send = _parse(command, "send").send
    highest = to_signed64(send.highest_sequence_id) if send.HasField("highest_sequence_id") else -1
    sequence_id = to_signed64(send.sequence_id)
    transaction = None
    if send.HasField("txnid_most_bits") or send.HasField("txnid_least_bits"):
        transaction = TxnId(to_signed64(send.txnid_most_bits), to_signed64(send.txnid_least_bits))
    return SendHead(send.producer_id, sequence_id, send.num_messages, highest, send.is_chunk, transaction)


# -- SEND_RECEIPT


def receipt_frame(
    producer_id: int, sequence_id: int, ledger: int, entry: int, partition: int = -1, highest_sequence_id: int = -1
) -> bytes:
    """A whole SEND_RECEIPT frame. ``partition`` -1: the topic is not partitioned. Ledger and entry -1: a duplicate."""
    sequence, number = varint(sequence_id), varint(entry)
    start, middle, end = _around_receipt_ids(
        producer_id, len(sequence), ledger, len(number), partition, highest_sequence_id
    )
    return start + sequence + middle + number + end


def receipt_frames(
    producer_id: int,
    sequence_ids: Sequence[int],
    ledger: int,
    first_entry: int,
    partition: int = -1,
    highest_sequence_ids: Sequence[int] = (),
) -> bytes:
    """``receipt_frame`` of entries that follow one another, joined. ``highest_sequence_ids``: empty if there are none.

    All of such a frame is the same from one entry to the next but the two numbers, which mostly count up.
    """
    count, first_id = len(sequence_ids), sequence_ids[0]
    plain = max(highest_sequence_ids, default=-1) < 0
    if plain and first_id >= 0 and first_entry >= 0 and tuple(sequence_ids) == tuple(range(first_id, first_id + count)):
        sequences, numbers = varints(first_id, count), varints(first_entry, count)
        sizes = len(sequences[0]), len(numbers[0])
        if sizes == (len(sequences[-1]), len(numbers[-1])):
            start, middle, end = _around_receipt_ids(producer_id, sizes[0], ledger, sizes[1], partition)
            return start + (end + start).join(map(middle.join, zip(sequences, numbers, strict=True))) + end
    return b"".join(
        [
            receipt_frame(producer_id, sequence_id, ledger, entry, partition, highest)
            for entry, sequence_id, highest in zip(
                range(first_entry, first_entry + count), sequence_ids, highest_sequence_ids or repeat(-1), strict=False
            )
        ]
    )


def _around_receipt_ids(
    producer_id: int,
    sequence_bytes: int,
    ledger: int,
    entry_bytes: int,
    partition: int,
    highest_sequence_id: int = -1,
) -> tuple[bytes, bytes, bytes]:
    """The fixed parts of a SEND_RECEIPT frame: before the sequence id, between that and the entry id, and after
    both."""
    producer = b"\x08" + varint(producer_id) + b"\x10"
    ledger_id = b"\x08" + varint(ledger) + b"\x10"
    end = b"\x18" + varint(partition) if partition >= 0 else b""
    middle = b"\x1a%c%b" % (len(ledger_id) + entry_bytes + len(end), ledger_id)
    if highest_sequence_id >= 0:
        end += b"\x20" + varint(highest_sequence_id)
    size = len(producer) + sequence_bytes + len(middle) + entry_bytes + len(end)
    return _RECEIPT_STARTS[size] + producer, middle, end


def parse_receipt(command: bytes) -> ReceiptHead | None:
    """The head of a SEND_RECEIPT, or None if ``command`` is another; RemoteProtocolError if it is a damaged one."""
    if command[:2] != b"\x08\x07":
        return None
    producer_id = sequence_id = highest_sequence_id = ledger = entry = -1
    try:
        end = len(command)
        if command[2] != 0x3A or command[3] != end - 4 or end >= SHORT:
            return _receipt_by_protobuf(command)
        at = 4
        while at < end:
            tag, value = command[at], command[at + 1]
            at += 2
            if value >= 0x80:
                value, at = _varint_rest(command, value, at)
            if tag == 0x08:
                producer_id = value
            elif tag == 0x10:
                sequence_id = value
            elif tag == 0x20:
                highest_sequence_id = value
            elif tag == 0x1A and ledger < 0:
                ledger, entry, _ = _message_id(command, at, at + value)
                at += value
            else:
                return _receipt_by_protobuf(command)
    except (IndexError, _UnusualError):
        return _receipt_by_protobuf(command)
    if producer_id < 0 or sequence_id < 0 or at != end:
        return _receipt_by_protobuf(command)
    return ReceiptHead(producer_id, sequence_id, highest_sequence_id, ledger, entry)


def _receipt_by_protobuf(command: bytes) -> ReceiptHead:
    receipt = _parse(command, "send_receipt").send_receipt
    highest = to_signed64(receipt.highest_sequence_id) if receipt.HasField("highest_sequence_id") else -1
    ledger = entry = -1
    if receipt.HasField("message_id"):
        ledger, entry = to_signed64(receipt.message_id.ledgerId), to_signed64(receipt.message_id.entryId)
    return ReceiptHead(receipt.producer_id, to_signed64(receipt.sequence_id), highest, ledger, entry)


# -- MESSAGE


def message_frame_head(
    consumer_id: int,
    ledger: int,
    entry: int,
    partition: int,
    redelivery_count: int,
    ack_set: Sequence[int] | None,
    tail_len: int,
    consumer_epoch: int = -1,
) -> bytes:
    """Everything of a MESSAGE frame before its last ``tail_len`` bytes (broker entry metadata and body).

    ``ack_set``: signed 64-bit words, 1 = still to be consumed; None or empty if the whole entry is.
    ``consumer_epoch`` -1: the message belongs to no epoch.
    """
    message_id = b"\x08" + varint(ledger) + b"\x10" + varint(entry)
    if partition >= 0:
        message_id += b"\x18" + varint(partition)
    message = b"\x08%b\x12%c%b" % (varint(consumer_id), len(message_id), message_id)
    if redelivery_count:
        message += b"\x18" + varint(redelivery_count)
    if ack_set:
        message += b"".join([b"\x20" + varint(word) for word in ack_set])
    if consumer_epoch >= 0:
        message += b"\x28" + varint(consumer_epoch)
    inner = b"\x08\x09\x4a" + varint(len(message)) + message
    command_len = len(inner)
    return _pack_sizes(command_len + 4 + tail_len, command_len) + inner


class MessageHeads:
    """``message_frame_head`` of whole entries that are sent for the first time, for one consumer in one epoch.

    Nearly all of such a head is the same from one entry to the next, so it is kept.
    """

    __slots__ = (
        "_consumer", "_consumer_id", "_end", "_epoch_end", "_high", "_ledger", "_low", "_partition", "_size", "_start",
        "_until_entry", "consumer_epoch",
    )  # fmt: skip

    def __init__(self, consumer_id: int, partition: int, consumer_epoch: int = -1) -> None:
        self.consumer_epoch = consumer_epoch
        self._consumer_id = consumer_id
        self._consumer = b"\x08" + varint(consumer_id)
        self._partition = partition
        self._epoch_end = b"\x28" + varint(consumer_epoch) if consumer_epoch >= 0 else b""
        self._ledger = self._high = -1
        self._size = 0
        self._low, self._start, self._end = VARINTS, b"", b""
        self._until_entry: dict[int, bytes] = {}

    def head(self, ledger: int, entry: int, tail_len: int) -> bytes:
        """Everything of the frame before its last ``tail_len`` bytes."""
        if entry < SHORT:
            return message_frame_head(
                self._consumer_id, ledger, entry, self._partition, 0, None, tail_len, self.consumer_epoch
            )
        if entry >> LOW_BITS != self._high or ledger != self._ledger:
            self._begin(ledger, entry >> LOW_BITS)
        until_entry = self._until_entry.get(tail_len) or self._of_size(tail_len)
        return until_entry + self._low[entry & LOW_MASK] + self._end

    def _begin(self, ledger: int, high: int) -> None:
        """Entries of which all but the low bits are ``high``."""
        self._low, high_bits = beside_low_bits(high)
        ledger_id = b"\x08" + varint(ledger) + b"\x10"
        partition = b"\x18" + varint(self._partition) if self._partition >= 0 else b""
        id_bytes = len(ledger_id) + 2 + len(high_bits) + len(partition)
        self._end = high_bits + partition + self._epoch_end
        message = b"%b\x12%c%b" % (self._consumer, id_bytes, ledger_id)
        message_bytes = len(message) + 2 + len(self._end)
        self._start = b"\x08\x09\x4a%c%b" % (message_bytes, message)
        self._size = 4 + message_bytes
        self._ledger, self._high = ledger, high
        self._until_entry.clear()

    def _of_size(self, tail_len: int) -> bytes:
        """What comes before the entry id."""
        if len(self._until_entry) >= _SIZES_KNOWN:
            self._until_entry.clear()
        until_entry = _pack_sizes(self._size + 4 + tail_len, self._size) + self._start
        self._until_entry[tail_len] = until_entry
        return until_entry


def parse_message(command: bytes) -> MessageHead | None:
    """The head of a MESSAGE, or None if ``command`` is another command; RemoteProtocolError if it is a damaged one."""
    if command[:2] != b"\x08\x09":
        return None
    consumer_id = ledger = entry = partition = epoch = -1
    redelivery_count = 0
    ack_set: tuple[int, ...] = ()
    try:
        end = len(command)
        if command[2] != 0x4A or command[3] != end - 4 or end >= SHORT:
            return _message_by_protobuf(command)
        at = 4
        while at < end:
            tag, value = command[at], command[at + 1]
            at += 2
            if value >= 0x80:
                value, at = _varint_rest(command, value, at)
            if tag == 0x08:
                consumer_id = value
            elif tag == 0x12 and ledger < 0:
                ledger, entry, partition = _message_id(command, at, at + value)
                at += value
            elif tag == 0x18:
                redelivery_count = value
            elif tag == 0x20:
                ack_set = (*ack_set, value)
            elif tag == 0x28:
                epoch = value
            else:
                return _message_by_protobuf(command)
    except (IndexError, _UnusualError):
        return _message_by_protobuf(command)
    if consumer_id < 0 or ledger < 0 or at != end or redelivery_count > 0x7FFFFFFF:
        return _message_by_protobuf(command)
    return MessageHead(consumer_id, ledger, entry, partition, redelivery_count, ack_set, epoch)


def _message_by_protobuf(command: bytes) -> MessageHead:
    message = _parse(command, "message").message
    epoch = to_signed64(message.consumer_epoch) if message.HasField("consumer_epoch") else -1
    where = message.message_id
    return MessageHead(
        message.consumer_id,
        to_signed64(where.ledgerId),
        to_signed64(where.entryId),
        where.partition,
        message.redelivery_count,
        tuple(message.ack_set),
        epoch,
    )


# -- ACK


def parse_acks(commands: list[bytes], start: int) -> list[AckHead]:
    """The heads of the ACKs that begin at ``commands[start]``, all of one ledger; empty if ``parse_ack`` takes none.

    A connection of many consumers acknowledges a few entries for each of them at a time: where all those ids differ in
    the entry only they are read together. One that wants a receipt comes alone.
    """
    command = commands[start]
    first, begun = parse_ack(command), _ack_start(command)
    if first is None:
        return []
    if begun is None or first.request_id >= 0 or command[begun.end() + 1] >= SHORT:
        return [first]
    id_at, id_end = begun.end() + 2, begun.end() + 2 + command[begun.end() + 1]
    around_entry = _around_entry_id(id_end - id_at, first.ledger, _message_id(command, id_at, id_end)[2])
    heads = [first]
    while alike := _acks_alike(commands[start + len(heads) : start + 2 * len(heads)], first.ledger, *around_entry):
        heads += alike  # twice as many each time, so what is looked at in vain stays less than what was found
    return heads


def _acks_alike(commands: list[bytes], ledger: int, all_bytes: int, start: bytes, tail: bytes) -> list[AckHead]:
    """The heads of ``commands`` if all of them hold nothing but ids that are like this; else none."""
    consumer_ids: list[int] = []
    ids: list[bytes] = []
    for command in commands:
        begun = _ack_start(command)
        if begun is None:
            return []
        size, consumer_id = begun.groups()
        theirs = command[begun.end() :]
        if len(theirs) % all_bytes or _short_varint(size) != len(command) - len(size) - 3:
            return []
        consumer_ids.append(_short_varint(consumer_id))
        ids.append(theirs)
    together = b"".join(ids)
    entries: list[int] = []
    if not ids or entries_by_columns(together, 0, all_bytes, start, tail, entries) != len(together):
        return []
    ends = list(accumulate([len(theirs) // all_bytes for theirs in ids]))
    return [
        _new_tuple(AckHead, (consumer_id, ledger, entries[begin:end], -1))
        for consumer_id, begin, end in zip(consumer_ids, [0, *ends], ends, strict=False)
    ]


def parse_ack(command: bytes) -> AckHead | None:
    """The head of an ACK; None for another command, and for an ACK of any other kind: protobuf has to read that.

    Other kinds are: cumulative, of parts of batches, of several ledgers, of nothing, in a transaction, of an entry that
    could not be read, damaged.
    """
    if command[:3] != b"\x08\x0a\x52":
        return None
    try:
        return _usual_ack(command)
    except (IndexError, _UnusualError):
        return None


def _usual_ack(command: bytes) -> AckHead:
    consumer_id = ack_type = ledger = request_id = -1
    entries: list[int] = []
    size, at, end = command[3], 4, len(command)
    if size >= 0x80:
        size, at = _varint_rest(command, size, at)
    if at + size != end:
        raise _UnusualError
    while at < end:
        tag, value = command[at], command[at + 1]
        at += 2
        if value >= 0x80:
            value, at = _varint_rest(command, value, at)
        if tag == 0x1A:
            found, entry, partition = _message_id(command, at, at + value)
            if found != ledger and entries:
                raise _UnusualError
            ledger = found
            entries.append(entry)
            at = _entries_alike(command, at + value, value, ledger, partition, entries)
        elif tag == 0x08:
            consumer_id = value
        elif tag == 0x10:
            ack_type = value
        elif tag == 0x40:
            request_id = value
        else:
            raise _UnusualError
    if consumer_id < 0 or ack_type != 0 or not entries or at != end:
        raise _UnusualError
    return AckHead(consumer_id, ledger, entries, request_id)


def _entries_alike(data: bytes, at: int, size: int, ledger: int, partition: int, entries: list[int]) -> int:
    """Read on while message ids are ``size`` bytes long, of ``ledger`` and of ``partition``; where that ends."""
    all_bytes, start, tail = _around_entry_id(size, ledger, partition)
    if len(entries) == 1 and len(data) - at >= _COLUMNS_FROM * all_bytes:
        # Tried once in a command: it looks at all of it, and hostile ids could make it look again after each.
        at = entries_by_columns(data, at, all_bytes, start, tail, entries)
    while data.startswith(start, at):
        place, end = at + len(start), at + all_bytes
        entry = data[place]
        place += 1
        if entry >= 0x80:
            entry, place = _varint_rest(data, entry, place)
        if place + len(tail) != end or data[place:end] != tail:
            break  # there is something else in it than an entry id
        entries.append(entry)
        at = end
    return at


def _around_entry_id(size: int, ledger: int, partition: int) -> tuple[int, bytes, bytes]:
    """The parts of a message id of ``size`` bytes in an ACK: its whole size, the bytes before the entry id, and those
    after it."""
    tail = b"\x18" + varint(partition) if partition >= 0 else b""
    return 1 + len(varint(size)) + size, b"\x1a%b\x08%b\x10" % (varint(size), varint(ledger)), tail


def entries_by_columns(data: bytes, at: int, all_bytes: int, start: bytes, tail: bytes, entries: list[int]) -> int:
    """Read what is left of ``data`` if it is message ids of ``all_bytes`` that differ in nothing but the entry.

    That is the usual case, and to read all first bytes, then all second ones and so on costs a tenth. Where it ends.
    """
    count = (len(data) - at) // all_bytes
    end = at + count * all_bytes
    columns = [data[at + place : end : all_bytes] for place in range(all_bytes)]
    id_end = all_bytes - len(tail)
    alike = [*zip(columns, start, strict=False), *zip(columns[id_end:], tail, strict=True)]
    *lower, highest = columns[len(start) : id_end]
    if len(lower) >= _ID_BYTES_MAX or any(column != bytes((byte,)) * count for column, byte in alike):
        return at
    if max(highest) >= 0x80 or any(min(column) < 0x80 for column in lower):
        return at  # the ids are not all of that length
    values: Iterable[int] = highest
    for column in reversed(lower):
        values = [value << 7 | byte & 0x7F for value, byte in zip(values, column, strict=True)]
    entries += values
    return end


# -- parts of all


def _short_varint(encoded: bytes) -> int:
    """The value of a varint of one byte or two."""
    return encoded[0] if len(encoded) == 1 else encoded[0] & 0x7F | encoded[1] << 7


def _varint_rest(data: bytes, first: int, at: int) -> tuple[int, int]:
    """The value of a varint whose first byte ``first`` has been read, and where it ends. Not for negative numbers."""
    value, shift = first & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if value > _INT64_MAX or shift > 56:
        raise _UnusualError
    return value, at


def _message_id(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """Ledger, entry and partition of the MessageIdData in ``data[at:end]``, if it holds nothing else."""
    ledger = entry = partition = -1
    while at < end:
        tag, value = data[at], data[at + 1]
        at += 2
        if value >= 0x80:
            value, at = _varint_rest(data, value, at)
        if tag == 0x08:
            ledger = value
        elif tag == 0x10:
            entry = value
        elif tag == 0x18 and value <= 0x7FFFFFFF:
            partition = value
        else:
            raise _UnusualError
    if ledger < 0 or entry < 0 or at != end:
        raise _UnusualError
    return ledger, entry, partition


def _parse(command: bytes, field: str) -> BaseCommand:
    """``command`` by protobuf; it must hold ``field``, as its type says."""
    try:
        parsed = BaseCommand.FromString(command)
    except DecodeError as error:
        raise RemoteProtocolError(f"a {field} command cannot be read: {error}") from error
    if not parsed.HasField(field) or not parsed.IsInitialized():
        raise RemoteProtocolError(f"a command says that it is a {field} but holds none, or not all of it")
    return parsed
