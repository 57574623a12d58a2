# SPDX-License-Identifier: Apache-2.0
"""A driver that the tests kill: streams a topic of the embedded broker into Parquet files until somebody stops it.

python flaky_driver.py DATA_DIR TOPIC FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from pulsarish_spark import use_this_python


def main(data_dir: str, topic: str, folder: str) -> None:
    """Run for ever, in small batches."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    use_this_python()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.memory", "600m").getOrCreate()
    source = spark.readStream.format("pulsarish").option("data.dir", data_dir).option("maxOffsetsPerTrigger", 50)
    frame = source.option("startingOffsets", "earliest").load(topic).selectExpr("cast(value AS string) AS value")
    writer = frame.writeStream.format("parquet").option("path", str(Path(folder) / "out"))
    writer.option("checkpointLocation", str(Path(folder) / "checkpoint")).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
