# SPDX-License-Identifier: Apache-2.0
"""Parts of the flights example beside its Spark job: source data, check, table and chart."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from flights import check, source
from flights.table import carrier_table

from broker_core.base.hashing import partition_of_key

FLIGHTS = 336_776
PARTITIONS = 4
WATERMARK_DAYS = 10
"""As in ``flights.pipeline``, which cannot be imported without Spark."""


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    """All flights."""
    return source.load_flights()


@pytest.fixture(scope="module")
def airlines() -> pa.Table:
    """All airlines."""
    return source.load_airlines()


def test_all_flights_are_there_and_ordered_by_scheduled_departure(flights: pa.Table) -> None:
    """The file itself is ordered by month as text."""
    scheduled = flights["scheduled"].cast(pa.int64()).to_numpy()
    assert flights.num_rows == FLIGHTS
    assert (scheduled[1:] >= scheduled[:-1]).all()


def test_the_flight_key_is_unique(flights: pa.Table) -> None:
    """So that comparing sorted rows compares each flight with itself."""
    assert flights.group_by(list(source.FLIGHT_KEY)).aggregate([]).num_rows == FLIGHTS


def test_the_watermark_allows_more_than_partitions_run_apart(flights: pa.Table) -> None:
    """Each micro-batch takes the same share of each partition; their event times then differ by less than five days."""
    partition_of = {carrier: partition_of_key(carrier, PARTITIONS) for carrier in set(flights["carrier"].to_pylist())}
    partitions = pa.array([partition_of[carrier] for carrier in flights["carrier"].to_pylist()])
    times = [
        flights.filter(pc.equal(partitions, p))["scheduled"].cast(pa.int64()).to_numpy() for p in range(PARTITIONS)
    ]
    for share in (0.1, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9):
        reached = [part[int(len(part) * share)] for part in times]
        assert (max(reached) - min(reached)) / 86_400e6 < WATERMARK_DAYS / 2


def test_expected_days_add_up_to_all_flights(flights: pa.Table, airlines: pa.Table) -> None:
    """Every flight is in one day, every day of every carrier there once."""
    days = source.expected_days(flights, airlines)
    assert pc.sum(days["flights"]).as_py() == FLIGHTS
    assert days.group_by(["day", "carrier"]).aggregate([]).num_rows == days.num_rows


def test_cleaned_rows_have_the_airline_and_say_what_was_cancelled(flights: pa.Table, airlines: pa.Table) -> None:
    """8,255 flights have no departure time."""
    clean = source.expected_clean(flights, airlines)
    assert clean["airline"].null_count == 0
    assert pc.sum(clean["cancelled"]).as_py() == 8_255


def test_the_check_accepts_any_order_and_finds_each_difference(flights: pa.Table, airlines: pa.Table) -> None:
    """A missing row, a repeated row and a changed value."""
    want = source.expected_days(flights, airlines).slice(0, 500)
    assert "500" in check.check_days(want.take(pa.array(range(499, -1, -1))), want)
    with pytest.raises(check.CheckFailedError, match=r"1 missing .* 0 unexpected"):
        check.check_days(want.slice(1), want)
    with pytest.raises(check.CheckFailedError, match="0 missing, 1 unexpected"):
        check.check_days(pa.concat_tables([want, want.slice(0, 1)]), want)
    changed = want.set_column(3, "flights", pc.add(want["flights"], pa.array([1] + [0] * 499)))
    with pytest.raises(check.CheckFailedError, match=r"1 missing .* 1 unexpected"):
        check.check_days(changed, want)


def test_repeats_are_dropped_but_contradictions_are_not(flights: pa.Table, airlines: pa.Table) -> None:
    """The same row twice is a repeat of delivery; the same day with another figure is an error that must show."""
    days = source.expected_days(flights, airlines).slice(0, 10)
    other = days.slice(0, 1).set_column(3, "flights", pa.array([-1], pa.int64()))
    distinct, repeats = check.one_row_a_day(pa.concat_tables([days, days.slice(2, 3), other]))
    assert (distinct.num_rows, repeats) == (11, 3)


def test_a_count_that_must_be_zero_is_named_when_it_is_not() -> None:
    """For instance the backlog of a subscription."""
    assert check.check_zero("backlog", {"b": 0, "a": 0}) == "backlog 0 (a, b)"
    with pytest.raises(check.CheckFailedError, match=r"backlog must be 0, but is .*'b': 3"):
        check.check_zero("backlog", {"a": 0, "b": 3})


def test_table_and_chart_are_made_of_the_days(flights: pa.Table, airlines: pa.Table, tmp_path: Path) -> None:
    """One line for each of 16 airlines, and a picture."""
    from flights import chart  # matplotlib takes a second, which each process that collects tests would spend

    days = source.expected_days(flights, airlines)
    lines = carrier_table(days).splitlines()
    assert len(lines) == 17
    assert lines[1].startswith("United Air Lines Inc.")
    chart.draw(days, tmp_path / "daily.png")
    assert (tmp_path / "daily.png").read_bytes().startswith(b"\x89PNG")
