# SPDX-License-Identifier: Apache-2.0
"""The definitions of a Declarative Pipeline: from topic ``orders`` into a table, and from that into topic ``copies``.

``spark-pipelines`` imports this; PULSARISH_URL says where the broker is.
"""

from __future__ import annotations

import os

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession

BROKER = {"service.url": os.environ["PULSARISH_URL"]}


@pipelines.table
def orders() -> DataFrame:
    """A streaming table: each update reads what came since the one before."""
    spark = SparkSession.active()
    options = BROKER | {"topic": "orders", "startingOffsets": "earliest", "subscriptionName": "pipeline"}
    return spark.readStream.format("pulsarish").options(**options).load().selectExpr("string(value) text")


pipelines.create_sink("copies", "pulsarish", BROKER | {"topic": "copies"})


@pipelines.append_flow(target="copies")
def copy() -> DataFrame:
    """From the table into the topic."""
    return SparkSession.active().readStream.table("orders").selectExpr("cast(upper(text) as binary) value")
