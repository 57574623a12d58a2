# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
"""
# Any Pulsar cluster, with TLS and a token

Rows go from Spark to a topic of a cluster and come back. Nothing is started but Spark. Where the cluster is, and who
asks, comes from four variables of the environment:

    export PULSAR_URL=pulsar+ssl://host:6651 PULSAR_CA=ca.pem PULSAR_TOKEN_FILE=token PULSAR_TOPIC=demo
    python examples/secure_cluster.py

The token stays in its file, which each task reads: it is in no plan, and when it is renewed there, what runs goes on.
The role of the token needs the rights to produce and to consume.
"""

# %%
import os
import uuid

from pyspark.sql import SparkSession

import pulsarish_spark

VARIABLES = ("PULSAR_URL", "PULSAR_CA", "PULSAR_TOKEN_FILE", "PULSAR_TOPIC")
if missing := [name for name in VARIABLES if not os.environ.get(name)]:
    raise SystemExit(f"not set in the environment: {', '.join(missing)}; the first lines of this example say what for")

pulsarish_spark.use_this_python()
builder = SparkSession.builder.master("local[2]").config("spark.ui.showConsoleProgress", False)
spark = builder.config("spark.sql.shuffle.partitions", 2).config("spark.sql.session.timeZone", "UTC").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

# %% [markdown]
# Three options say all that is special about a secured cluster. `tlsTrustCertsFilePath` is the CA of the cluster's
# certificates; leave it out where the system trusts them anyway.

# %%
cluster = {
    "service.url": os.environ["PULSAR_URL"],
    "tlsTrustCertsFilePath": os.environ["PULSAR_CA"],
    "tokenFile": os.environ["PULSAR_TOKEN_FILE"],
}
topic = os.environ["PULSAR_TOPIC"]

# %% [markdown]
# ## Write and read
#
# Each run marks its rows with a key of its own, so the topic may hold others.

# %%
ROWS = 1000
mark = uuid.uuid4().hex
rows = spark.range(ROWS).selectExpr(f"'{mark}' key", "cast(id as string) value")
rows.write.format("pulsarish").options(**cluster).mode("append").save(topic)

found = spark.read.format("pulsarish").options(**cluster).load(topic).where(f"cast(key as string) = '{mark}'")
found.selectExpr("cast(cast(value as string) as int) number").summary("count", "mean", "min", "max").show()

# %% [markdown]
# ## Check

# %%
came = found.select("value").distinct().count()
assert came == ROWS, f"{came} of {ROWS} rows came back"
print(f"check: passed, {came} of {ROWS} rows came back")
