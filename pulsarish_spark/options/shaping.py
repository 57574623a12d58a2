# SPDX-License-Identifier: Apache-2.0
"""The options that say which columns there are."""

from __future__ import annotations

from typing import Final

from pulsarish_spark.options.option import Option, Side
from pulsarish_spark.options.parsing import flag
from pulsarish_spark.rows.schema import ALL_COLUMNS


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in ALL_COLUMNS:
            raise ValueError(f"there is no column {name}; there are {', '.join(ALL_COLUMNS)}")
    if not names or len(set(names)) != len(names):
        raise ValueError("it takes at least one column, and each once")
    return names


SHAPING: Final = (
    Option(
        "includeHeaders",
        Side.ANY,
        flag,
        "true",
        "Source: add the column headers. Sink: as in Kafka's; changes nothing.",
    ),
    Option("columns", Side.READ, _columns, "key,value,timestamp", "Read only these columns, in this order."),
)
