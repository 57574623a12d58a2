# SPDX-License-Identifier: Apache-2.0
"""The columnar encoder: byte for byte what protobuf writes, for every Arrow type that rows may come in."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker_core.base.errors import RowError, UsageError
from broker_core.base.limits import FRAME_SLACK_BYTES, METADATA_BYTES_MAX
from broker_core.wire import batch as compiled_batch
from broker_core.wire.batch import EncodedEntry, decode_entries, encode_entries
from broker_core.wire.compression import CODECS, NONE, ZSTD
from broker_core.wire.entry import EntryRef, read_metadata, verify_entry
from tests.wire.reference_codec import encode_reference_batch, encode_reference_single

SETTINGS = settings(
    derandomize=True, deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
MIB = 1024 * 1024
PROPERTIES = pa.map_(pa.string(), pa.string())
PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
HEAD: dict[str, Any] = {"producer_name": "p", "first_sequence_id": 0, "publish_time_ms": 1}

texts = st.text(max_size=12)
pairs = st.lists(st.tuples(texts, texts), max_size=4, unique_by=lambda pair: pair[0])
rows_with_keys: dict[str, st.SearchStrategy[list[dict[str, Any]]]] = {
    kind: st.lists(
        st.fixed_dictionaries(
            {
                "key": st.one_of(st.none(), keys),
                "value": st.one_of(st.none(), st.binary(max_size=300)),
                "ordering_key": st.one_of(st.none(), st.binary(max_size=8)),
                "properties": pairs,
                "event_time": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
            }
        ),
        max_size=12,
    )
    for kind, keys in (
        ("text", texts),
        ("bytes", st.binary(max_size=12)),
        ("both", st.one_of(texts, st.binary(max_size=12))),
    )
}
anything = st.one_of(
    st.tuples(st.just(pa.string()), rows_with_keys["text"]),
    st.tuples(st.just(pa.binary()), rows_with_keys["bytes"]),
    st.tuples(st.none(), rows_with_keys["both"]),
)


def to_batch(
    rows: list[dict[str, Any]],
    key_type: pa.DataType | None = pa.string(),  # noqa: B008 - a value
    **types: pa.DataType,
) -> pa.RecordBatch:
    """Rows as a record batch, in the plain types or in those given for some columns; without a type of keys, as bytes
    and with a column that says what each is."""
    if key_type is None:
        forms = [None if row["key"] is None else isinstance(row["key"], bytes) for row in rows]
        with_bytes = [
            row | {"key": row["key"].encode() if form is False else row["key"]}
            for row, form in zip(rows, forms, strict=True)
        ]
        return to_batch(with_bytes, pa.binary(), **types).append_column("key_is_bytes", pa.array(forms, pa.bool_()))
    plain = {
        "key": key_type,
        "value": pa.binary(),
        "ordering_key": pa.binary(),
        "properties": PROPERTIES,
        "event_time": pa.int64(),
    }
    wanted = {**plain, **types}
    return pa.RecordBatch.from_arrays(
        [pa.array([row.get(name) for row in rows], kind) for name, kind in wanted.items()], names=list(wanted)
    )


def as_read(row: dict[str, Any]) -> dict[str, Any]:
    """A row as the decoder gives it back."""
    key = row.get("key")
    return {
        "key": key.encode() if isinstance(key, str) else key,
        "value": row.get("value"),
        "ordering_key": row.get("ordering_key"),
        "properties": list(row.get("properties") or []),
        "event_time": row.get("event_time") or None,
    }


def read_back(entries: list[EncodedEntry]) -> list[dict[str, Any]]:
    """What a reader of the entries sees."""
    for entry in entries:
        verify_entry(entry.body)
    source = [EntryRef(1, number, entry.body) for number, entry in enumerate(entries)]
    columns = ["key", "value", "ordering_key", "properties", "event_time"]
    rows: list[dict[str, Any]] = decode_entries(source, columns).to_pylist()
    return rows


@SETTINGS
@given(
    given_rows=anything,
    sequence_id=st.one_of(st.integers(0, 2**40), st.just(2**63 - 20)),
    messages_max=st.integers(1, 5),
    bytes_max=st.sampled_from([1, 100, 400, 1 << 20]),
)
def test_entries_are_byte_for_byte_those_of_protobuf(
    given_rows: tuple[pa.DataType, list[dict[str, Any]]],
    sequence_id: int,
    messages_max: int,
    bytes_max: int,
    plain_batch: ModuleType,
) -> None:
    """Whole batches and single messages, compiled or not; every row is in exactly one entry, in order."""
    key_type, rows = given_rows
    batch = to_batch(rows, key_type)
    head: dict[str, Any] = {"producer_name": "prödücer", "publish_time_ms": 1_700_000_000_000}
    for module in (compiled_batch, plain_batch):
        entries = module.encode_entries(
            batch,
            first_sequence_id=sequence_id,
            messages_max=messages_max,
            bytes_max=bytes_max,
            **head,
        )
        at = 0
        for entry in entries:
            mine = rows[at : at + entry.messages]
            first = sequence_id + at
            if read_metadata(entry.body).HasField("num_messages_in_batch"):
                assert bytes(entry.body) == encode_reference_batch(mine, first_sequence_id=first, **head)
                assert 1 <= entry.messages <= messages_max
            else:
                assert entry.messages == 1
                assert bytes(entry.body) == encode_reference_single(mine[0], sequence_id=first, **head)
            assert (entry.sequence_id, entry.highest_sequence_id) == (first, first + entry.messages - 1)
            at += entry.messages
        assert at == len(rows)


@SETTINGS
@given(rows=rows_with_keys["both"], codec=st.sampled_from([NONE, ZSTD]))
def test_keys_keep_their_form(rows: list[dict[str, Any]], codec: int) -> None:
    """A reader sees of each key whether it was text or bytes, and what it is written from is as it was."""
    batch = to_batch(rows, None)
    entries = encode_entries(batch, compression=codec, **HEAD)
    source = [EntryRef(1, number, entry.body) for number, entry in enumerate(entries)]
    found = decode_entries(source, ["key", "key_is_bytes"])
    assert found["key"].to_pylist() == batch["key"].to_pylist()
    assert found["key_is_bytes"].to_pylist() == batch["key_is_bytes"].to_pylist()


@pytest.mark.parametrize(
    ("key", "is_bytes"),
    [(pa.array([b"a", None, b"\xff"]), False), (pa.array([b"a", None, b"\xed\xa0\x80"]), False), ("string", None)],
)
def test_a_text_key_that_is_not_utf8_is_refused_by_its_row(key: Any, is_bytes: bool | None) -> None:
    """Protobuf's string must be UTF-8, and other clients would see another key. Spark's strings need not be."""
    if key == "string":
        offsets = pa.py_buffer(np.array([0, 1, 1, 2], np.int32))
        key = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"a\xff")])
    rows = pa.record_batch({"key": key, "key_is_bytes": pa.array([is_bytes] * 3, pa.bool_())})
    with pytest.raises(UsageError, match=r"row 2 has the key b'\\x.*', which is to be sent as text and is not UTF-8"):
        encode_entries(rows, **HEAD)


@SETTINGS
@given(
    delays=st.lists(st.sampled_from([None, 0, 1_800_000_000_000]), min_size=1, max_size=12),
    codec=st.sampled_from([NONE, ZSTD]),
    messages_max=st.integers(1, 5),
)
def test_a_delayed_row_is_an_entry_of_its_own(delays: list[int | None], codec: int, messages_max: int) -> None:
    """1.7.5: messages with a delivery time are never in a batch; the rows around them are, in order, as ever."""
    batch = pa.record_batch(
        {
            "value": pa.array([b"%d" % row for row in range(len(delays))]),
            "deliver_at": pa.array(delays, pa.int64()),
        }
    )
    entries = encode_entries(batch, compression=codec, messages_max=messages_max, **HEAD)
    assert [row["value"] for row in read_back(entries)] == [b"%d" % row for row in range(len(delays))]
    at = 0
    for entry in entries:
        metadata = read_metadata(entry.body)
        assert entry.sequence_id == at
        assert metadata.deliver_at_time == (delays[at] or 0)
        assert metadata.HasField("deliver_at_time") is bool(delays[at])
        if delays[at]:
            assert entry.messages == 1
            assert not metadata.HasField("num_messages_in_batch")
        assert entry.messages <= messages_max
        assert not any(delays[at + 1 : at + entry.messages])
        at += entry.messages
    assert at == len(delays)


@SETTINGS
@given(anything, st.sampled_from(sorted(CODECS.values())), st.integers(1, 6), st.sampled_from([50, 1 << 20]))
def test_what_is_written_is_read(
    given_rows: tuple[pa.DataType, list[dict[str, Any]]], codec: int, messages_max: int, bytes_max: int
) -> None:
    """Under every codec, nulls and empty values told apart."""
    key_type, rows = given_rows
    entries = encode_entries(
        to_batch(rows, key_type), compression=codec, messages_max=messages_max, bytes_max=bytes_max, **HEAD
    )
    assert read_back(entries) == [as_read(row) for row in rows]


ROWS: list[dict[str, Any]] = [
    {"key": "a", "value": b"1", "ordering_key": b"x", "properties": [("p", "q")], "event_time": 1},
    {"key": None, "value": None, "ordering_key": None, "properties": [], "event_time": None},
    {"key": "ä" * 70, "value": b"3" * 200, "ordering_key": b"", "properties": [("", ""), ("r", "s" * 200)]},
    {"key": "", "value": b"", "ordering_key": b"y", "properties": [("t", "u")], "event_time": 4},
]


@pytest.mark.parametrize(
    "types",
    [
        {"key": pa.large_string(), "value": pa.large_binary(), "ordering_key": pa.large_binary()},
        {"key": pa.string_view(), "value": pa.binary_view(), "ordering_key": pa.binary_view()},
        {"key": pa.dictionary(pa.int8(), pa.string()), "value": pa.dictionary(pa.int32(), pa.binary())},
        {"value": pa.string(), "ordering_key": pa.string()},
        {"properties": PAIRS},
        {"properties": pa.map_(pa.large_string(), pa.string_view())},
        {"event_time": pa.timestamp("ms")},
        {"event_time": pa.timestamp("ms", "Europe/Berlin")},
        {"event_time": pa.int32()},
    ],
    ids=str,
)
def test_every_arrow_type_of_a_column_gives_the_same_entries(types: dict[str, pa.DataType]) -> None:
    """Text or bytes, large or not, views, dictionaries, maps or lists of pairs."""
    made = [dict(row) for row in ROWS]
    if types.get("properties") == PAIRS:
        for row in made:
            row["properties"] = [{"key": key, "value": value} for key, value in row["properties"]]
    batch = to_batch(made, **types)
    assert encode_entries(batch, **HEAD) == encode_entries(to_batch(ROWS), **HEAD)


@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 1000), ("us", 1_000_000), ("ns", 1_000_000_000)])
def test_timestamps_of_any_unit_become_milliseconds(unit: str, factor: int) -> None:
    """What is finer than a millisecond is cut off, before 1970 too."""
    finer = 1 if factor > 1000 else 0
    times = pa.array([5 * factor + finer, None, -5 * factor + finer], pa.timestamp(unit))
    rows = read_back(encode_entries(pa.record_batch([times], ["event_time"]), **HEAD))
    assert [row["event_time"] for row in rows] == [5000, None, -5000]


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("last", range(1, 5))
def test_a_slice_of_a_batch_is_only_that_slice(first: int, last: int) -> None:
    """Arrays whose memory holds more rows than they show."""
    for types in ({}, {"key": pa.binary()}, {"properties": PAIRS}):
        made = [dict(row) for row in ROWS]
        if types:
            for row in made:
                row["properties"] = (
                    [{"key": key, "value": value} for key, value in row["properties"]]
                    if "properties" in types
                    else row["properties"]
                )
                row["key"] = row["key"].encode() if "key" in types and row["key"] is not None else row["key"]
        part = to_batch(made, **types).slice(first, max(0, last - first))
        assert read_back(encode_entries(part, **HEAD)) == [as_read(row) for row in ROWS[first:last]]


def test_columns_may_be_missing_or_null() -> None:
    """A value alone makes a message, and so does nothing at all."""
    values = pa.record_batch([pa.array([b"1", None])], ["value"])
    assert [row["value"] for row in read_back(encode_entries(values, **HEAD))] == [b"1", None]
    nulls = pa.record_batch([pa.nulls(2) for _ in compiled_batch.ENCODED_COLUMNS], list(compiled_batch.ENCODED_COLUMNS))
    assert read_back(encode_entries(nulls, **HEAD)) == [as_read({})] * 2
    assert encode_entries(nulls.slice(0, 0), **HEAD) == []


def test_null_properties_are_none() -> None:
    """A null map is an empty one, even if its memory holds pairs."""
    offsets = pa.array([0, 1, 2], pa.int32())
    maps = pa.MapArray.from_arrays(offsets, pa.array(["a", "b"]), pa.array(["1", "2"]), mask=pa.array([True, False]))
    lists = pa.array([None, [{"key": "b", "value": "2"}]], PAIRS)
    for column in (maps, lists):
        rows = read_back(encode_entries(pa.record_batch([column], ["properties"]), **HEAD))
        assert [row["properties"] for row in rows] == [[], [("b", "2")]]


def test_batches_end_at_the_number_of_messages_or_bytes() -> None:
    """Whichever comes first; sequence ids run on."""
    rows = to_batch([{"value": bytes(100)}] * 10)
    by_count = encode_entries(rows, messages_max=4, **HEAD)
    assert [(entry.messages, entry.sequence_id, entry.highest_sequence_id) for entry in by_count] == [
        (4, 0, 3), (4, 4, 7), (2, 8, 9)
    ]  # fmt: skip
    by_size = encode_entries(rows, bytes_max=330, **HEAD)
    assert [entry.messages for entry in by_size] == [3, 3, 3, 1]


def test_a_row_too_large_for_a_batch_is_a_message_of_its_own() -> None:
    """It does not disturb those around it."""
    rows: list[dict[str, Any]] = [
        {"value": b"a"},
        {"value": b"b"},
        {"value": bytes(5 * MIB), "key": "large"},
        {"value": b"c"},
    ]
    for codec in (NONE, ZSTD):
        entries = encode_entries(to_batch(rows), compression=codec, **HEAD)
        assert [entry.messages for entry in entries] == [2, 1, 1]
        assert not read_metadata(entries[1].body).HasField("num_messages_in_batch")
        assert read_back(entries) == [as_read(row) for row in rows]


def test_without_batching_every_row_is_a_plain_message() -> None:
    """``messages_max`` 1 makes no batches of one."""
    entries = encode_entries(to_batch(ROWS), messages_max=1, **HEAD)
    assert [read_metadata(entry.body).HasField("num_messages_in_batch") for entry in entries] == [False] * 4
    assert read_back(entries) == [as_read(row) for row in ROWS]


def test_a_payload_that_does_not_shrink_travels_plain() -> None:
    """Compression must never make an entry larger than the broker accepts."""
    noise = np.random.default_rng(1).bytes(5 * MIB)
    entries = encode_entries(to_batch([{"value": noise}, {"value": b"x"}]), compression=ZSTD, **HEAD)
    assert [read_metadata(entry.body).HasField("compression") for entry in entries] == [False, False]
    assert len(entries[0].body) < 5 * MIB + FRAME_SLACK_BYTES


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"value": bytes(5 * MIB + 1)}, "row 2 has a value of 5242881 bytes, more than the 5242880"),
        ({"key": "k" * METADATA_BYTES_MAX}, "row 2 has keys and properties of 10485"),
        ({"properties": [("k", "v" * METADATA_BYTES_MAX)]}, "row 2 has keys and properties of 10485"),
        ({"value": bytes(5 * MIB), "key": "k" * 20_000}, "row 2 has a value, keys and properties of 5262"),
    ],
)
def test_a_row_that_is_too_large_is_named(row: dict[str, Any], words: str) -> None:
    """With its size and the limit, before anything is sent."""
    with pytest.raises(UsageError, match=words):
        encode_entries(to_batch([{}, {}, row, {}]), **HEAD)


def test_the_limit_of_a_message_is_the_brokers() -> None:
    """A broker may accept less or more than usual, and no batch exceeds it."""
    rows = to_batch([{"value": bytes(2000)}] * 3)
    with pytest.raises(UsageError, match="row 0"):
        encode_entries(rows, message_bytes_max=1999, **HEAD)
    assert [entry.messages for entry in encode_entries(rows, message_bytes_max=4100, **HEAD)] == [2, 1]
    large = to_batch([{"value": bytes(6 * MIB)}])
    assert encode_entries(large, message_bytes_max=8 * MIB, bytes_max=8 * MIB, **HEAD)[0].messages == 1


def test_an_entry_never_exceeds_a_frame() -> None:
    """The keys that an entry repeats from its first row count when a batch is filled to the brim."""
    limit = MIB
    rows = to_batch([{"key": "k" * 50_000, "ordering_key": b"o" * 50_000, "value": bytes(161_900)}] * 12)
    entries = encode_entries(rows, bytes_max=limit, message_bytes_max=limit, **HEAD)
    assert max(entry.messages for entry in entries) > 1
    assert max(len(entry.body) for entry in entries) <= limit + 1024


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (("key", pa.array([1])), "'key' is of type int64.*string or binary"),
        (("value", pa.array([1.5])), "'value' is of type double"),
        (("properties", pa.array(["x"])), "'properties' is of type string.*map"),
        (("properties", pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32()))), "'properties' is of type map"),
        (("event_time", pa.array(["now"])), "'event_time' is of type string.*timestamp"),
        (("vlaue", pa.array(["x"])), "column 'vlaue' cannot be sent.*value"),
    ],
)
def test_a_column_that_cannot_be_sent_is_named(column: tuple[str, pa.Array], words: str) -> None:
    """With its type, and what it should be."""
    with pytest.raises(UsageError, match=words):
        encode_entries(pa.record_batch([column[1]], [column[0]]), **HEAD)


@pytest.mark.parametrize("kind", [PROPERTIES, PAIRS])
def test_a_property_without_value_names_its_row(kind: pa.DataType) -> None:
    """The protocol has no null inside properties."""
    row: Any = [("b", None)] if kind == PROPERTIES else [{"key": "b", "value": None}]
    good: Any = [("a", "1")] if kind == PROPERTIES else [{"key": "a", "value": "1"}]
    column = pa.array([row, good, [], row], kind).slice(1)
    with pytest.raises(UsageError, match="row 2 has a property without a value"):
        encode_entries(pa.record_batch([column], ["properties"]), **HEAD)


@pytest.mark.parametrize("what", ["name", "value"])
@pytest.mark.parametrize("messages_max", [1, 1000])
def test_a_property_that_is_no_text_names_its_row(what: str, messages_max: int) -> None:
    """Whoever made a string column may not have looked: Spark's casts do not. Other clients could not read it."""
    good, bad = pa.array(["a", "b"]), pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
    pairs = [bad, good] if what == "name" else [good, bad]
    column = pa.MapArray.from_arrays(pa.array([0, 0, 1, 2], pa.int32()), *pairs)
    with pytest.raises(RowError, match=rf"row 1 has a property whose {what} is b'\\xff', which is not UTF-8"):
        encode_entries(pa.record_batch([column.slice(1)], ["properties"]), messages_max=messages_max, **HEAD)


