# SPDX-License-Identifier: Apache-2.0
"""An Arrow record batch to entries.

Rows are sized, cut into batches and written by kernels into one buffer, in which each entry's head is already in place:
an entry without compression is copied once. Nothing is done in Python for each row, except for rows that travel as
entries of their own: those too large for a batch, delayed ones, and all if ``messages_max`` is 1. Rows keep their
order, and no entry crosses a border that the caller set.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, cast

import google_crc32c
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.errors import RowError
from broker_core.base.limits import FRAME_SLACK_BYTES, MESSAGE_BYTES_MAX_DEFAULT, METADATA_BYTES_MAX
from broker_core.base.positions import to_unsigned64
from broker_core.wire.batch.rows import Rows
from broker_core.wire.compression import NONE, compress
from broker_core.wire.core.rows import SIZE_BYTES, size_rows, split_rows, write_rows
from broker_core.wire.entry import CHECKSUM_HEAD_BYTES, MAGIC_CHECKSUM, BytesLike, seal_entry
from broker_core.wire.heads import TxnId
from broker_core.wire.proto.pulsar_api_pb2 import CompressionType, MessageMetadata
from broker_core.wire.transactions import set_txn_id

MESSAGES_MAX_DEFAULT: Final = 1000
BATCH_BYTES_MAX_DEFAULT: Final = 128 * 1024
"""Messages and bytes of one batch, as in the official clients."""

_HEAD = struct.Struct(">2sII")

Int64s = NDArray[np.int64]

_ROW_METADATA_BYTES_MAX: Final = METADATA_BYTES_MAX - 4096
"""Keys and properties of one row; the rest is for the entry's own fields."""
_BESIDE_PAYLOAD_BYTES_MAX: Final = FRAME_SLACK_BYTES - 1024
"""Bytes that an entry may hold beside the largest payload; the kibibyte is for the command."""


class EncodedEntry(NamedTuple):
    """An entry ready to be sent. ``body`` may be a view into memory that all entries of one call share; ``tail``
    follows it. ``chunks_behind``: how many chunks of the same message follow, -1 if the entry is no chunk."""

    body: BytesLike
    messages: int
    sequence_id: int
    highest_sequence_id: int
    tail: BytesLike = b""
    chunks_behind: int = -1


Cut: TypeAlias = Callable[[MessageMetadata, BytesLike], Sequence[tuple[bytes, BytesLike]]]
"""Head and part of each chunk of a message that is too large for an entry; nothing if it is not. ``client.chunks``."""


def encode_entries(
    rows: pa.RecordBatch,
    *,
    producer_name: str,
    first_sequence_id: int,
    publish_time_ms: int,
    compression: int = NONE,
    messages_max: int = MESSAGES_MAX_DEFAULT,
    bytes_max: int = BATCH_BYTES_MAX_DEFAULT,
    message_bytes_max: int = MESSAGE_BYTES_MAX_DEFAULT,
    borders: Int64s | None = None,
    cut: Cut | None = None,
    transaction: TxnId | None = None,
    schema_version: bytes = b"",
) -> list[EncodedEntry]:
    """The entries that carry ``rows``, in order; row i has sequence id ``first_sequence_id + i`` unless it has one.

    Columns, each optional: key (string, or binary), key_is_bytes (boolean, see ``sent_keys``), value (binary, or
    string), ordering_key (the same), properties (map or list of pairs of strings), event_time (timestamp, or integer
    milliseconds; 0 means none), deliver_at (the same: when the broker may deliver it; such a row is never in a batch),
    sequence_id (integer: they rise from row to row, and are not below ``first_sequence_id``).
    ``compression`` is a codec of ``wire.compression``;
    a payload that it would not shrink travels plain. ``message_bytes_max``: what the broker accepts as the payload of
    an entry. ``borders``: rows that begin an entry, ascending. ``cut`` makes chunks of what is too large; without it
    such a row is an error. ``transaction``: the one that all of them belong to. ``schema_version``: that of all
    values, as it travels; empty: they have none.

    Raises UsageError for a column or type that cannot be sent, and RowError for a row, by its number.
    """
    if rows.num_rows == 0:
        return []
    plan = _plan_entries(Rows.of(rows), first_sequence_id, messages_max, min(bytes_max, message_bytes_max), borders)
    _check_sizes(plan, message_bytes_max, in_chunks=cut is not None)
    author = _Author(plan, producer_name, publish_time_ms, compression, cut, transaction, schema_version)
    return author.compressed_entries() if compression != NONE else author.plain_entries()


