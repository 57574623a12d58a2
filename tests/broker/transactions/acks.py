# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements in transactions, as clients send them."""

from __future__ import annotations

from collections.abc import Iterable

from broker_core.base.errors import ServerError
from broker_core.base.positions import Position
from broker_core.broker.consumer import Consumer
from broker_core.broker.requests import AckId, AckKind
from broker_core.wire.ack_sets import all_bits, words_of_bits
from broker_core.wire.heads import TxnId

Done = list[ServerError | None]


def ack_in(name: TxnId, consumer: Consumer, *positions: Position, kind: AckKind = AckKind.INDIVIDUAL) -> Done:
    """Acknowledge whole entries in a transaction, in one request; where the answer will be."""
    return ack_ids(name, consumer, [AckId(position) for position in positions], kind)


def ack_indexes(name: TxnId, consumer: Consumer, position: Position, indexes: Iterable[int], size: int) -> Done:
    """Acknowledge messages of a batch as the official Java client does: every bit but theirs is set."""
    left = all_bits(size) & ~sum(1 << index for index in indexes)
    return ack_ids(name, consumer, [AckId(position, words_of_bits(left) or (0,))], AckKind.INDIVIDUAL)


def ack_through_in(name: TxnId, consumer: Consumer, position: Position, index: int = -1, size: int = 1) -> Done:
    """Acknowledge everything up to an entry, or up to one message of a batch of ``size``."""
    left = all_bits(size) & ~all_bits(index + 1)
    words = words_of_bits(left) if index >= 0 and left else None
    return ack_ids(name, consumer, [AckId(position, words)], AckKind.CUMULATIVE)


def ack_ids(name: TxnId, consumer: Consumer, ids: list[AckId], kind: AckKind) -> Done:
    """Acknowledge; where the answer will be."""
    done: Done = []
    consumer.ack_in(name, kind, ids, done.append)
    return done
