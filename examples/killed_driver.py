# SPDX-License-Identifier: Apache-2.0
"""The story of the examples with ``foreachBatch``: a driver is killed when a batch is written and not noted by Spark.

Orders are sent to a topic. A first driver of the query, a process of its own, is killed with all its Java at that
moment of the second batch. A second one goes on from the checkpoint, so it runs that batch again, and checks that the
table has each order once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import pulsarish_spark
from broker_core.client import Client

PRODUCTS: Final = 10
AMOUNTS: Final = range(1, 1001)
SOLD: Final = {f"product {rest}": sum(AMOUNTS[rest::PRODUCTS]) for rest in range(PRODUCTS)}
"""The amounts of all orders of each product together; an order that is missing or twice would change one."""

BATCH_ROWS: Final = 300
IN_BATCHES: Final[dict[str, Any]] = {"batching_max_messages": 100}
"""Spark's batches end where an entry ends, which is a batch of the producer."""

_KILLED_BATCH: Final = "KILLED_BATCH"

Job = Callable[[DataFrame, Path], dict[str, int]]
"""Writes a stream of orders to a table in a folder, until all are read; what was sold of each product by the table."""


def killed_and_started_again(job: Job, **settings: str) -> int:
    """Tell the story of ``job``, whose Spark has ``settings``; the exit code."""
    if len(sys.argv) > 1:
        return _drive(job, sys.argv[1], Path(sys.argv[2]), settings)
    with pulsarish_spark.local() as broker, tempfile.TemporaryDirectory() as folder:
        with Client(broker.service_url) as client, client.create_producer("orders", **IN_BATCHES) as producer:
            for number, amount in enumerate(AMOUNTS):
                producer.send_async(str(amount).encode(), key=f"product {number % PRODUCTS}")
        driver = [sys.executable, sys.argv[0], broker.service_url, folder]
        first = subprocess.run(driver, env=os.environ | {_KILLED_BATCH: "1"}, start_new_session=True, check=False)
        if first.returncode != -signal.SIGKILL:
            return first.returncode or 1
        print("the driver was killed when a batch was written and Spark had not noted it; it starts again", flush=True)
        return subprocess.run(driver, check=False).returncode


def may_be_killed(number: int) -> None:
    """Be the first driver's end, behind the write of its second batch."""
    if os.environ.get(_KILLED_BATCH) == str(number):
        os.killpg(0, signal.SIGKILL)


def _drive(job: Job, service_url: str, folder: Path, settings: dict[str, str]) -> int:
    pulsarish_spark.use_this_python()
    builder = SparkSession.builder.master("local[2]").config(map={"spark.ui.showConsoleProgress": False, **settings})
    spark = builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    stream = (
        spark.readStream.format("pulsarish").option("service.url", service_url).option("startingOffsets", "earliest")
    )
    orders = stream.option("maxOffsetsPerTrigger", BATCH_ROWS).load("orders")
    key, value = (F.col(name).cast("string") for name in ("key", "value"))
    sold = job(orders.select(key.alias("product"), value.cast("long").alias("amount")), folder)
    spark.stop()
    print("  product   sold\n" + "\n".join(f"{product}  {sold[product]:5}" for product in sorted(sold)))
    if sold != SOLD:
        print(f"CHECK FAILED: sold were {SOLD}", file=sys.stderr)
        return 1
    print("check: passed", file=sys.stderr)
    return 0
