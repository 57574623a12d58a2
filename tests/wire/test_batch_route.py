# SPDX-License-Identifier: Apache-2.0
"""Routing of rows to partitions: the same as for single messages, and every row exactly once."""

from __future__ import annotations

import base64
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker_core.base.hashing import partition_of_key
from broker_core.wire import batch as compiled_batch
from broker_core.wire.batch import route_rows

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


@SETTINGS
@given(keys=st.lists(st.one_of(st.text(max_size=20), st.none()), max_size=40), partitions=st.integers(1, 9))
def test_text_keys_go_where_a_single_message_would_go(
    keys: list[str | None], partitions: int, plain_batch: ModuleType
) -> None:
    """Semantics 1.2: murmur3 of the key, 31 bits, modulo the partitions; compiled or not."""
    for module in (compiled_batch, plain_batch):
        for kind in (pa.string(), pa.large_string()):
            found = by_row(module.route_rows(pa.array(keys, kind), partitions, rows=len(keys)), len(keys))
            for key, partition in zip(keys, found, strict=True):
                assert key is None or partition == partition_of_key(key, partitions)


@SETTINGS
@given(keys=st.lists(st.binary(max_size=20), max_size=40), partitions=st.integers(1, 9))
def test_keys_given_as_bytes_are_routed_as_they_travel(keys: list[bytes], partitions: int) -> None:
    """The base64 text is what other clients hash."""
    found = by_row(route_rows(pa.array(keys, pa.binary()), partitions, rows=len(keys)), len(keys))
    assert found == [partition_of_key(base64.b64encode(key).decode(), partitions) for key in keys]


@pytest.mark.parametrize("keys", [None, pa.nulls(10, pa.string()), pa.nulls(10, pa.binary())])
def test_rows_without_a_key_are_dealt_in_runs(keys: Any) -> None:
    """Long runs make large batches; the caller says where the first goes, so that small writes spread too."""
    assert by_row(route_rows(keys, 4, rows=10), 10) == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
    assert by_row(route_rows(keys, 4, rows=10, keyless_first=7), 10) == [3, 3, 3, 0, 0, 1, 1, 1, 2, 2]


def test_parts_can_be_taken_from_the_rows() -> None:
    """What comes out is what Arrow's take wants."""
    rows = pa.record_batch([pa.array(["a", "b", "c", "d"])], ["key"])
    parts = [rows.take(part)["key"].to_pylist() for part in route_rows(rows["key"], 3, rows=4)]
    assert sorted(key for part in parts for key in part) == ["a", "b", "c", "d"]
    assert route_rows(None, 2, rows=0)[1].to_pylist() == []
