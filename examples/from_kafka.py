# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
"""
# A Kafka job moves over

`kafka_job/before.py` is a Structured Streaming job as many have it: orders come from Kafka, sums by country go back
there. `lint` reads it and names the format and each option that has to change, so that it runs on Pulsar.
"""

# %%
import difflib
import tempfile
from pathlib import Path

from kafka_job import after
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import pulsarish_spark

BEFORE = Path(after.__file__).with_name("before.py")
AFTER = Path(after.__file__)

# %% [markdown]
# ## What has to change
#
# The same on the command line: `python -m pulsarish_spark lint kafka_job/before.py`. Nothing is run for that.

# %%
findings = pulsarish_spark.lint(BEFORE)
for finding in findings:
    print(f"line {finding.place.rpartition(':')[2]}: {finding.text}")

# %% [markdown]
# ## Side by side
#
# The lines that differ: these, the package that is not needed, and three things that Spark and Pulsar want otherwise.
# A topic has a full name unless `topicNames` says otherwise, Python sources are written with `mode("append")`, and a
# result that changes is written from `foreachBatch`. All other options keep their names, and so do the columns: `key`,
# `value`, `topic`, `timestamp` and `headers`.

# %%
old, new = BEFORE.read_text(encoding="utf-8").splitlines(), AFTER.read_text(encoding="utf-8").splitlines()
print(*difflib.unified_diff(old, new, "before.py", "after.py", n=0, lineterm=""), sep="\n")

# %% [markdown]
# ## The job runs
#
# On a broker for this program alone. Orders of two shops go in, with the shop as a header; one more goes to another
# topic, which the job reads and leaves out.

# %%
pulsarish_spark.use_this_python()
builder = SparkSession.builder.master("local[2]").config("spark.ui.showConsoleProgress", False)
spark = builder.config("spark.sql.shuffle.partitions", 2).config("spark.sql.session.timeZone", "UTC").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
url = pulsarish_spark.notebook_broker().service_url

ORDERS = [("north", "NO", 40.0), ("south", "PE", 25.0), ("north", "NO", 60.0), ("south", "NO", 5.0)]
given = spark.createDataFrame(ORDERS, "shop string, country string, amount double").coalesce(1)
rows = given.select(
    F.col("country").alias("key"),
    F.to_json(F.struct("country", "amount")).alias("value"),
    F.array(F.struct(F.lit("shop").alias("key"), F.encode("shop", "UTF-8").alias("value"))).alias("headers"),
)
after.send(rows, url)
rows.limit(1).write.format("pulsarish").option("service.url", url).mode("append").save("orders-test")

with tempfile.TemporaryDirectory() as checkpoint:
    after.sums(spark, url, checkpoint).awaitTermination()

# %% [markdown]
# The orders as the job sees them, and the sums that it has sent:

# %%
topic = spark.read.format("pulsarish").option("service.url", url)
headers = topic.option("columns", "topic,key,value,headers").option("topicNames", "short").load("orders")
headers.selectExpr("topic", "cast(key as string)", "cast(value as string)", "headers[0].key header").show(
    truncate=False
)

sums = spark.read.format("pulsarish").option("service.url", url).load("sums")
result = sums.select(
    F.from_json(F.col("value").cast("string"), "country string, amount double, orders int").alias("sum")
)
totals = result.select("sum.*").orderBy("country")
totals.show()

# %% [markdown]
# ## Check
#
# The sums are right, and `lint` finds nothing in the new job.

# %%
assert [tuple(row) for row in totals.collect()] == [("NO", 105.0, 3), ("PE", 25.0, 1)]
assert pulsarish_spark.lint(AFTER) == []
print("check: passed,", len(findings), "findings before, none after")
