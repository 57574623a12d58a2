# SPDX-License-Identifier: Apache-2.0
"""The printed result: one line a carrier, out of the daily windows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def carrier_table(days: pa.Table) -> str:
    """Flights, days and the worst day of every airline, busiest first."""
    totals = days.group_by("airline").aggregate([("flights", "sum"), ("day", "count"), ("mean_delay", "max")])
    lines = [f"{'airline':28} {'flights':>9} {'days':>5}  {'worst day':>10} {'mean delay, min':>16}"]
    for row in totals.sort_by([("flights_sum", "descending")]).to_pylist():
        worst = days.filter((pc.field("airline") == row["airline"]) & (pc.field("mean_delay") == row["mean_delay_max"]))
        day = worst["day"][0].as_py()
        lines.append(
            f"{row['airline']:28} {row['flights_sum']:9,} {row['day_count']:5}  {day} {row['mean_delay_max']:16.1f}"
        )
    return "\n".join(lines)
