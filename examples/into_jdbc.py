# SPDX-License-Identifier: Apache-2.0
"""Orders from a topic in a database, by JDBC: each once, also when Spark runs a batch again.

    python examples/into_jdbc.py

Spark runs a batch again when a driver ended between the write and Spark's own note of it; and Spark's JDBC writer has
a transaction for each task, so a batch may also be there in part. So the tasks write to a table of the batch's own, and
one transaction of the driver moves the rows and notes that this batch of this query is done. Its primary key decides
between two drivers. The query's id is the checkpoint's: with a new checkpoint batches are numbered anew, under
another id.

The database is Derby, which comes with Spark. For another one change the URL, add its driver by ``spark.jars.packages``
and the user and password to the properties. What a killed driver leaves is a table ``staged_...`` without use.
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any

from killed_driver import killed_and_started_again, may_be_killed
from pyspark.sql import DataFrame

TABLES = (
    "CREATE TABLE orders (product VARCHAR(40), amount BIGINT)",
    "CREATE TABLE done (query_id VARCHAR(36), batch BIGINT, PRIMARY KEY (query_id, batch))",
)
COLUMNS = "product VARCHAR(40), amount BIGINT"


def connected(orders: DataFrame, url: str) -> Any:
    """A connection by the JDBC driver that Spark has."""
    java: Any = orders.sparkSession.sparkContext._jvm
    return java.java.sql.DriverManager.getConnection(url)


def into_jdbc(orders: DataFrame, folder: Path) -> dict[str, int]:
    """Write all orders, and add up what the database has."""
    url = f"jdbc:derby:{folder / 'shop'}"
    if not (folder / "shop").exists():
        connection = connected(orders, f"{url};create=true")
        for table in TABLES:
            connection.createStatement().execute(table)
        connection.close()

    def write(batch: DataFrame, number: int) -> None:
        query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        this = f"query_id = '{query_id}' AND batch = {number}"
        connection = connected(batch, url)
        connection.setAutoCommit(False)
        statement = connection.createStatement()
        try:
            if statement.executeQuery(f"SELECT batch FROM done WHERE {this}").next():
                return
            staged = f"staged_{uuid.uuid4().hex}"
            batch.write.option("createTableColumnTypes", COLUMNS).jdbc(url, staged)
            statement.execute(f"INSERT INTO done VALUES ('{query_id}', {number})")
            statement.execute(f"INSERT INTO orders SELECT * FROM {staged}")
            statement.execute(f"DROP TABLE {staged}")
            connection.commit()
        finally:
            connection.rollback()  # nothing, once it is committed
            connection.close()
        may_be_killed(number)

    query = orders.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    sold = orders.sparkSession.read.jdbc(url, "orders").groupBy("PRODUCT").sum("AMOUNT")
    return {row[0]: row[1] for row in sold.collect()}


if __name__ == "__main__":
    sys.exit(killed_and_started_again(into_jdbc))
