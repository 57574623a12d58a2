# SPDX-License-Identifier: Apache-2.0
"""Orders from a topic, merged into a Delta table: each counts once, also when Spark runs a batch again.

    pip install 'pyspark==4.2.0'       # the newest that Delta 4.4 has JARs for; Spark gets them from Maven Central
    python examples/into_delta.py

The table has what was sold of each product, and a MERGE adds what a batch has sold: run twice, it would add twice.
Spark runs a batch again when a driver ended between the MERGE and Spark's own note of it. So each MERGE is named
by the query's id and the batch's number, and Delta skips one that it has already committed. The id is the
checkpoint's: with a new checkpoint batches are numbered anew, and so is what Delta compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark
from killed_driver import killed_and_started_again, may_be_killed
from pyspark.sql import DataFrame

SPARK = ".".join(pyspark.__version__.split(".")[:2])
SETTINGS = {
    "spark.jars.packages": f"io.delta:delta-spark_{SPARK}_2.13:4.4.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

MERGE = """
MERGE INTO delta.`{table}` AS sold
USING (SELECT product, sum(amount) AS amount FROM batch GROUP BY product) AS batch ON sold.product = batch.product
WHEN MATCHED THEN UPDATE SET sold.amount = sold.amount + batch.amount
WHEN NOT MATCHED THEN INSERT *
"""


def into_delta(orders: DataFrame, folder: Path) -> dict[str, int]:
    """Merge all orders, and read what the table has."""
    spark, table = orders.sparkSession, folder / "sold"
    spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{table}` (product string, amount bigint) USING delta")

    def write(batch: DataFrame, number: int) -> None:
        session = batch.sparkSession
        query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query_id is not None  # Spark sets it for the thread that runs a batch
        session.conf.set("spark.databricks.delta.write.txnAppId", query_id)
        session.conf.set("spark.databricks.delta.write.txnVersion", number)
        batch.createOrReplaceTempView("batch")
        session.sql(MERGE.format(table=table))
        may_be_killed(number)

    query = orders.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    return {row.product: row.amount for row in spark.read.format("delta").load(str(table)).collect()}


if __name__ == "__main__":
    if SPARK != "4.2":
        sys.exit(f"error: Delta has no JARs for Spark {pyspark.__version__} yet: pip install 'pyspark==4.2.0'")
    sys.exit(killed_and_started_again(into_delta, **SETTINGS))
