# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
"""
# Sessions of visitors, and clicks that come late

A session is all that a visitor does without a pause of ten minutes. Clicks do not come in the order in which they
were made: a phone in a tunnel sends them later. So a streaming query must wait, and it must not wait for ever. Its
*watermark* says for how long: here 15 minutes behind the newest click. What comes later than that is dropped, and
counted.
"""

# %%
import uuid
from datetime import UTC, datetime, timedelta

from matplotlib.figure import Figure
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from showing import show

import pulsarish_spark
from broker_core.client import Client

pulsarish_spark.use_this_python()
builder = SparkSession.builder.master("local[2]").config("spark.ui.showConsoleProgress", False)
spark = builder.config("spark.sql.shuffle.partitions", 2).config("spark.sql.session.timeZone", "UTC").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

where = {"service.url": pulsarish_spark.notebook_broker().service_url}
topic = f"clicks-{uuid.uuid4().hex[:8]}"

# %% [markdown]
# ## The query
#
# The event time of a message is the time of the click, its key the visitor. In append mode a session comes out once,
# when it can no longer change: when the watermark has passed its end.

# %%
PAUSE_MINUTES, PATIENCE_MINUTES = 10, 15

reader = spark.readStream.format("pulsarish").options(**where).option("columns", "key,event_time")
clicks = reader.option("startingOffsets", "earliest").load(topic)
sessions = (
    clicks.select(F.col("key").cast("string").alias("visitor"), "event_time")
    .withWatermark("event_time", f"{PATIENCE_MINUTES} minutes")
    .groupBy("visitor", F.session_window("event_time", f"{PAUSE_MINUTES} minutes").alias("session"))
    .count()
)
query = sessions.writeStream.format("memory").queryName("sessions").outputMode("append").start()

# %% [markdown]
# ## Three acts
#
# Each line of the table below is sent as it stands, and after each act the query has read all there is.

# %%
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
ACTS = {
    "in time": [("ann", 0), ("ben", 2), ("ann", 4), ("ben", 5), ("ann", 9), ("cid", 20)],
    "late, and waited for": [("ann", 14), ("ben", 10), ("cid", 27), ("dan", 50)],
    "too late": [("ben", 12), ("cid", 30), ("eve", 90)],
}


def act(name: str) -> int:
    """Send the clicks of one act and let the query read them; how many it has dropped until now."""
    with Client(where["service.url"]) as client, client.create_producer(topic) as producer:
        for visitor, minute in ACTS[name]:
            producer.send(
                "click", key=visitor, event_time_ms=int((NOON + timedelta(minutes=minute)).timestamp() * 1000)
            )
    query.processAllAvailable()
    return sum(
        each["numRowsDroppedByWatermark"] for report in query.recentProgress for each in report["stateOperators"]
    )


# %% [markdown]
# **In time.** The newest click is of 12:20, so the watermark is 12:05: no session is over yet for certain.

# %%
print("dropped:", act("in time"))
spark.table("sessions").show()

# %% [markdown]
# **Late, and waited for.** `ann` clicked at 12:14 and `ben` at 12:10, both before the newest click, and both still
# count: their sessions grow. Then `dan` comes at 12:50, the watermark is 12:35, and two sessions are over.

# %%
print("dropped:", act("late, and waited for"))
table = spark.sql("select visitor, session.start, session.end, count from sessions order by start")
table.show()

# %% [markdown]
# **Too late.** The session to which `ben`'s click of 12:12 belongs was given out, so it is dropped. `cid` clicked at
# 12:30: that is before the watermark too, but ten minutes after it are not, so it counts. `eve` ends the story at
# 13:30.

# %%
dropped = act("too late")
print("dropped:", dropped)
table.show()
query.stop()

# %% [markdown]
# ## In a picture

# %%
rows = table.collect()
visitors = ["ann", "ben", "cid", "dan", "eve"]
figure = Figure(figsize=(8, 2.6), layout="constrained")
axes = figure.subplots()


def minute_of(moment: datetime) -> float:
    """Minutes after noon of a time that Spark has given."""
    return (moment.astimezone(UTC) - NOON).total_seconds() / 60


for row in rows:
    begin, end = minute_of(row.start), minute_of(row.end)
    axes.barh(visitors.index(row.visitor), end - begin, left=begin, height=0.6, color="#cfe3f5")
for (name, sent), color in zip(ACTS.items(), ["#1f77b4", "#ff7f0e", "#d62728"], strict=True):
    axes.scatter([m for _, m in sent], [visitors.index(v) for v, _ in sent], s=28, color=color, label=name, zorder=2)
axes.set_yticks(range(len(visitors)), visitors)
axes.invert_yaxis()
axes.set(xlabel="minutes after 12:00", title="Clicks, and the sessions that came out")
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
show(figure, "sessions.png")

# %% [markdown]
# ## Check

# %%
found = {row.visitor: (minute_of(row.start), minute_of(row.end), row["count"]) for row in rows}
assert found == {"ann": (0, 24, 4), "ben": (2, 20, 3), "cid": (20, 40, 3), "dan": (50, 60, 1)}, found
assert dropped == 1, dropped
print("check: passed, late clicks are counted, one that was too late is told")
