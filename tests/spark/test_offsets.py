# SPDX-License-Identifier: Apache-2.0
"""Offsets as Spark stores them: one text for one set of positions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.errors import UsageError
from broker_core.base.positions import Position
from pulsarish_spark.places.offsets import Offset, Points, SourceOffset
from pulsarish_spark.places.topics import TopicPartition

A, B = "persistent://public/default/a", "persistent://public/default/b"

offsets = st.builds(
    Offset,
    st.builds(Position, st.integers(0, 2**62), st.integers(0, 2**62)),
    st.integers(-1, 2**62),
    st.integers(0, 10**6),
)
numbers = st.none() | st.integers(0, 2**62)
points = st.builds(Points, offsets, st.none() | offsets, st.none() | offsets, numbers, numbers, st.none() | offsets)
keys = st.builds(TopicPartition, st.sampled_from([A, B]), st.integers(0, 9999))


def test_the_text_is_readable_and_sorted() -> None:
    """Spark compares texts, so topics and partitions come in one order, whatever order they were found in."""
    found = {
        TopicPartition(B, 0): Offset(Position(7, 0)),
        TopicPartition(A, 10): Offset(Position(5, 3), 42),
        TopicPartition(A, 2): Offset(Position(5, 3), 44, 2),
    }
    text = json.dumps(SourceOffset.of(found).to_json())
    assert text == f'{{"{A}": {{"2": "5:3:2:2@44", "10": "5:3@42"}}, "{B}": {{"0": "7:0"}}}}'
    assert text == json.dumps(SourceOffset.of(dict(reversed(found.items()))).to_json())


@given(
    st.dictionaries(keys, points, max_size=5), st.sampled_from(["", "q"]), st.sampled_from(["", "a.*"]), st.booleans()
)
def test_what_was_written_is_read_back(
    found: dict[TopicPartition, Points], subscription: str, pattern: str, first: bool
) -> None:
    """Also through JSON text, with all that an offset may say of a partition."""
    offset = SourceOffset(found, subscription, pattern, ends_first=first)
    assert SourceOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


def test_the_same_place_reads_back_to_the_same_text() -> None:
    """An offset that passed through Spark's log must not look like a new one, nor one that an older version wrote."""
    documents: list[dict[str, Any]] = [
        {A: {"0": "5:3@42", "1": "5:4"}, "start": {A: {"0": "5:0@0", "1": "5:0"}}},
        {A: {"0": "5:3@42", "1": "5:4"}, "start": {A: {"0": "5:0@0"}}, "seen": {A: {"1": "5:9"}}, "subscription": "q"},
        {A: {"0": "5:3"}, "behind": {A: {"0": 0}}},
        {"start": {}, "subscription": "q"},
        {A: {"0": "5:3"}, "subscription": "q", "pattern": "public/(a|b)/.*"},
        {A: {"0": "5:3", "1": "5:9"}, "added": {A: {"1": "5:0@0"}}, "subscription": "q"},
    ]
    for document in documents:
        assert json.dumps(SourceOffset.from_json(document).to_json()) == json.dumps(document)


@pytest.mark.parametrize(
    "document", [{A: {"0": "five"}}, {A: {"x": "5:3"}}, {A: {"0": "5:3@-1"}}, {A: 3}, {"a-topic-of-kafka": {"0": 23}}]
)
def test_a_foreign_checkpoint_is_refused_with_advice(document: dict[str, object]) -> None:
    """Not with a stack trace about some integer."""
    with pytest.raises(UsageError, match=r"the checkpoint holds an offset that cannot be read: .*use a new checkpoint"):
        SourceOffset.from_json(document)
