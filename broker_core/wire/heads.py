# SPDX-License-Identifier: Apache-2.0
"""Heads of the commands that travel once per entry, and how protobuf reads them where their form is not the usual one.

``core.hot_commands`` reads the usual form. Ids are signed numbers carried in unsigned fields (``base.positions``).
Source: ``proto/pulsar_api.proto``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from broker_core.base.errors import RemoteProtocolError
from broker_core.base.positions import to_signed64
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand


class TxnId(NamedTuple):
    """The id of a transaction: ``most_bits`` names its coordinator, which gave the number ``least_bits``; signed."""

    most_bits: int
    least_bits: int


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


class FlowHead(NamedTuple):
    """CommandFlow."""

    consumer_id: int
    permits: int


def send_columns(heads: Sequence[SendHead]) -> SendColumns:
    """The columns of at least one head."""
    return SendColumns._make(zip(*heads, strict=True))


def send_by_protobuf(command: bytes) -> SendHead:
    """The head of a SEND; RemoteProtocolError if it is damaged."""
    send = _parse(command, "send").send
    highest = to_signed64(send.highest_sequence_id) if send.HasField("highest_sequence_id") else -1
    sequence_id = to_signed64(send.sequence_id)
    transaction = None
    if send.HasField("txnid_most_bits") and send.HasField("txnid_least_bits"):
        transaction = TxnId(to_signed64(send.txnid_most_bits), to_signed64(send.txnid_least_bits))
    return SendHead(send.producer_id, sequence_id, send.num_messages, highest, send.is_chunk, transaction)


def receipt_by_protobuf(command: bytes) -> ReceiptHead:
    """The head of a SEND_RECEIPT; RemoteProtocolError if it is damaged."""
    receipt = _parse(command, "send_receipt").send_receipt
    highest = to_signed64(receipt.highest_sequence_id) if receipt.HasField("highest_sequence_id") else -1
    ledger = entry = -1
    if receipt.HasField("message_id"):
        ledger, entry = to_signed64(receipt.message_id.ledgerId), to_signed64(receipt.message_id.entryId)
    return ReceiptHead(receipt.producer_id, to_signed64(receipt.sequence_id), highest, ledger, entry)


def message_by_protobuf(command: bytes) -> MessageHead:
    """The head of a MESSAGE; RemoteProtocolError if it is damaged."""
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


def _parse(command: bytes, field: str) -> BaseCommand:
    """``command`` by protobuf; it must hold ``field``, as its type says."""
    try:
        parsed = BaseCommand.FromString(command)
    except DecodeError as error:
        raise RemoteProtocolError(f"a {field} command cannot be read: {error}") from error
    if not parsed.HasField(field) or not parsed.IsInitialized():
        raise RemoteProtocolError(f"a command says that it is a {field} but holds none, or not all of it")
    return parsed
