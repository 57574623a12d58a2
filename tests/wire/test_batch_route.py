# SPDX-License-Identifier: Apache-2.0
"""Routing of rows to partitions: the same as for single messages, and every row exactly once."""

from __future__ import annotations

import base64
import itertools
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker_core.base.hashing import KEY_HASHES, HashingScheme, partition_of_key
from broker_core.wire import batch as compiled_batch
from broker_core.wire.batch import route_rows
from broker_core.wire.batch.columns import ByteColumn
from broker_core.wire.batch.sent_keys import hash_keys

SETTINGS = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def by_row(parts: list[pa.Array], rows: int) -> list[int]:
    """The partition of each row; every row must be in one, and rows ascend within each."""
    found = {}
    for partition, part in enumerate(parts):
        numbers = part.to_pylist()
        assert numbers == sorted(numbers)
        found.update(dict.fromkeys(numbers, partition))
    assert sum(len(part) for part in parts) == rows == len(found)
    return [found[row] for row in range(rows)]


def keyed(keys: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"key": keys})


@SETTINGS
@given(keys=st.lists(st.one_of(st.text(max_size=20), st.none()), max_size=40), partitions=st.integers(1, 9))
def test_text_keys_go_where_a_single_message_would_go(
    keys: list[str | None], partitions: int, plain_batch: ModuleType
) -> None:
    """Semantics 1.2: a hash of the key modulo the partitions, by every scheme; compiled or not."""
    for module, scheme in itertools.product((compiled_batch, plain_batch), KEY_HASHES):
        for kind in (pa.string(), pa.large_string()):
            routed = module.route_rows(keyed(pa.array(keys, kind)), partitions, scheme=scheme)
            for key, partition in zip(keys, by_row(routed, len(keys)), strict=True):
                assert key is None or partition == partition_of_key(key, partitions, scheme)


@SETTINGS
@given(keys=st.lists(st.binary(max_size=20), max_size=40), partitions=st.integers(1, 9))
def test_keys_given_as_bytes_are_routed_as_they_travel(keys: list[bytes], partitions: int) -> None:
    """The base64 text is what other clients hash."""
    found = by_row(route_rows(keyed(pa.array(keys, pa.binary())), partitions), len(keys))
    assert found == [partition_of_key(base64.b64encode(key).decode(), partitions) for key in keys]


@SETTINGS
@given(data=st.lists(st.binary(max_size=12), min_size=1, max_size=20), scheme=st.sampled_from(list(KEY_HASHES)))
def test_hashing_reads_nothing_beyond_a_key(data: list[bytes], scheme: HashingScheme) -> None:
    """Bytes that are not UTF-8 are refused before; a kernel that met them must stay within the key all the same."""
    alone = [hash_keys(ByteColumn.of(pa.array([key], pa.binary())), scheme)[0] for key in data]
    assert hash_keys(ByteColumn.of(pa.array(data, pa.binary())), scheme).tolist() == alone


@pytest.mark.parametrize("keys", [None, pa.nulls(10, pa.string()), pa.nulls(10, pa.binary())])
def test_rows_without_a_key_are_dealt_in_runs(keys: Any) -> None:
    """Long runs make large batches; the caller says where the first goes, so that small writes spread too."""
    rows = pa.record_batch({"value": pa.nulls(10, pa.string())} | ({} if keys is None else {"key": keys}))
    assert by_row(route_rows(rows, 4), 10) == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
    assert by_row(route_rows(rows, 4, keyless_first=7), 10) == [3, 3, 3, 0, 0, 1, 1, 1, 2, 2]


def test_parts_can_be_taken_from_the_rows() -> None:
    """What comes out is what Arrow's take wants."""
    rows = keyed(pa.array(["a", "b", "c", "d"]))
    parts = [rows.take(part)["key"].to_pylist() for part in route_rows(rows, 3)]
    assert sorted(key for part in parts for key in part) == ["a", "b", "c", "d"]
    assert route_rows(rows.slice(0, 0), 2)[1].to_pylist() == []
