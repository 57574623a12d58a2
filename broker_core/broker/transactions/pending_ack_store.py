# SPDX-License-Identifier: Apache-2.0
"""``PendingAckStore``: keeps the pending acknowledgements of one durable subscription in the catalogue.

Each acknowledgement of a client is a row of its own, so a transaction that acknowledges message by message does not
write again what it has written. Once the rows behind the first one take more room than that, one row takes the place of
all: so what is written in all is in proportion to what is pending. Applying a row twice does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from msgspec import msgpack
from pyroaring import BitMap

from broker_core.base.positions import Position
from broker_core.broker.positions import PositionSet
from broker_core.broker.transactions.message_set import WHOLE
from broker_core.broker.transactions.pending_acks import AckedMessages, CumulativeAck, PendingAcks
from broker_core.storage.catalogue import Catalogue, PendingAckRow
from broker_core.storage.commit import GroupCommit, OnDurable
from broker_core.wire.ack_sets import bits_of_words, words_of_bits
from broker_core.wire.heads import TxnId

_JOINED_FROM_BYTES: Final = 4096
"""Rows of a transaction that take less than this stay as they are."""

_Batch = tuple[int, int, int, tuple[int, ...]]
"""Ledger, entry, number of messages, the bits of some of them as words."""


class _Stored(NamedTuple):
    """The content of a row: bitmaps of whole entries by ledger, parts of batches, and a cumulative acknowledgement,
    whose words are of the messages that it leaves."""

    whole: dict[int, bytes]
    batches: list[_Batch]
    cumulative: _Batch | None


class Recovered(NamedTuple):
    """The stored acknowledgements of one transaction."""

    transaction: TxnId
    messages: list[AckedMessages]
    cumulative: CumulativeAck | None


class PendingAckStore:
    """Writes what is pending of one subscription. Its changes are durable with the next record of the catalogue."""

    __slots__ = ("_catalogue", "_commits", "_sizes", "_subscription_id")

    def __init__(self, catalogue: Catalogue, commits: GroupCommit, subscription_id: int) -> None:
        self._catalogue = catalogue
        self._commits = commits
        self._subscription_id = subscription_id
        self._sizes: dict[TxnId, _RowSizes] = {}

    def recover(self) -> Iterator[Recovered]:
        """Stored acknowledgements, transaction by transaction."""
        rows = self._catalogue.pending_acks.of_subscription(self._subscription_id)
        for transaction, theirs in groupby(rows, lambda row: row.transaction):
            found = list(theirs)
            first, rest = len(found[0].acks), sum([len(row.acks) for row in found[1:]])
            self._sizes[transaction] = _RowSizes(found[-1].number + 1, first, rest)
            yield _recovered(transaction, [row.acks for row in found])

    def add(self, transaction: TxnId, messages: Sequence[AckedMessages], cumulative: CumulativeAck | None) -> bool:
        """Store one acknowledgement; whether it is time to ``replace`` all of the transaction."""
        whole = PositionSet()
        for position, bits, _size in messages:
            if bits == WHOLE:
                whole.add(position)
        acks = _encode(whole, [each for each in messages if each.bits != WHOLE], cumulative)
        number, first, rest = self._sizes.get(transaction) or _RowSizes(0, 0, 0)
        self._catalogue.pending_acks.add(self._subscription_id, PendingAckRow(transaction, number, acks))
        sizes = _RowSizes(number + 1, first or len(acks), rest + len(acks) if first else 0)
        self._sizes[transaction] = sizes
        return sizes.rest > max(sizes.first, _JOINED_FROM_BYTES)

    def replace(self, transaction: TxnId, pending: PendingAcks) -> None:
        """Store all that is pending in a transaction as one row, or none."""
        whole, batches = pending.parts_of(transaction)
        cumulative = pending.cumulative_of(transaction)
        acks = _encode(whole, batches, cumulative) if whole or batches or cumulative is not None else b""
        self._catalogue.pending_acks.replace(self._subscription_id, transaction, acks)
        self._sizes[transaction] = _RowSizes(1, len(acks), 0)

    def has(self, transaction: TxnId) -> bool:
        """Whether something of a transaction is stored."""
        return transaction in self._sizes

    def forget(self, transaction: TxnId) -> None:
        """Nothing of a transaction has to be kept any more."""
        self._sizes.pop(transaction, None)
        self._catalogue.pending_acks.forget(self._subscription_id, transaction)

    def forgotten(self, transaction: TxnId) -> None:
        """The decision to abort a transaction has deleted all that was stored of it."""
        self._sizes.pop(transaction, None)

    def when_durable(self, on_durable: OnDurable) -> None:
        """Call ``on_durable`` when all that was stored up to now is durable."""
        self._commits.when_recorded(on_durable)


class _RowSizes(NamedTuple):
    """The rows of a transaction: the number of the next one, and the bytes of the first and of all others."""

    next_number: int
    first: int
    rest: int


def _encode(whole: PositionSet, parts: Iterable[AckedMessages], cumulative: CumulativeAck | None) -> bytes:
    batches: list[_Batch] = [(*position, size, words_of_bits(bits)) for position, bits, size in parts]
    slot: _Batch | None = None
    if cumulative is not None:
        slot = (*cumulative.position, cumulative.size, words_of_bits(cumulative.left))
    bitmaps = {ledger: bitmap.serialize() for ledger, bitmap in whole.bitmaps().items()}
    return msgpack.encode(_Stored(bitmaps, batches, slot))


def _recovered(transaction: TxnId, rows: Sequence[bytes]) -> Recovered:
    messages: list[AckedMessages] = []
    cumulative: CumulativeAck | None = None
    for row in rows:
        stored = msgpack.decode(row, type=_Stored)
        for ledger, bitmap in stored.whole.items():
            messages += [AckedMessages(Position(ledger, entry)) for entry in BitMap.deserialize(bitmap)]
        for ledger, entry, size, words in stored.batches:
            messages.append(AckedMessages(Position(ledger, entry), bits_of_words(words), size))
        if stored.cumulative is not None:
            ledger, entry, size, words = stored.cumulative
            cumulative = CumulativeAck(transaction, Position(ledger, entry), bits_of_words(words), size)
    return Recovered(transaction, messages, cumulative)
