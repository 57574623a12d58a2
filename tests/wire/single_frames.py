# SPDX-License-Identifier: Apache-2.0
"""Frames and heads one by one, out of the readers and writers of many."""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.wire.core.hot_commands import message_buffers, parse_acks, parse_sends, receipt_frames
from broker_core.wire.heads import AckHead, SendHead


def parse_send(command: bytes) -> SendHead | None:
    """The head of a SEND, or None if ``command`` is another command."""
    return next(iter(parse_sends([command], 0)), None)


def parse_ack(command: bytes) -> AckHead | None:
    """The head of an ACK; None for any that is left to protobuf."""
    return next(iter(parse_acks([command], 0)[0]), None)


def receipt_frame(
    producer_id: int, sequence_id: int, ledger: int, entry: int, partition: int = -1, highest_sequence_id: int = -1
) -> bytes:
    """A whole SEND_RECEIPT frame."""
    highest = (highest_sequence_id,) if highest_sequence_id >= 0 else ()
    return receipt_frames((producer_id,), (sequence_id,), ledger, entry, partition, highest)


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
    """Everything of a MESSAGE frame before its last ``tail_len`` bytes, of which only the number is looked at."""
    delivery = (((ledger, entry), range(tail_len), 1, -1, -1), redelivery_count, ack_set)
    return message_buffers([delivery], consumer_id, partition, consumer_epoch, False)[0][0]


def broker_entry_prefix(broker_timestamp_ms: int, index: int) -> bytes:
    """Broker entry metadata as a broker puts it in front of an entry."""
    delivery = (((0, 0), b"", 1, index, broker_timestamp_ms), 0, None)
    frame = message_buffers([delivery], 0, -1, -1, True)[0][0]
    return frame[8 + int.from_bytes(frame[4:8], "big") :]
