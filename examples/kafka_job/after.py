# SPDX-License-Identifier: Apache-2.0
"""The job of ``before.py`` on Pulsar: orders come from a topic, sums by country go to another one."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery


def session() -> SparkSession:
    """A session. Spark finds the format by itself, there is no JAR to fetch."""
    builder = SparkSession.builder.appName("sums").config("spark.sql.shuffle.partitions", 2)
    return builder.getOrCreate()


def orders(spark: SparkSession, servers: str) -> DataFrame:
    """The stream of orders of shops, test orders left out."""
    stream = (
        spark.readStream.format("pulsarish")
        .option("service.url", servers)
        .option("subscribe", "orders,orders-test")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 10_000)
        .option("failOnDataLoss", True)
        .option("includeHeaders", True)
        .option("topicNames", "as-given")
        .option("kafka.group.id", "sums")
        .load()
    )
    shop = F.decode(F.col("headers")[0]["value"], "UTF-8").alias("shop")
    order = F.from_json(F.col("value").cast("string"), "country string, amount double").alias("order")
    return stream.where("topic = 'orders'").select("timestamp", shop, order).select("timestamp", "shop", "order.*")


def sums(spark: SparkSession, servers: str, checkpoint: str) -> StreamingQuery:
    """The sum of each country, whenever it changes, to the topic ``sums``."""
    totals = (
        orders(spark, servers).groupBy("country").agg(F.sum("amount").alias("amount"), F.count("*").alias("orders"))
    )
    messages = totals.select(F.col("country").alias("key"), F.to_json(F.struct("*")).alias("value"))
    writer = messages.writeStream.outputMode("update").option("checkpointLocation", checkpoint)

    def send_changes(changed: DataFrame, _: int) -> None:
        changed.write.format("pulsarish").option("service.url", servers).option("topic", "sums").mode("append").save()

    return writer.foreachBatch(send_changes).trigger(availableNow=True).start()


def send(rows: DataFrame, servers: str) -> None:
    """Orders from elsewhere into their topic."""
    rows.write.format("pulsarish").option("service.url", servers).option("topic", "orders").mode("append").save()
