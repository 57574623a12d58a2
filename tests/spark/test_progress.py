# SPDX-License-Identifier: Apache-2.0
"""Lag out of Spark's progress reports."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.progress import PartitionLag, lag

T = "persistent://public/default/t"


def progress(end: Any, latest: Any) -> dict[str, Any]:
    return {"name": "q", "sources": [{"endOffset": end, "latestOffset": latest}]}


def test_lag_is_counted_in_messages_and_entries() -> None:
    """By index where the broker tells, and by entries, which the source has counted where another ledger begins."""
    end = {T: {"0": "5:3@100", "1": "5:3", "2": "5:3", "3": "5:3@7"}}
    latest = {
        T: {"0": "6:3@150", "1": "5:9", "2": "6:0", "3": "5:3@7", "4": "5:0@0"},
        "behind": {T: {"2": 4}},
    }
    expected = {
        TopicPartition(T, 0): PartitionLag(50, -1),
        TopicPartition(T, 1): PartitionLag(-1, 6),
        TopicPartition(T, 2): PartitionLag(-1, 4),
        TopicPartition(T, 3): PartitionLag(0, 0),
    }
    assert lag(progress(end, latest)) == expected
    assert lag(json.dumps(progress(json.dumps(end), json.dumps(latest)))) == expected


def test_lag_needs_no_import_of_its_own() -> None:
    """``pulsarish_spark.progress.lag`` as the README has it."""
    program = "import pulsarish_spark; print(pulsarish_spark.progress.lag(None))"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout == "{}\n"


def test_a_query_without_a_report_yet_has_no_lag() -> None:
    """Spark's lastProgress is None until the first batch is done."""
    assert lag(None) == {}


def test_other_sources_and_unknown_ends_are_left_out() -> None:
    """A join with another stream has that stream's offsets in the same report."""
    assert lag(progress({"logOffset": 3}, {"logOffset": 5})) == {}
    assert lag(progress({T: {"0": "5:3"}}, None)) == {}
    assert lag(progress("3", "5")) == {}
