# SPDX-License-Identifier: Apache-2.0
"""Keeps the classes that Spark loads in the form in which Java shares them: a Spark starts in a third of the time.

Set-up does this once for each environment, and the tests, which start a dozen Sparks, use it. Java ignores an archive
that does not fit its version or its class path, so it can only make things quicker. Source: Java's guide to class data
sharing, "dynamic archives".

    python -m scripts.archive_spark_classes
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.apache_pulsar.start import SHORT_LIVED

ARCHIVE: Final = Path(sys.prefix) / ".spark-classes.jsa"
"""Beside the packages that it was made from: a new environment makes a new one."""

_END_S: Final = 600.0
"""Writing the archive takes seconds; a machine that is busy enough has needed minutes."""


def spark_options() -> str:
    """``SPARK_SUBMIT_OPTS`` for a Spark of minutes. Java would warn of an archive that does not fit: no news here.

    Spark cuts the text at spaces that are not in quotes, and a folder may have one in its name.
    """
    shared = [f'"-XX:SharedArchiveFile={ARCHIVE}"', "-Xlog:disable"] if ARCHIVE.exists() else []
    return " ".join([*SHORT_LIVED, *shared])


def main() -> None:
    """Run a small job, and have its Java leave the archive when it ends."""
    draft = ARCHIVE.with_name(f"{ARCHIVE.name}.{os.getpid()}")
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join([*SHORT_LIVED, f'"-XX:ArchiveClassesAtExit={draft}"', "-Xlog:disable"])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    try:
        _run_a_job()
        draft.replace(ARCHIVE)
    finally:
        draft.unlink(missing_ok=True)


def _run_a_job() -> None:
    """Write, read and stream, so that the classes of all of it are loaded; return when Java has ended."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    import pulsarish_spark

    pulsarish_spark.use_this_python()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    with pulsarish_spark.local() as broker, tempfile.TemporaryDirectory() as checkpoint:
        address = {"service.url": broker.service_url}
        rows = spark.range(100).selectExpr("cast(id % 10 AS string) key", "cast(id AS string) value")
        rows.write.format("pulsarish").options(**address).mode("append").save("classes")
        stream = spark.readStream.format("pulsarish").options(**address, startingOffsets="earliest").load("classes")
        counts = stream.groupBy("key").count().writeStream.format("memory").queryName("counts").outputMode("complete")
        counts.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
        spark.sql("SELECT * FROM counts ORDER BY key").collect()
    gateway: Any = SparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # by which its Java learns that nobody will ask it for anything any more
    gateway.proc.wait(_END_S)


if __name__ == "__main__":
    main()
