# SPDX-License-Identifier: Apache-2.0
"""Sets of entries as texts, and offsets of queue mode: one text for one batch, and the same batch back."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.errors import UsageError
from broker_core.client import GivenEntry
from broker_core.wire.heads import TxnId
from pulsarish_spark.places.offsets import SourceOffset
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.queue.entry_ids import entries_of_text, entries_to_text
from pulsarish_spark.queue.queue_offset import BatchLock, PartitionBatch, QueueOffset

SETS = st.one_of(
    st.sets(st.integers(0, 60), min_size=1),
    st.sets(st.integers(0, 10_000), min_size=1, max_size=200),
    st.sets(st.integers(0, 2**62), min_size=1, max_size=20),
)
GIVEN = st.builds(
    GivenEntry,
    ledger=st.integers(0, 3),
    entry=st.integers(0, 50),
    messages=st.integers(1, 10),
    redelivery_count=st.integers(0, 2),
    unacked=st.one_of(st.none(), st.integers(1, 1023)),
)

TXN_ID = st.builds(TxnId, st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
TIME_MS = st.integers(0, 2**53)


@given(SETS)
def test_a_set_is_read_back_from_its_text(numbers: set[int]) -> None:
    """Whatever the form, runs, lengths or bitmap."""
    entries = np.array(sorted(numbers), np.int64)
    assert (entries_of_text(entries_to_text(entries)) == entries).all()


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ([*range(100_000)], "0-99999"),
        ([5], "5"),
        ([*range(4, 91), 93, *range(97, 121)], "4-90,93,97-120"),
        ([0, 2, 4, 6, 8], "0bVQE"),
        ([7, 9, 100_000, 200_000, 300_000, 300_001], "7rAQEBlo0GAZ-NBgGfjQYC"),
    ],
)
def test_the_forms_of_a_text(entries: list[int], text: str) -> None:
    """Up to four runs in words, else lengths of runs and gaps, or a bitmap, whichever is shorter."""
    assert entries_to_text(np.array(entries, np.int64)) == text
    assert entries_of_text(text).tolist() == entries


def test_texts_are_short() -> None:
    """What 100,000 entries take when ten consumers share a topic by turns of twenty, and when half is random."""
    turns = np.concatenate([np.arange(at, at + 20) for at in range(0, 1_000_000, 200)])
    assert len(entries_to_text(turns)) < 25_000
    half = np.flatnonzero(np.random.default_rng(1).random(200_000) < 0.5)
    assert len(entries_to_text(half)) < 34_000


@pytest.mark.parametrize(
    "text",
    ["", "a", "3-1", "1,2", "0-99999999999", "0rAQ", "0b", "0bAA", "0b!!", "1-2,3", "-1", "0r_____________w", "5b_w==",
     "99999999999999999999"],
)  # fmt: skip
def test_what_is_no_text_of_a_set_is_refused(text: str) -> None:
    """Also another spelling of one: texts are compared."""
    with pytest.raises(ValueError, match=r"entries|cut off|run|number|entry"):
        entries_of_text(text)


@given(st.text(alphabet="0123456789-,rbA_w", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Never anything else, and what is read is written the same."""
    try:
        entries = entries_of_text(text)
    except ValueError:
        return
    assert entries_to_text(entries) == text


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.sampled_from(["persistent://a/b/c", "persistent://a/b/d"]), st.integers(0, 2)),
        st.lists(GIVEN, min_size=1, max_size=30, unique_by=lambda each: each.position),
    ),
    st.integers(1, 99),
    st.none() | st.builds(BatchLock, st.none(), st.just(0), TXN_ID) | st.builds(BatchLock, TXN_ID, TIME_MS, TXN_ID),
)
def test_an_offset_is_read_back_and_has_one_text(
    entries: dict[TopicPartition, list[GivenEntry]], number: int, lock: BatchLock | None
) -> None:
    """Whatever the order in which the broker gave."""
    offset = QueueOffset(number, 7, {key: PartitionBatch.of(found) for key, found in entries.items()}, lock)
    again = {key: PartitionBatch.of(found[::-1]) for key, found in reversed([*entries.items()])}
    text = json.dumps(offset.to_json())
    assert json.dumps(QueueOffset(number, 7, again, lock).to_json()) == text
    assert offset.text_bytes == len(text)
    read = QueueOffset.from_json(json.loads(text))
    assert read == offset
    for key, found in entries.items():
        batch = read.partitions[key]
        assert batch.positions() == sorted(each.position for each in found)
        assert batch.parts == {each.position: each.unacked for each in found if each.unacked is not None}
        counted = {(ledger, entry): count for count, ledger, them in batch.redelivered() for entry in them.tolist()}
        assert counted == {each.position: each.redelivery_count for each in found if each.redelivery_count}


def test_offsets_of_the_other_mode_are_told() -> None:
    """A checkpoint is of one mode."""
    with pytest.raises(UsageError, match="made by a query with a subscriptionType"):
        SourceOffset.from_json(QueueOffset(1).to_json())
    with pytest.raises(UsageError, match="made by a query without a subscriptionType"):
        QueueOffset.from_json({"persistent://a/b/c": {"0": "1:2@3"}})


@pytest.mark.parametrize(
    "document",
    [
        {"queue": 2, "n": 1},
        {"queue": 1},
        {"queue": 1, "n": "1"},
        {"queue": 1, "n": 1, "topics": {"persistent://a/b/c": {"0": {"1": "x"}}}},
        {"queue": 1, "n": 1, "topics": {"persistent://a/b/c": {"0": "1"}}},
        {"queue": 1, "n": 1, "lock": {"own": "1:2", "until": 3}},
        {"queue": 1, "n": 1, "lock": {"next": "1"}},
        {"queue": 1, "n": 1}
        | {"topics": {"persistent://a/b/c": {"0": {"1": "1"}}}, "part": {"persistent://a/b/c": {"0": {"1": "f"}}}},
    ],
)  # fmt: skip
def test_an_offset_that_cannot_be_read_is_told(document: dict[str, object]) -> None:
    """By the error for a checkpoint of another version."""
    with pytest.raises(UsageError, match="the checkpoint holds an offset that cannot be read"):
        QueueOffset.from_json(document)