@dataclass(frozen=True, slots=True)
class _Author:
    """Writes the entries of one plan."""

    plan: _Plan
    producer_name: str
    publish_time_ms: int
    compression: int
    cut: Cut | None
    transaction: TxnId | None
    schema_version: bytes

    def plain_entries(self) -> list[EncodedEntry]:
        """Heads are made first, so that each entry can be written where it will stay."""
        plan = self.plan
        heads = [b"" if alone else self._batch_metadata(e) for e, alone in enumerate(plan.single.tolist())]
        head_sizes = np.array([_HEAD.size + len(head) for head in heads], np.int64)
        ends = np.cumsum(np.where(plan.single, 0, head_sizes + plan.sizes))
        out = self._write(ends - plan.sizes, int(ends[-1]))
        view = out.data
        entries = []
        for e, (head, end, alone) in enumerate(zip(heads, ends.tolist(), plan.single.tolist(), strict=True)):
            if alone:
                entries += self._single(e)
                continue
            size = len(head)
            start = end - int(plan.sizes[e]) - size - _HEAD.size
            view[start + _HEAD.size : start + _HEAD.size + size] = head
            _HEAD.pack_into(view, start, MAGIC_CHECKSUM, 0, size)
            checksum = google_crc32c.value(out[start + CHECKSUM_HEAD_BYTES : end])
            _HEAD.pack_into(view, start, MAGIC_CHECKSUM, checksum, size)
            entries.append(self._entry(e, view[start:end].toreadonly()))
        return entries

    def compressed_entries(self) -> list[EncodedEntry]:
        """Payloads are written one after the other, and compressed from there."""
        plan = self.plan
        ends = np.cumsum(np.where(plan.single, 0, plan.sizes))
        view = self._write(ends - plan.sizes, int(ends[-1])).data
        entries = []
        for e, (end, alone) in enumerate(zip(ends.tolist(), plan.single.tolist(), strict=True)):
            if alone:
                entries += self._single(e)
                continue
            plain = view[end - int(plan.sizes[e]) : end]
            packed = self._compressed(plain)
            metadata = self._batch_metadata(e, 0 if packed is None else len(plain))
            entries.append(self._entry(e, seal_entry(metadata, plain if packed is None else packed)))
        return entries

    def _write(self, places: Int64s, size: int) -> NDArray[np.uint8]:
        """All batches at their places in new memory of ``size`` bytes."""
        plan, rows = self.plan, self.plan.rows
        out = np.empty(size, np.uint8)
        write_rows(
            plan.starts,
            np.where(plan.single, -1, places),
            *rows.keys.arrays,
            rows.keys_are_base64,
            *rows.values.arrays,
            *rows.ordering_keys.arrays,
            rows.property_rows,
            *rows.property_names.arrays[:2],
            *rows.property_values.arrays[:2],
            rows.event_times,
            plan.sequence_ids,
            plan.metadata_sizes,
            plan.payload_sizes,
            out,
        )
        return out

    def _entry(self, e: int, body: BytesLike) -> EncodedEntry:
        first, last = int(self.plan.starts[e]), int(self.plan.starts[e + 1]) - 1
        sequence_ids = self.plan.sequence_ids
        return EncodedEntry(body, last - first + 1, int(sequence_ids[first]), int(sequence_ids[last]))

    def _compressed(self, plain: BytesLike) -> BytesLike | None:
        """``plain`` compressed, or None if that does not make it smaller."""
        packed = compress(self.compression, plain)
        return packed if len(packed) < len(plain) else None

    def _metadata(self, row: int, uncompressed_size: int) -> MessageMetadata:
        """Metadata as a batch and a single message have them in common, with the keys of ``row``."""
        rows = self.plan.rows
        metadata = MessageMetadata(
            producer_name=self.producer_name,
            sequence_id=to_unsigned64(int(self.plan.sequence_ids[row])),
            publish_time=self.publish_time_ms,
        )
        key, ordering_key = rows.keys.get(row), rows.ordering_keys.get(row)
        if key is not None:
            metadata.partition_key = key.decode()
            if rows.keys_are_base64[row]:
                metadata.partition_key_b64_encoded = True
        if ordering_key is not None:
            metadata.ordering_key = ordering_key
        if self.transaction is not None:
            set_txn_id(metadata, self.transaction)
        if self.schema_version:
            metadata.schema_version = self.schema_version
        if uncompressed_size:
            metadata.compression = cast("CompressionType", self.compression)
            metadata.uncompressed_size = uncompressed_size
        return metadata

    def _batch_metadata(self, e: int, uncompressed_size: int = 0) -> bytes:
        first, last = int(self.plan.starts[e]), int(self.plan.starts[e + 1]) - 1
        metadata = self._metadata(first, uncompressed_size)
        metadata.num_messages_in_batch = last - first + 1
        metadata.highest_sequence_id = to_unsigned64(int(self.plan.sequence_ids[last]))
        return metadata.SerializeToString()

    def _single(self, e: int) -> list[EncodedEntry]:
        """An entry, or the chunks of one."""
        row, rows = int(self.plan.starts[e]), self.plan.rows
        payload: BytesLike | None = rows.values.get(row)
        packed = self._compressed(payload) if self.compression != NONE and payload else None
        metadata = self._metadata(row, len(payload) if packed is not None and payload is not None else 0)
        for at in range(int(rows.property_rows[row]), int(rows.property_rows[row + 1])):
            name, text = rows.property_names.get(at) or b"", rows.property_values.get(at) or b""
            metadata.properties.add(key=name.decode(), value=text.decode())
        if rows.event_times[row]:
            metadata.event_time = to_unsigned64(int(rows.event_times[row]))
        if rows.delivery_times[row]:
            metadata.deliver_at_time = int(rows.delivery_times[row])
        if payload is None:
            metadata.null_value = True
        sent = packed or payload or b""
        chunks = () if self.cut is None else self.cut(metadata, sent)
        if not chunks:
            return [self._entry(e, seal_entry(metadata.SerializeToString(), sent))]
        return [
            self._entry(e, head)._replace(tail=part, chunks_behind=behind)
            for behind, (head, part) in zip(reversed(range(len(chunks))), chunks, strict=True)
        ]


