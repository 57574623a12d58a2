# SPDX-License-Identifier: Apache-2.0
"""Orders from a topic, merged into a Delta table: each counts once, also when Spark runs a batch again.

    pip install 'pyspark==4.2.0'       # the newest that Delta 4.4 has JARs for; Spark gets them from Maven Central
    python examples/into_delta.py

The table has the stock of each product, and a MERGE subtracts what a batch has sold: run twice, it would subtract
twice. Spark runs a batch again when a query ended between the MERGE and Spark's own note of it. So each MERGE is named
by the query's id and the batch's number, and Delta skips one that it has already committed. The id is the
checkpoint's: with a new checkpoint batches are numbered anew, and so is what Delta compares.

Here the first run of the query fails just after a MERGE, and the second one begins with the same batch.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import pulsarish_spark

SPARK = ".".join(pyspark.__version__.split(".")[:2])
DELTA = f"io.delta:delta-spark_{SPARK}_2.13:4.4.0"
PRODUCTS, ORDERS, STOCK = 10, 1000, 5000

MERGE = """
MERGE INTO delta.`{table}` AS stock
USING (SELECT product, sum(amount) AS amount FROM sold GROUP BY product) AS sold ON stock.product = sold.product
WHEN MATCHED THEN UPDATE SET stock.amount = stock.amount - sold.amount
"""


class CutOffError(Exception):
    """Stands for a driver that is killed when Delta has a batch and Spark does not know of it yet."""


def new_session() -> SparkSession:
    """A session with Delta's two settings and its JARs."""
    pulsarish_spark.use_this_python()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.showConsoleProgress", False)
    builder = builder.config("spark.jars.packages", DELTA).config("spark.sql.shuffle.partitions", 2)
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    return builder.config("spark.sql.catalog.spark_catalog", catalog).getOrCreate()


def start(spark: SparkSession, address: dict[str, str], folder: Path, fails: bool) -> StreamingQuery:
    """The query over all orders in the topic, from its checkpoint in ``folder``; it ``fails`` after its first MERGE."""

    def merge(batch: DataFrame, number: int) -> None:
        session = batch.sparkSession
        query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query_id is not None  # Spark sets it for the thread that runs a batch
        session.conf.set("spark.databricks.delta.write.txnAppId", query_id)
        session.conf.set("spark.databricks.delta.write.txnVersion", number)
        batch.createOrReplaceTempView("sold")
        session.sql(MERGE.format(table=folder / "stock"))
        if fails:
            raise CutOffError

    stream = spark.readStream.format("pulsarish").options(**address, startingOffsets="earliest").load("orders")
    order = stream.select(
        F.col("key").cast("string").alias("product"), F.col("value").cast("string").cast("long").alias("amount")
    )
    query = order.writeStream.foreachBatch(merge).option("checkpointLocation", str(folder / "checkpoint"))
    return query.trigger(availableNow=True).start()


def main() -> int:
    """Sell, fail, sell on, and compare; the exit code."""
    if SPARK != "4.2":
        print(
            f"error: Delta has no JARs for Spark {pyspark.__version__} yet: pip install 'pyspark==4.2.0'",
            file=sys.stderr,
        )
        return 1
    spark = new_session()
    spark.sparkContext.setLogLevel("OFF")
    with pulsarish_spark.local() as broker, tempfile.TemporaryDirectory() as name:
        folder, address = Path(name), {"service.url": broker.service_url}
        product = f"cast(id % {PRODUCTS} as string)"
        stock = spark.range(PRODUCTS).selectExpr(f"{product} product", f"cast({STOCK} as long) amount")
        stock.write.format("delta").save(str(folder / "stock"))
        orders = spark.range(ORDERS).selectExpr(f"{product} key", "cast(id % 7 as string) value")
        orders.write.format("pulsarish").options(**address).mode("append").save("orders")

        cut_off = start(spark, address, folder, fails=True)
        try:
            cut_off.awaitTermination()
        except StreamingQueryException:
            print("the query was cut off between the MERGE and Spark's note of the batch; it starts again")
        start(spark, address, folder, fails=False).awaitTermination()

        left = spark.read.format("delta").load(str(folder / "stock")).orderBy("product").collect()
    spark.stop()
    expected = [STOCK - sum(order % 7 for order in range(each, ORDERS, PRODUCTS)) for each in range(PRODUCTS)]
    print("product  left\n" + "\n".join(f"{row.product:>7}  {row.amount:4}" for row in left))
    if [row.amount for row in left] != expected:
        print(f"CHECK FAILED: {expected} should be left", file=sys.stderr)
        return 1
    print("check: passed", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
