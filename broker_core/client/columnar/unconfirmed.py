# SPDX-License-Identifier: Apache-2.0
"""Which row it was that may or may not be stored, read back from the entry that was sent: rows are not kept for it."""

from __future__ import annotations

from broker_core.wire.batch import UNDECODABLE, EncodedEntry, decode_entries
from broker_core.wire.entry import EntryRef, read_metadata, text_of


def first_key(entry: EncodedEntry) -> str | bytes | None:
    """The key of the first row in an entry, or chunk of one, that is sent from here; None if the row has none."""
    body = bytes(entry.body) + bytes(entry.tail)
    if entry.chunks_behind >= 0:
        metadata = read_metadata(body)
        return text_of(metadata.partition_key) if metadata.HasField("partition_key") else None
    try:
        key: bytes | None = decode_entries([EntryRef(0, 0, body)], {"key"}).column("key")[0].as_py()
    except UNDECODABLE:  # A copy of an entry that nobody here can decode.
        return None
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return key
