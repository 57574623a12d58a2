# SPDX-License-Identifier: Apache-2.0
"""The options that say how much a batch and a task read."""

from __future__ import annotations

from typing import Final

from pulsarish_spark.options.option import Option, Side
from pulsarish_spark.options.parsing import count

_NO_TRIGGER: Final = "a batch read has no triggers; remove it"


AMOUNTS: Final = (
    Option(
        "maxOffsetsPerTrigger",
        Side.STREAM_READ,
        count,
        "500000",
        "Messages of one micro-batch at most, to within one entry, shared out by backlog; never less than one entry of "
        "each partition. A broker without message indexes is read twice for that, up to 64 MiB or 20,000 entries a "
        "trigger; beyond these only larger entries than all of those seen can make a batch larger.",
        wrong_side=_NO_TRIGGER,
    ),
    Option("minPartitions", Side.READ, count, "8", "At least about so many tasks: long ranges are split."),
    Option(
        "inputPartitions",
        Side.READ,
        count,
        "4",
        "Exactly so many tasks, if there are as many topic partitions: partition p is read by task p mod n.",
    ),
    Option(
        "maxRecordsPerPartition",
        Side.READ,
        count,
        "100000",
        "Messages of one task at most, to within one entry. Without message indexes: within the first 64 MiB or 20,000 "
        "entries that are read; behind them to within a factor of two where batches of all sizes are mixed evenly.",
    ),
)
