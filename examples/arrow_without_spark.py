# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
"""
# Arrow without Spark: a topic in pandas, Polars and DuckDB

`read_arrow` is the batch source of Spark as one function: the same options, the same rows, but a stream of Arrow
batches in this process. It needs no Spark and no Java. What reads Arrow reads this, and here three libraries answer
the same question on the same topic: how warm was it in each city?
"""

# %%
import math
import uuid
from datetime import UTC, datetime, timedelta

import duckdb
import polars as pl
from matplotlib.figure import Figure
from showing import show

from broker_core.client import Client
from pulsarish_spark import notebook_broker, read_arrow

# %% [markdown]
# A broker for this program alone, gone when it ends: there is nothing to start. Leave `where` out for the broker of
# your default data directory, or name any Apache Pulsar: `{"service.url": "pulsar://host:6650"}`.

# %%
where = {"service.url": notebook_broker().service_url}
topic = f"weather-{uuid.uuid4().hex[:8]}"

# %% [markdown]
# A day of weather: five cities, a reading every five minutes. The city is the key of a message, the temperature its
# value, and the event time says when it was measured.

# %%
MEANS = {"Cairo": 31.0, "Lima": 19.0, "Oslo": 12.0, "Perth": 16.0, "Quito": 14.5}
MIDNIGHT = datetime(2026, 6, 1, tzinfo=UTC)

with Client(where["service.url"]) as client, client.create_producer(topic) as producer:
    for step in range(24 * 12):
        moment = MIDNIGHT + timedelta(minutes=5 * step)
        for city, mean in MEANS.items():
            measured = mean - 6 * math.cos(2 * math.pi * (step - 36) / 288)
            producer.send_async(f"{measured:.2f}", key=city, event_time_ms=int(moment.timestamp() * 1000))

# %% [markdown]
# ## pandas

# %%
frame = read_arrow(topic, columns="key,value,event_time", **where).read_pandas()
frame["city"] = frame["key"].str.decode("utf-8")
frame["degrees"] = frame["value"].str.decode("utf-8").astype(float)
by_pandas = frame.groupby("city")["degrees"].agg(["count", "min", "mean", "max"]).round(2)
print(by_pandas)

# %% [markdown]
# ## Polars

# %%
readings = pl.DataFrame(pl.from_arrow(read_arrow(topic, columns="key,value,event_time", **where))).select(
    city=pl.col("key").cast(pl.String), degrees=pl.col("value").cast(pl.String).cast(pl.Float64), at="event_time"
)
degrees = pl.col("degrees")
by_polars = readings.group_by("city").agg(
    count=pl.len(), min=degrees.min(), mean=degrees.mean().round(2), max=degrees.max()
)
by_polars = by_polars.sort("city")
print(by_polars)

# %% [markdown]
# ## DuckDB
#
# SQL takes the reader by the name of its variable. Rows are fetched while the query runs, so a topic may be larger
# than memory; each reader can be read once.

# %%
weather = read_arrow(topic, columns="key,value", **where)
by_duckdb = duckdb.sql("""
    select decode(key) as city, count(*) as count,
           min(degrees) as min, round(avg(degrees), 2) as mean, max(degrees) as max
    from (select key, decode(value)::double as degrees from weather)
    group by city order by city
""")
assert by_duckdb is not None
rows = by_duckdb.fetchall()
print(*rows, sep="\n")

# %% [markdown]
# ## The day in a picture

# %%
figure = Figure(figsize=(8, 3.2), layout="constrained")
axes = figure.subplots()
for (city,), day in readings.group_by("city", maintain_order=True):
    axes.plot((day["at"] - MIDNIGHT).dt.total_seconds() / 3600, day["degrees"], label=city)
axes.set(xlabel="hour of the day (UTC)", ylabel="degrees Celsius", xlim=(0, 24), title="One topic, five keys")
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
show(figure, "weather.png")

# %% [markdown]
# ## Check
#
# Every reading is there once, and the three libraries agree.

# %%
assert frame.shape[0] == len(MEANS) * 24 * 12
assert list(by_pandas.itertuples(name=None)) == by_polars.rows() == rows
assert [row[3] for row in rows] == list(MEANS.values())
print("check: passed,", frame.shape[0], "readings, the same answer three times")
