# SPDX-License-Identifier: Apache-2.0
"""Kernels over rows that are to be sent: their partitions, how large each message gets, where to split batches, and
the bytes themselves; and the ids of rows that were received, as text and as bytes.

Sizing and writing are two passes over the same rows, so that the memory is taken once and exactly. A message is: size
(4 bytes, big endian), SingleMessageMetadata with its fields in the order of their numbers, as protobuf writes them, and
the payload. Columns are as in ``batch.columns.ByteColumn``: data, offsets, presence.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from broker_core.wire.core import uncompiled as cython

from broker_core.wire.core.uncompiled import kernel

if cython.compiled:
    from cython.cimports.broker_core.wire.core import fields as pb
else:
    from broker_core.wire.core import fields as pb

SIZE_BYTES = 4
_SIZE_BYTES = cython.declare(cython.longlong, SIZE_BYTES)

# -- partitions


@kernel
def partitions_of_hashes(
    hashes: cython.const[cython.longlong][::1],
    partitions: cython.longlong,
    partition_of_row: cython.int[::1],
    counts: cython.longlong[::1],
) -> int:
    """Fill in the partition of each row that has a key, -1 for others; ``counts`` takes rows by partition.

    Returns how many rows have no key.
    """
    keyless: cython.Py_ssize_t = 0
    for row in range(hashes.shape[0]):
        if hashes[row] < 0:
            partition_of_row[row] = -1
            keyless += 1
        else:
            partition = hashes[row] % partitions
            partition_of_row[row] = partition
            counts[partition] += 1
    return keyless


@kernel
def deal_keyless(
    partition_of_row: cython.int[::1],
    keyless: cython.longlong,
    first: cython.longlong,
    partitions: cython.longlong,
    counts: cython.longlong[::1],
) -> None:
    """Give the rows without a key to the partitions in runs of equal length, beginning with ``first``."""
    dealt: cython.longlong = 0
    for row in range(partition_of_row.shape[0]):
        if partition_of_row[row] < 0:
            partition = (first + dealt * partitions // keyless) % partitions
            partition_of_row[row] = partition
            counts[partition] += 1
            dealt += 1


@kernel
def sort_rows(
    partition_of_row: cython.const[cython.int][::1], next_place: cython.longlong[::1], sorted_rows: cython.longlong[::1]
) -> None:
    """Write row numbers by partition, in order within each; ``next_place`` holds where each partition begins."""
    for row in range(partition_of_row.shape[0]):
        partition = partition_of_row[row]
        sorted_rows[next_place[partition]] = row
        next_place[partition] += 1


# -- sizes


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _varint_size(number: cython.longlong) -> cython.longlong:
    return 1 if 0 <= number <= 0x7F else pb.varint_size(number)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _bytes_size(count: cython.longlong) -> cython.longlong:
    """Bytes of a field of ``count`` bytes, with tag and length."""
    return 1 + _varint_size(count) + count


@kernel
def size_rows(
    key_offsets: cython.const[cython.int][::1],
    key_present: cython.const[cython.uchar][::1],
    keys_are_base64: cython.const[cython.uchar][::1],
    value_offsets: cython.const[cython.int][::1],
    value_present: cython.const[cython.uchar][::1],
    ordering_offsets: cython.const[cython.int][::1],
    ordering_present: cython.const[cython.uchar][::1],
    property_rows: cython.const[cython.int][::1],
    name_offsets: cython.const[cython.int][::1],
    text_offsets: cython.const[cython.int][::1],
    event_times: cython.const[cython.longlong][::1],
    sequence_ids: cython.const[cython.longlong][::1],
    metadata_sizes: cython.longlong[::1],
    payload_sizes: cython.longlong[::1],
    key_sizes: cython.longlong[::1],
) -> None:
    """For each row: bytes of its SingleMessageMetadata, of its payload, and of both its keys alone."""
    for row in range(payload_sizes.shape[0]):
        payload = value_offsets[row + 1] - value_offsets[row] if value_present[row] else 0
        size = 1 + _varint_size(payload) + 1 + _varint_size(sequence_ids[row])
        for i in range(property_rows[row], property_rows[row + 1]):
            size += _bytes_size(
                _bytes_size(name_offsets[i + 1] - name_offsets[i]) + _bytes_size(text_offsets[i + 1] - text_offsets[i])
            )
        keys = 0
        if key_present[row]:
            keys += _bytes_size(key_offsets[row + 1] - key_offsets[row])
            if keys_are_base64[row]:
                size += 2
        if ordering_present[row]:
            keys += _bytes_size(ordering_offsets[row + 1] - ordering_offsets[row])
        if event_times[row] != 0:
            size += 1 + _varint_size(event_times[row])
        if not value_present[row]:
            size += 2
        metadata_sizes[row] = size + keys
        payload_sizes[row] = payload
        key_sizes[row] = keys


@kernel
def split_rows(
    metadata_sizes: cython.const[cython.longlong][::1],
    payload_sizes: cython.const[cython.longlong][::1],
    key_sizes: cython.const[cython.longlong][::1],
    messages_max: cython.longlong,
    bytes_max: cython.longlong,
    starts: cython.longlong[::1],
    entry_sizes: cython.longlong[::1],
) -> int:
    """Cut the rows into entries and return their number; entry e begins with row ``starts[e]`` and ends with the next.

    ``entry_sizes`` gets the bytes of the members of each. The keys of the first row count twice, because the entry
    repeats them. A row that exceeds ``bytes_max`` makes an entry of its own.
    """
    entries: cython.Py_ssize_t = 0
    messages: cython.longlong = 0
    taken: cython.longlong = 0
    starts[0] = 0
    for row in range(payload_sizes.shape[0]):
        size = _SIZE_BYTES + metadata_sizes[row] + payload_sizes[row]
        if messages > 0 and (messages == messages_max or taken + size > bytes_max):
            entries += 1
            messages = 0
        if messages == 0:
            starts[entries] = row
            entry_sizes[entries] = 0
            taken = key_sizes[row]
        messages += 1
        taken += size
        entry_sizes[entries] += size
    entries += 1
    starts[entries] = payload_sizes.shape[0]
    return entries


# -- bytes


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_varint(out: cython.p_uchar, at: cython.Py_ssize_t, number: cython.longlong) -> cython.Py_ssize_t:
    if 0 <= number <= 0x7F:
        out[at] = number
        return at + 1
    return pb.put_varint(out, at, number)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_number(
    out: cython.p_uchar, at: cython.Py_ssize_t, tag: cython.uchar, number: cython.longlong
) -> cython.Py_ssize_t:
    out[at] = tag
    return _put_varint(out, at + 1, number)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_field(
    out: cython.p_uchar,
    at: cython.Py_ssize_t,
    tag: cython.uchar,
    data: cython.p_const_uchar,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    return pb.put_bytes(out, _put_number(out, at, tag, end - start), data, start, end)


@kernel
def write_rows(
    starts: cython.const[cython.longlong][::1],
    places: cython.const[cython.longlong][::1],
    key_data: cython.const[cython.uchar][::1],
    key_offsets: cython.const[cython.int][::1],
    key_present: cython.const[cython.uchar][::1],
    keys_are_base64: cython.const[cython.uchar][::1],
    value_data: cython.const[cython.uchar][::1],
    value_offsets: cython.const[cython.int][::1],
    value_present: cython.const[cython.uchar][::1],
    ordering_data: cython.const[cython.uchar][::1],
    ordering_offsets: cython.const[cython.int][::1],
    ordering_present: cython.const[cython.uchar][::1],
    property_rows: cython.const[cython.int][::1],
    name_data: cython.const[cython.uchar][::1],
    name_offsets: cython.const[cython.int][::1],
    text_data: cython.const[cython.uchar][::1],
    text_offsets: cython.const[cython.int][::1],
    event_times: cython.const[cython.longlong][::1],
    sequence_ids: cython.const[cython.longlong][::1],
    metadata_sizes: cython.const[cython.longlong][::1],
    payload_sizes: cython.const[cython.longlong][::1],
    written: cython.uchar[::1],
) -> None:
    """Write the messages of each entry e, rows ``starts[e]`` to ``starts[e + 1]``, to ``written`` from ``places[e]``.

    An entry whose place is negative is left out.
    """
    keys: cython.p_const_uchar = cython.address(key_data[0]) if cython.compiled else key_data
    values: cython.p_const_uchar = cython.address(value_data[0]) if cython.compiled else value_data
    ordering_keys: cython.p_const_uchar = cython.address(ordering_data[0]) if cython.compiled else ordering_data
    names: cython.p_const_uchar = cython.address(name_data[0]) if cython.compiled else name_data
    texts: cython.p_const_uchar = cython.address(text_data[0]) if cython.compiled else text_data
    out: cython.p_uchar = cython.address(written[0]) if cython.compiled else written
    entry: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t = places[0]
    with cython.nogil:
        for row in range(payload_sizes.shape[0]):
            if row == starts[entry + 1]:
                entry += 1
                at = places[entry]
            if at < 0:
                continue
            at = pb.put_u32(out, at, metadata_sizes[row])
            for i in range(property_rows[row], property_rows[row + 1]):
                at = _put_number(
                    out, at, 0x0A,
                    _bytes_size(name_offsets[i + 1] - name_offsets[i])
                    + _bytes_size(text_offsets[i + 1] - text_offsets[i]),
                )  # fmt: skip
                at = _put_field(out, at, 0x0A, names, name_offsets[i], name_offsets[i + 1])
                at = _put_field(out, at, 0x12, texts, text_offsets[i], text_offsets[i + 1])
            if key_present[row]:
                at = _put_field(out, at, 0x12, keys, key_offsets[row], key_offsets[row + 1])
            at = _put_number(out, at, 0x18, payload_sizes[row])
            if event_times[row] != 0:
                at = _put_number(out, at, 0x28, event_times[row])
            if keys_are_base64[row]:
                at = _put_number(out, at, 0x30, 1)
            if ordering_present[row]:
                at = _put_field(out, at, 0x3A, ordering_keys, ordering_offsets[row], ordering_offsets[row + 1])
            at = _put_number(out, at, 0x40, sequence_ids[row])
            if not value_present[row]:
                at = _put_number(out, at, 0x48, 1)
            at = pb.put_bytes(out, at, values, value_offsets[row], value_offsets[row] + payload_sizes[row])


# -- message ids


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_decimal(out: cython.p_uchar, at: cython.Py_ssize_t, number: cython.longlong) -> cython.Py_ssize_t:
    """Write ``number`` in decimal; where it ends."""
    if number < 0:
        out[at] = 0x2D
        at += 1
        number = -number
    end = at + 1
    rest = number
    while rest >= 10:
        rest //= 10
        end += 1
    place = end
    while place > at:
        place -= 1
        out[place] = 0x30 + number % 10
        number //= 10
    return end


@kernel
def write_id_texts(
    ledgers: cython.const[cython.longlong][::1],
    entries: cython.const[cython.longlong][::1],
    batch_indexes: cython.const[cython.int][::1],
    partition: cython.longlong,
    offsets: cython.int[::1],
    written: cython.uchar[::1],
) -> int:
    """Write ``ledger:entry:partition[:batch index]`` for each row, one behind the other; the bytes used."""
    out: cython.p_uchar = cython.address(written[0]) if cython.compiled else written
    at: cython.Py_ssize_t = 0
    begun: cython.Py_ssize_t = 0  # the text in front of the batch index, shared by the messages of an entry
    begun_bytes: cython.Py_ssize_t = 0
    offsets[0] = 0
    for row in range(ledgers.shape[0]):
        if row > 0 and ledgers[row] == ledgers[row - 1] and entries[row] == entries[row - 1]:
            at = pb.put_bytes(out, at, out, begun, begun + begun_bytes)
        else:
            begun = at
            at = _put_decimal(out, at, ledgers[row])
            out[at] = 0x3A
            at = _put_decimal(out, at + 1, entries[row])
            out[at] = 0x3A
            at = _put_decimal(out, at + 1, partition)
            begun_bytes = at - begun
        if batch_indexes[row] >= 0:
            out[at] = 0x3A
            at = _put_decimal(out, at + 1, batch_indexes[row])
        offsets[row + 1] = at
    return at


@kernel
def write_id_bytes(
    ledgers: cython.const[cython.longlong][::1],
    entries: cython.const[cython.longlong][::1],
    batch_indexes: cython.const[cython.int][::1],
    batch_sizes: cython.const[cython.int][::1],
    partition: cython.longlong,
    offsets: cython.int[::1],
    written: cython.uchar[::1],
) -> int:
    """Write a MessageIdData for each row, one behind the other; the bytes used."""
    out: cython.p_uchar = cython.address(written[0]) if cython.compiled else written
    at: cython.Py_ssize_t = 0
    offsets[0] = 0
    for row in range(ledgers.shape[0]):
        at = _put_number(out, at, 0x08, ledgers[row])
        at = _put_number(out, at, 0x10, entries[row])
        if partition >= 0:
            at = _put_number(out, at, 0x18, partition)
        if batch_indexes[row] >= 0:
            at = _put_number(out, at, 0x20, batch_indexes[row])
            at = _put_number(out, at, 0x30, batch_sizes[row])
        offsets[row + 1] = at
    return at
