# SPDX-License-Identifier: Apache-2.0
"""Values that lie apart are copied one behind the other: compiled and as written, all alike."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from broker_core.wire.batch.columns import gather

GAPS_AND_VALUES = st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=70)), min_size=1, max_size=30)


def laid_out(pieces: list[tuple[bytes, bytes]]) -> tuple[NDArray[np.uint8], NDArray[np.int32], list[bytes]]:
    """Gaps and values in one buffer that ends with the last value, the spans of the values, and the values."""
    sizes = [len(piece) for pair in pieces for piece in pair]
    spans = np.array([0, *np.cumsum(sizes)], np.int32)
    data = b"".join(piece for pair in pieces for piece in pair)
    return np.frombuffer(data, np.uint8), spans, [value for _, value in pieces]


@given(pieces=GAPS_AND_VALUES)
def test_gathered_values_are_those_of_the_spans(pieces: list[tuple[bytes, bytes]]) -> None:
    """Empty values and empty gaps, at the front and at the end too."""
    data, spans, values = laid_out(pieces)
    found = gather(data, spans, len(values))
    found.validate(full=True)
    assert found.to_pylist() == values


@given(pieces=GAPS_AND_VALUES)
def test_uncompiled_the_copying_kernel_stays_within_its_arrays(
    plain_batch: ModuleType, pieces: list[tuple[bytes, bytes]]
) -> None:
    """As it is written it reads bytes that refuse what lies outside of them."""
    data, spans, values = laid_out(pieces)
    watched = plain_batch.decode.as_array(data)
    assert plain_batch.columns.gather(watched, spans, len(values)).to_pylist() == values


@pytest.mark.parametrize("valid", [[True, False, True], [False, False, False], [True, True, True]])
def test_values_that_are_not_valid_are_null(valid: list[bool]) -> None:
    """Their spans are empty."""
    data, spans, values = laid_out([(b"-", b"a" if valid[0] else b""), (b"", b""), (b"", b"c" if valid[2] else b"")])
    found: pa.Array = gather(data, spans, 3, np.array(valid))
    expected: list[Any] = [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]
    assert found.to_pylist() == expected


def test_large_values_are_copied_whole() -> None:
    """Of the sizes for which many bytes are moved at once, with what is left over."""
    rng = np.random.default_rng(5)
    pieces = [(rng.bytes(gap), rng.bytes(size)) for gap, size in ((0, 1024), (25, 4099), (3, 65_537), (1, 31), (7, 33))]
    data, spans, values = laid_out(pieces)
    assert gather(data, spans, len(values)).to_pylist() == values