@pytest.mark.parametrize(
    ("name", "kind", "number", "told"),
    [
        ("event_time", pa.uint64(), 2**63, "has the event_time 9223372036854775808"),
        ("deliver_at", pa.uint64(), 2**64 - 1, "has the deliver_at 18446744073709551615"),
        ("event_time", pa.timestamp("s"), 2**63 // 1000 + 1, "has the event_time 9223372036854776"),
        ("event_time", pa.timestamp("s"), -(2**62), "has the event_time -4611686018427387904"),
        ("sequence_id", pa.uint64(), 2**63, "has the sequence id 9223372036854775808"),
    ],
)
def test_a_number_that_64_bits_with_a_sign_do_not_hold_is_told_with_its_row(
    name: str, kind: pa.DataType, number: int, told: str
) -> None:
    """Arrow's own error named no row, and was none of ours."""
    plain = kind if pa.types.is_integer(kind) else pa.int64()
    column = pa.array([0, 1, 2, number], plain).cast(kind)
    with pytest.raises(RowError, match=f"row 2 {told}"):
        encode_entries(pa.record_batch([column.slice(1)], [name]), **HEAD)


def test_the_largest_times_are_sent_as_they_are() -> None:
    """What a null holds is nobody's time."""
    largest = pa.array([2**63 - 1, 2**63], pa.uint64())
    nulled = pa.Array.from_buffers(pa.uint64(), 2, [pa.py_buffer(b"\x01"), largest.buffers()[1]])
    (entry,) = encode_entries(pa.record_batch([nulled], ["event_time"]), **HEAD)
    found = decode_entries([EntryRef(0, 0, bytes(entry.body))], {"event_time"}).column("event_time")
    assert found.to_pylist() == [2**63 - 1, None]


def test_a_pair_that_is_null_is_no_property() -> None:
    """Arrow keeps name and value behind a pair that is null; they are not what the row says."""
    names, values = pa.array(["a", "b"]), pa.array(["1", "2"])
    pairs = pa.StructArray.from_arrays([names, values], names=["key", "value"], mask=pa.array([False, True]))
    column = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pairs)
    with pytest.raises(RowError, match="row 1 has a property without a name"):
        encode_entries(pa.record_batch([column], ["properties"]), **HEAD)


def test_entries_do_not_change_when_the_rows_are_gone() -> None:
    """Bodies are the encoder's own memory, and cannot be written by whoever holds them."""
    entry = encode_entries(to_batch([{"value": b"kept"}] * 3), **HEAD)[0]
    assert memoryview(entry.body).readonly
    assert bytes(entry.body).count(b"kept") == 3
