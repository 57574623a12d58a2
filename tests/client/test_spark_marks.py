# SPDX-License-Identifier: Apache-2.0
"""How subscriptions of Spark's are known again."""

from __future__ import annotations

import pytest

from broker_core.client.spark_marks import SparkMark, chunk_hold_name, hold_name, mark_of


@pytest.mark.parametrize(
    "name",
    ["pulsarish-spark-0123456789ab", hold_name("work", ""), hold_name("work", "first"), chunk_hold_name("work")],
)
def test_a_name_that_the_source_makes_is_proof(name: str) -> None:
    """Brokers of old versions keep no properties."""
    assert mark_of(name, {}) == SparkMark()


@pytest.mark.parametrize("name", ["work", "pulsarish-spark", "pulsarish-spark-mine", ".spark-chunks", ".spark-hold"])
def test_a_name_that_somebody_writes_by_hand_is_none(name: str) -> None:
    """What an application made must never be tidied away as Spark's."""
    assert mark_of(name, {}) is None


def test_a_mark_says_who_made_a_subscription_and_when() -> None:
    """It comes back from its properties as it was."""
    mark = SparkMark("chunks", 1_700_000_000_000, "host", "app-1")
    assert mark_of("work", mark.properties()) == mark
