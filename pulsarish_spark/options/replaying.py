# SPDX-License-Identifier: Apache-2.0
"""The option that reads an exported batch instead of a topic."""

from __future__ import annotations

from typing import Final

from pulsarish_spark.options.option import Option, Side
from pulsarish_spark.options.parsing import mounted_path

REPLAY_FILE: Final = "replayFile"

REPLAYING: Final = (
    Option(
        REPLAY_FILE,
        Side.BATCH_READ,
        mounted_path,
        "/data/batch-41.parquet",
        "Read the batch of a stream that was exported to this file, without any broker; no other option goes with it "
        "([losses.md](losses.md#exporting-a-batch)).",
        wrong_side="a file has one batch; read it with spark.read",
    ),
)
