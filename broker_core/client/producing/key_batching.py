# SPDX-License-Identifier: Apache-2.0
"""``KeyBatchBuilder``: one open batch for each key, so that an entry never holds messages of two keys.

A broker gives whole entries to the consumers of a Key_Shared subscription; this is how batching and dispatch by key go
together. The key is the ordering key if there is one, else the key; messages without either share a batch. Limits count
over all open batches together. Entries leave in the order of their first messages, and sequence ids that the producer
chose itself are given anew in that order: deduplication needs them to rise from entry to entry. For the same reason,
where the application chose ids an entry holds only messages of one key that follow each other. Pure.
Source: Pulsar docs, "Key_Shared - batching"; semantics 2.10.2, I1.6.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

from broker_core.client.messages.outgoing import OnSent, OutgoingMessage
from broker_core.client.producing.batching import BatchBuilder, EncodedBatch, EntryEncoder

_Key: TypeAlias = "bytes | tuple[str | None, bool]"
"""An ordering key, or a key and whether it is one of bytes: then its text is base64, and no other key's."""

_Member: TypeAlias = tuple[_Key, OutgoingMessage, int, OnSent | None]


class KeyBatchBuilder:
    """The open batches of one partition; used like a ``BatchBuilder``."""

    def __init__(self, encoder: EntryEncoder, messages_max: int, bytes_max: int) -> None:
        self._encoder = encoder
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._members: list[_Member] = []
        self._size_bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self._members) >= self._messages_max or self._size_bytes >= self._bytes_max

    def has_room_for(self, message: OutgoingMessage) -> bool:
        """Whether ``message`` fits; if nothing is open, anything does."""
        return not self._members or self._size_bytes + message.size_bytes <= self._bytes_max

    def add(self, message: OutgoingMessage, sequence_id: int, on_sent: OnSent | None) -> None:
        """Append ``message`` to the batch of its key."""
        own = (message.key, message.key_is_bytes)
        key: _Key = own if message.ordering_key is None else message.ordering_key
        self._members.append((key, message, sequence_id, on_sent))
        self._size_bytes += message.size_bytes

    def take_all(self, publish_time_ms: int) -> list[EncodedBatch]:
        """The entries of all that was added, in the order in which they must be sent; nothing is open afterwards."""
        members, self._members = self._members, []
        self._size_bytes = 0
        if all(message.sequence_id < 0 for _, message, _, _ in members):
            groups = _by_key(members)
        else:
            groups = [list(group) for _, group in groupby(members, itemgetter(0))]
        next_id = iter([sequence_id for _, _, sequence_id, _ in members])  # They rise, as the producer sees to it.
        batches: list[EncodedBatch] = []
        for group in groups:
            builder = BatchBuilder(self._encoder, self._messages_max, self._bytes_max)
            for _, message, _, on_sent in group:
                builder.add(message, next(next_id), on_sent)
            batches += builder.take_all(publish_time_ms)
        return batches


def _by_key(members: list[_Member]) -> list[list[_Member]]:
    """``members`` in groups of one key each, in the order of their first messages."""
    groups: dict[_Key, list[_Member]] = {}
    for each in members:
        groups.setdefault(each[0], []).append(each)
    return list(groups.values())
