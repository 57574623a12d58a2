# SPDX-License-Identifier: Apache-2.0
"""``GivenEntry``: what a consumer of entries knows of one that the broker gave it, without its payload.

Everything is peeked from the frame's head and the entry's metadata; no message is decoded, and what a peek cannot tell
costs one parse of the metadata for the entry. Pure. An entry whose metadata cannot be read counts as one message
without a key: reading it will report what is wrong with it. Source: semantics 1.6, 3.1.6, 5.1.5.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker_core.base.errors import RemoteProtocolError
from broker_core.base.hashing import murmur3_31
from broker_core.base.limits import BATCH_MESSAGES_MAX
from broker_core.base.positions import Position
from broker_core.wire.ack_sets import all_bits, bits_of_words
from broker_core.wire.entry_peek import (
    SMALL_BYTES,
    ChunkPlace,
    chunk_place,
    head_without_payload,
    is_plain,
    messages_in,
    sticky_key,
)
from broker_core.wire.heads import MessageHead

NO_KEY_HASH: Final = -1

_new_tuple = tuple.__new__
"""Makes the usual entry of one message: the constructor with names takes twice as long."""


class GivenEntry(NamedTuple):
    """One entry of a subscription, from one delivery.

    ``messages``: how many of them are still to be consumed; 0 in a chunk before the last one, as a message in chunks
    counts once. ``unacked``: bit i stands for batch index i, 1 = still to be consumed; None: the whole entry is.
    ``key_hash``: a number from 0 to 2^31-1 that entries of one key share, or ``NO_KEY_HASH`` where it was not asked
    for. ``chunk``: None if the entry is no chunk.
    """

    ledger: int
    entry: int
    messages: int
    redelivery_count: int = 0
    unacked: int | None = None
    key_hash: int = NO_KEY_HASH
    chunk: ChunkPlace | None = None

    @property
    def position(self) -> Position:
        return Position(self.ledger, self.entry)


def given_entry(head: MessageHead, body: bytes, *, with_key: bool) -> GivenEntry:
    """The entry of a MESSAGE. ``with_key``: also the hash of its sticky key."""
    if not with_key and len(body) <= SMALL_BYTES and is_plain(body):
        return _new_tuple(GivenEntry, (head.ledger, head.entry, 1, head.redelivery_count, None, NO_KEY_HASH, None))
    try:
        entry = head_without_payload(body)
        if not with_key and is_plain(entry):
            return GivenEntry(head.ledger, head.entry, 1, head.redelivery_count)
        key_hash = murmur3_31(sticky_key(entry)) if with_key else NO_KEY_HASH
        messages = messages_in(entry)
        chunk = chunk_place(entry)
    except RemoteProtocolError:
        return GivenEntry(head.ledger, head.entry, 1, head.redelivery_count, None, 0 if with_key else NO_KEY_HASH)
    unacked: int | None = None
    if chunk is not None:
        messages = 1 if chunk.chunk_id == chunk.chunks - 1 else 0
    elif head.ack_set and messages <= BATCH_MESSAGES_MAX:
        unacked = bits_of_words(head.ack_set) & all_bits(messages)
        messages = unacked.bit_count()
    return GivenEntry(head.ledger, head.entry, messages, head.redelivery_count, unacked, key_hash, chunk)