# -- how rows are cut into entries, before a byte is written: sizes, numbers and borders


@dataclass(frozen=True, slots=True)
class _Plan:
    """Rows, the sizes of their messages, and how they are cut into entries (``split_rows`` has the shapes)."""

    rows: Rows
    sequence_ids: Int64s
    metadata_sizes: Int64s
    payload_sizes: Int64s
    starts: Int64s
    sizes: Int64s
    single: NDArray[np.bool_]
    """Entries that are one message without a batch around it."""


def _plan_entries(
    rows: Rows, first_sequence_id: int, messages_max: int, bytes_max: int, borders: Int64s | None
) -> _Plan:
    """Cut ``rows``; an entry begins with each row of ``borders``. RowError for a sequence id that does not rise."""
    sequence_ids = _sequence_ids(rows, first_sequence_id)
    metadata_sizes, payload_sizes, key_sizes = (np.empty(rows.count, np.int64) for _ in range(3))
    size_rows(
        *rows.keys.arrays[1:],
        rows.keys_are_base64,
        *rows.values.arrays[1:],
        *rows.ordering_keys.arrays[1:],
        rows.property_rows,
        rows.property_names.offsets,
        rows.property_values.offsets,
        rows.event_times,
        sequence_ids,
        metadata_sizes,
        payload_sizes,
        key_sizes,
    )
    starts, sizes = np.empty(rows.count + 1, np.int64), np.empty(rows.count, np.int64)
    count = split_rows(metadata_sizes, payload_sizes, key_sizes, messages_max, bytes_max, starts, sizes)
    starts, sizes = starts[: count + 1], sizes[:count]
    delayed = rows.delivery_times != 0
    more = [] if borders is None else [borders]
    if delayed.any():
        at = np.flatnonzero(delayed)
        more += [at, at + 1]
    if more:
        starts = np.unique(np.concatenate((starts, *more)))
        sizes = np.add.reduceat(SIZE_BYTES + metadata_sizes + payload_sizes, starts[:-1])
    alone = np.diff(starts) == 1
    too_large = sizes + key_sizes[starts[:-1]] > bytes_max
    single = alone & (too_large | delayed[starts[:-1]] | (messages_max == 1))
    return _Plan(rows, sequence_ids, metadata_sizes, payload_sizes, starts, sizes, single)


def _check_sizes(plan: _Plan, message_bytes_max: int, *, in_chunks: bool) -> None:
    """RowError for the first row that is too large; ``in_chunks``: a value may be of any size."""
    payloads, metadata = plan.payload_sizes, plan.metadata_sizes
    limits = [("keys and properties", metadata, _ROW_METADATA_BYTES_MAX)]
    if not in_chunks:
        limits += [
            ("a value", payloads, message_bytes_max),
            ("a value, keys and properties", payloads + metadata, message_bytes_max + _BESIDE_PAYLOAD_BYTES_MAX),
        ]
    for what, sizes, most in limits:
        too_large = np.flatnonzero(sizes > most)
        if too_large.size:
            row = int(too_large[0])
            raise RowError(
                row,
                f"has {what} of {int(sizes[row])} bytes, more than the {most} that a message may hold",
                hint="put them into the value"
                if what == "keys and properties"
                else "send it in chunks (chunking_enabled), or raise maxMessageSize of the broker",
            )


def _sequence_ids(rows: Rows, first: int) -> Int64s:
    chosen = rows.sequence_ids
    if chosen is None:
        return np.arange(first, first + rows.count, dtype=np.int64)
    lowest = np.concatenate((np.array([first], np.int64), chosen[:-1] + 1))
    wrong = np.flatnonzero(chosen < lowest)
    if wrong.size:
        row = int(wrong[0])
        raise RowError(
            row,
            f"has the sequence id {int(chosen[row])}, where {int(lowest[row])} is the lowest that may follow",
            hint="in a partition they must rise, or brokers drop rows as repeated ones; sort the rows by them",
        )
    return chosen
