# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
"""
# Orders whose schema changes while a query runs

A shop sends orders with a schema, and a Spark query has them as columns. Then the shop wants one more field. Whether
anybody would be broken by it is known before it is sent; the query goes on, is told what has changed, and has the new
column when it is started again. One order cannot be read at all: it becomes a dead letter, with the reason.
"""

# %%
import json
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import pulsarish_spark
from broker_core.client import Client
from broker_core.schemas.info import SchemaInfo, SchemaType
from pulsarish_spark import progress

pulsarish_spark.use_this_python()
builder = SparkSession.builder.master("local[2]").config("spark.ui.showConsoleProgress", False)
spark = builder.config("spark.sql.shuffle.partitions", 2).config("spark.sql.session.timeZone", "UTC").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

broker = pulsarish_spark.notebook_broker()
where: Any = {"service.url": broker.service_url}
client = Client(broker.service_url)
topic = f"orders-{uuid.uuid4().hex[:8]}"

# %% [markdown]
# ## The first schema
#
# An order's schema is an Avro definition, and payloads are JSON. A producer brings it along, the broker keeps it as
# version 0 and refuses later ones that do not fit. `bad-orders` gets a subscription before there is anything in it:
# without one nobody keeps dead letters.


# %%
def definition(*fields: dict[str, Any]) -> dict[str, Any]:
    """An order: its number, its city, and `fields` besides."""
    known = [{"name": "id", "type": "long"}, {"name": "city", "type": ["null", "string"], "default": None}]
    return {"type": "record", "name": "Order", "fields": [*known, *fields]}


def send(schema: dict[str, Any], *orders: bytes | dict[str, Any]) -> None:
    """Send orders by a producer with this schema; bytes are sent as they are."""
    info = SchemaInfo(SchemaType.JSON, json.dumps(schema).encode())
    with client.create_producer(topic, schema=info) as producer:
        for order in orders:
            producer.send(order if isinstance(order, bytes) else json.dumps(order).encode())


letters = client.subscribe(f"{topic}-bad", "support")
FIRST = definition()
send(FIRST, {"id": 1, "city": "Ghent"}, {"id": 2, "city": None})

# %% [markdown]
# ## The query
#
# `valueFormat=schema` makes columns of the topic's newest schema. It writes Parquet, with a checkpoint.

# %%
folder = Path(tempfile.mkdtemp())


def started() -> StreamingQuery:
    """The query, new or again: its DataFrame is made anew, and so are its columns."""
    reader = spark.readStream.format("pulsarish").options(**where)
    reader = reader.option("valueFormat", "schema").option("flattenValue", True).option("columns", "value")
    reader = reader.option("onBadRecord", "dead-letter").option("deadLetterTopic", f"{topic}-bad")
    rows = reader.option("startingOffsets", "earliest").load(topic)
    print("columns:", ", ".join(rows.columns))
    return (
        rows.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
        .start(str(folder / "orders"))
    )  # fmt: skip


query = started()
query.processAllAvailable()

# %% [markdown]
# ## Would the change break anybody?
#
# `pulsarish schema check` says so of each field, before anybody sends with it: whether consumers with the new schema
# read older orders, and consumers with the older schema read new ones. The first attempt has no default.


# %%
def check(schema: dict[str, Any]) -> int:
    """Ask the command line, which reads the new schema from stdin; its exit code."""
    command = [sys.executable, "-m", "broker_core", "schema", "check", topic, "-", "-o", "json"]
    command += ["--url", broker.service_url, "--http-url", broker.http_url]
    done = subprocess.run(command, input=json.dumps(schema), capture_output=True, text=True, check=False)
    verdict = json.loads(done.stdout)
    for field in verdict["versions"][0]["fields"]:
        print(f"{field['field']}: {field['old']} -> {field['new']}")
        print(f"  new schema reads older orders: {field['newReadsOld']}")
        print(f"  older schema reads new orders: {field['oldReadsNew']}")
    print(verdict["reason"] or f"compatible by {verdict['schemaCompatibilityStrategy']}")
    return done.returncode


refused = check(definition({"name": "coupon", "type": ["null", "string"]}))

# %%
SECOND = definition({"name": "coupon", "type": ["null", "string"], "default": None})
taken = check(SECOND)

# %% [markdown]
# ## The change, while the query runs
#
# Orders of both versions come. The columns of a running query stay as they are, so `coupon` is left out of its rows.
# One order has a text for a number, which nothing can make an id of.

# %%
send(SECOND, {"id": 3, "city": "Oslo", "coupon": "SPRING"}, b'{"id": "three and a half"}', {"id": 4})
send(FIRST, {"id": 5, "city": "Lyon"})
query.processAllAvailable()

# %% [markdown]
# The query tells of the newer version in its progress reports, and once in its log.

# %%
changes: list[Any] = []
for _ in range(120):
    changes = progress.schema_changes(query.lastProgress)
    if changes or query.awaitTermination(1):
        break
for change in changes:
    print(f"version {change.version}: added {change.added}, removed {change.removed}, changed {change.changed}")
    print("rows of it that the query cannot read:", change.objections or "none")

# %% [markdown]
# ## The dead letter
#
# A letter has the bytes as they were sent, and says why they are here.

# %%
letter = letters.receive(60)
print(letter.value)
for name in ("BAD_RECORD_REASON", "ORIGIN_SCHEMA_VERSION"):
    print(f"{name}: {letter.properties[name]}")

# %% [markdown]
# ## Started again
#
# From the same checkpoint, but with a DataFrame that is made anew, and so with the new column. What was written
# without it is null there.

# %%
query.stop()
query = started()
send(SECOND, {"id": 6, "city": "Rome", "coupon": "WINTER"})
query.processAllAvailable()
query.stop()
written = spark.read.option("mergeSchema", True).parquet(str(folder / "orders")).orderBy("id")
written.show()

# %% [markdown]
# ## Check
#
# Each order is written once, but for the one that is a dead letter.

# %%
client.close()
found = [(row.id, row.city, row.coupon) for row in written.collect()]
assert (refused, taken) == (10, 0), (refused, taken)
assert [(each.version, each.added, each.objections) for each in changes] == [(1, ("coupon",), ())], changes
assert letter.value == b'{"id": "three and a half"}', letter
assert found == [
    (1, "Ghent", None),
    (2, None, None),
    (3, "Oslo", None),
    (4, None, None),
    (5, "Lyon", None),
    (6, "Rome", "WINTER"),
], found
print("check: passed, every order is in exactly one place")
