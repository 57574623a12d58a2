# SPDX-License-Identifier: Apache-2.0
"""Buckets of delayed messages as bytes: how they are cut, that they come back as they were, and what damage does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from broker_core.storage.bucket_snapshot import (
    BucketSnapshot,
    Contents,
    Coverage,
    DamagedBucketError,
    Index,
    Indexes,
    cut,
    encode_bucket,
)

BASE = 1_700_000_000_000


@pytest.mark.parametrize(
    ("times", "sizes"),
    [
        (range(0, 1_000_000, 1000), [300, 300, 300, 100]),
        (range(12_000), [5000, 5000, 2000]),
        ([0, 299_999, 300_000, 900_000], [2, 1, 1]),
        (range(0, 3_000_000, 60), [5000] * 10),
    ],
)
def test_published_segments(times: range, sizes: list[int]) -> None:
    """6.4.2.1: the vectors, with steps of 300 s and 5,000 indexes."""
    segments = cut([BASE + time for time in times], 300_000, 5000)
    assert [end - start for start, end in segments] == sizes


def test_a_thousand_indexes_a_second_apart_begin_and_end_where_they_should() -> None:
    """6.4.2.1: segments cover [0, 299000], [300000, 599000], [600000, 899000], [900000, 999000]."""
    times = [BASE + 1000 * number for number in range(1000)]
    spans = [(times[start] - BASE, times[end - 1] - BASE) for start, end in cut(times, 300_000, 5000)]
    assert spans == [(0, 299_000), (300_000, 599_000), (600_000, 899_000), (900_000, 999_000)]


def test_without_a_limit_only_time_cuts() -> None:
    """6.4.2.1: -1 is no limit."""
    assert cut([BASE] * 20_000, 300_000, -1) == [(0, 20_000)]


KEYS = st.lists(
    st.tuples(st.integers(0, 1 << 45), st.integers(0, 1 << 39), st.integers(0, (1 << 32) - 1)), min_size=1, unique=True
)


def contents_of(rows: list[tuple[int, int, int]]) -> Contents:
    rows = sorted(rows)
    coverage = {
        ledger: Coverage(BitMap([row[2] for row in rows if row[1] == ledger]), BitMap([1, 2, 3]))
        for ledger in sorted({row[1] for row in rows})
    }
    columns = Indexes([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])
    return Contents(columns, coverage, Index(-1, 0, 0), [4, 5])


def opened(data: bytes) -> BucketSnapshot:
    return BucketSnapshot(3, 7, len(data), lambda offset, size: data[offset : offset + size])


def read_all(data: bytes) -> None:
    bucket = opened(data)
    for segment in bucket.directory():
        bucket.load(segment)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(rows=KEYS, step_ms=st.integers(1, 1 << 32), indexes_max=st.sampled_from([-1, 1, 3]))
def test_what_was_written_is_read(rows: list[tuple[int, int, int]], step_ms: int, indexes_max: int) -> None:
    """6.4.2.1 to 6.4.2.3 (I6.6): all indexes in order, first and last times, entries of each ledger."""
    contents = contents_of(rows)
    bucket = opened(encode_bucket(3, 7, contents, step_ms, indexes_max))
    found: list[tuple[int, int, int]] = []
    for segment in bucket.directory():
        assert segment.before == len(found)
        part = bucket.rows(segment, bucket.load(segment), 0, segment.count)
        assert (part.times_ms[0], part.times_ms[-1]) == (segment.first_ms, segment.last_ms)
        assert segment.last_ms - segment.first_ms < step_ms
        found += list(zip(*part, strict=True))
    assert found == sorted(rows)
    assert bucket.coverage() == contents.coverage
    assert (bucket.total, bucket.last, bucket.replaces) == (len(rows), max(rows), [4, 5])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(at=st.integers(0, 10_000), bit=st.integers(0, 7), short=st.booleans())
def test_no_damage_goes_unnoticed(at: int, bit: int, short: bool) -> None:
    """6.4.6 (I6.7): a changed bit or a cut file is an error, never another message."""
    rows = [(BASE + number * 70_000, 1 + number // 7, number) for number in range(20)]
    good = encode_bucket(3, 7, contents_of(rows), 300_000, 4)
    at %= len(good)
    data = good[:at] if short else good[:at] + bytes([good[at] ^ 1 << bit]) + good[at + 1 :]
    with pytest.raises(DamagedBucketError):
        read_all(data)


def test_a_bucket_of_another_topic_is_not_taken() -> None:
    """6.4.6: nor one under another number."""
    data = encode_bucket(3, 8, contents_of([(1, 2, 3)]), 300_000, 4)
    with pytest.raises(DamagedBucketError):
        opened(data)
