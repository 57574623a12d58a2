# SPDX-License-Identifier: Apache-2.0
"""One picture of the result: the mean departure delay of every carrier on every day of the year."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure

DELAY_SHOWN_MAX_MINUTES: Final = 90
"""Worse days look the same as this: a few very bad ones would wash out all the others."""


def draw(days: pa.Table, path: Path) -> None:
    """Save the picture."""
    figure(days).savefig(path, dpi=100)


def figure(days: pa.Table) -> Figure:
    """A heat map of ``mean_delay``: a row a carrier, busiest on top, a column a day."""
    carriers, names = _busiest_first(days)
    first_day = pc.min(days["day"]).cast(pa.int32()).as_py()
    grid = np.full((len(carriers), days["day"].cast(pa.int32()).to_numpy().max() - first_day + 1), np.nan)
    rows = np.array([carriers[carrier] for carrier in days["carrier"].to_pylist()])
    grid[rows, days["day"].cast(pa.int32()).to_numpy() - first_day] = days["mean_delay"].to_numpy()

    picture = Figure(figsize=(14, 5), layout="constrained")
    axes = picture.subplots()
    axes.set_facecolor("#e8e8e8")
    dates = np.datetime64(first_day, "D") + np.array([0, grid.shape[1]])
    image = axes.imshow(
        grid,
        aspect="auto",
        interpolation="nearest",
        cmap="RdYlBu_r",
        vmin=-DELAY_SHOWN_MAX_MINUTES / 3,
        vmax=DELAY_SHOWN_MAX_MINUTES,
        extent=(0, grid.shape[1], len(names), 0),
    )
    months = np.arange(dates[0].astype("datetime64[M]"), dates[1].astype("datetime64[M]") + 1)
    axes.set_xticks(
        [(month.astype("datetime64[D]") - dates[0]).astype(int) for month in months[:-1]],
        [month.item().strftime("%b %Y") for month in months[:-1]],
        ha="left",
    )
    axes.set_yticks(np.arange(len(names)) + 0.5, names)
    axes.set_title("Departures from New York City: mean delay of each carrier on each day (grey: no departure)")
    picture.colorbar(image, ax=axes, label="minutes", extend="max", pad=0.01)
    return picture


def _busiest_first(days: pa.Table) -> tuple[dict[str, int], list[str]]:
    """The row of each carrier, and the airline names in row order."""
    totals = days.group_by(["carrier", "airline"]).aggregate([("flights", "sum")])
    ordered = totals.sort_by([("flights_sum", "descending")])
    rows = {carrier: row for row, carrier in enumerate(ordered["carrier"].to_pylist())}
    return rows, ordered["airline"].to_pylist()
