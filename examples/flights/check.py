# SPDX-License-Identifier: Apache-2.0
"""Compares what the job produced with what was computed straight from the source, row for row."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from flights.source import CLEAN_COLUMNS, DAY_COLUMNS, FLIGHT_KEY

DAY_KEY = ("day", "carrier")


class CheckFailedError(Exception):
    """The result is not what it must be; the text says how it differs."""


def check_clean(got: pa.Table, want: pa.Table) -> str:
    """Every flight is there once, with every column equal."""
    _compare("cleaned rows", _ordered(got, CLEAN_COLUMNS, FLIGHT_KEY), want)
    return f"{want.num_rows:,} cleaned rows equal, row for row"


def check_days(got: pa.Table, want: pa.Table) -> str:
    """Every day of every carrier is there once, with every column equal."""
    _compare("daily windows", _ordered(got, DAY_COLUMNS, DAY_KEY), want)
    return f"{want.num_rows:,} daily windows equal, the last day included"


def check_zero(what: str, counts: dict[str, int]) -> str:
    """Each of these counts is 0."""
    if any(counts.values()):
        raise CheckFailedError(f"{what} must be 0, but is {counts}")
    return f"{what} 0 ({', '.join(sorted(counts))})"


def one_row_a_day(days: pa.Table) -> tuple[pa.Table, int]:
    """The daily windows without repeats, and how many repeats there were.

    On brokers without transactions a micro-batch that was cut off is written again, with the same rows. Rows of one day
    and carrier that disagree are no repeats but an error, and are left in, so that the comparison finds them.
    """
    distinct = days.group_by(list(DAY_COLUMNS)).aggregate([])
    return distinct, days.num_rows - distinct.num_rows


def _ordered(table: pa.Table, columns: tuple[str, ...], key: tuple[str, ...]) -> pa.Table:
    return table.select(columns).sort_by([(name, "ascending") for name in key])


def _compare(what: str, got: pa.Table, want: pa.Table) -> None:
    if got.cast(want.schema).equals(want):
        return
    got_rows, want_rows = _counted(got), _counted(want)
    missing, unexpected = want_rows - got_rows, got_rows - want_rows
    lack, excess = f"{missing.total():,} missing{_example(missing)}", f"{unexpected.total():,} unexpected"
    raise CheckFailedError(f"{what}: {lack}, {excess}{_example(unexpected)}")


def _counted(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _example(rows: Counter[tuple[object, ...]]) -> str:
    return f" (such as {next(iter(rows))})" if rows else ""
