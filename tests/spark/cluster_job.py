# SPDX-License-Identifier: Apache-2.0
"""A job on a standalone cluster: writes a topic, reads it back in batch and as a stream, prints what it found as JSON.

python cluster_job.py MASTER OPTIONS TOPIC CHECKPOINT; OPTIONS, by which the broker is reached, are JSON
"""

from __future__ import annotations

import json
import sys

from tests.spark.standalone_session import standalone_session


def main(master: str, reached_by: str, topic: str, checkpoint: str) -> None:
    """Everything once, on executors that are other processes than the driver."""
    spark = standalone_session(master)
    broker = json.loads(reached_by)
    options = broker | {"topic": topic}
    rows = spark.range(0, 1000, 1, 4).selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")
    rows.write.format("pulsarish").options(**options).mode("append").save()
    batch = spark.read.format("pulsarish").options(**options, minPartitions="4").load()
    stream = spark.readStream.format("pulsarish").options(**options, startingOffsets="earliest").load()
    copy = stream.select("key", "value").writeStream.format("pulsarish").options(**broker)
    copy = copy.option("topic", f"{topic}-copy").option("checkpointLocation", checkpoint)
    copy.trigger(availableNow=True).start().awaitTermination()
    copied = spark.read.format("pulsarish").options(**broker).load(f"{topic}-copy")
    found = {
        "batch": sorted(int(row.value) for row in batch.collect()),
        "copied": sorted(int(row.value) for row in copied.collect()),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
