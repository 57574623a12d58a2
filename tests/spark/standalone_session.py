# SPDX-License-Identifier: Apache-2.0
"""The session of a driver on a ``Standalone`` cluster, small enough for two workers on one machine."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

from pulsarish_spark import use_this_python


def standalone_session(master: str) -> SparkSession:
    """On executors that are other processes than the driver."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    use_this_python()
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "600m").config("spark.executor.memory", "512m")
    builder = builder.config("spark.executor.extraJavaOptions", os.environ.get("SPARK_SUBMIT_OPTS", ""))
    return builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
