# SPDX-License-Identifier: Apache-2.0
"""Orders from a topic in Parquet files: each once, also when Spark runs a batch again, and each batch at once.

    python examples/into_parquet.py

Spark runs a batch again when a driver ended between the write and Spark's own note of it. So a batch has a directory
named by the query's id and the batch's number. It is written under another name and moved when it is whole: readers
see all of a batch or nothing, and a batch whose directory is there is done. The id is the checkpoint's: with a new
checkpoint batches are numbered anew, under another id.

This needs a file system that renames a directory in one step: local ones, NFS and HDFS do (on HDFS by the client that
you have for it). On an object store write to the directory itself with ``mode("overwrite")``, which is as exact once
the batch is done, though readers may see a part of it before.
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

from killed_driver import killed_and_started_again, may_be_killed
from pyspark.sql import DataFrame


def into_parquet(orders: DataFrame, folder: Path) -> dict[str, int]:
    """Write all orders, and add up what the files have."""
    table = folder / "orders"

    def write(batch: DataFrame, number: int) -> None:
        query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        place = table / f"query={query_id}" / f"batch={number}"
        if place.exists():
            return
        draft = table / f"_{uuid.uuid4()}"  # Spark does not read names that begin so
        batch.write.parquet(str(draft))
        place.parent.mkdir(exist_ok=True)
        draft.rename(place)  # fails if another driver of the query was quicker
        may_be_killed(number)

    query = orders.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    sold = orders.sparkSession.read.parquet(str(table)).groupBy("product").sum("amount")
    return {row[0]: row[1] for row in sold.collect()}


if __name__ == "__main__":
    sys.exit(killed_and_started_again(into_parquet))
