# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
"""
# Real flights through Spark and a durable broker

The departures from New York City in January 2013, 27 thousand of them, go to a topic as JSON. Two streaming queries
read it: one cleans the rows and keeps them as Parquet, the other computes the mean delay of each carrier on each day
and sends it to a second topic. At the end everything is compared, row for row, with what Arrow computes straight from
the source.

`make demo` runs the same job on the whole year, and can kill the driver and the broker in the middle of it.
"""

# %%
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.compute as pc
from flights import admin, chart, check, pipeline, source
from flights.pipeline import Job
from flights.table import carrier_table
from showing import show

from pulsarish_spark import notebook_broker

spark = pipeline.new_session()
broker = notebook_broker()
work = tempfile.TemporaryDirectory()
job = Job("january", Path(work.name), {"service.url": broker.service_url}, broker.http_url)

# %% [markdown]
# ## Flights to a topic
#
# The carrier is the key of a message, so that the flights of a carrier keep their order in one of four partitions.
# The event time is the scheduled departure.

# %%
year, airlines = source.load_flights(), source.load_airlines()
flights = year.filter(pc.field("scheduled") < datetime(2013, 2, 1, source.DAY_STARTS_AT_UTC_HOUR, tzinfo=UTC))
pipeline.save_source(job, flights, airlines)
for topic in (job.flights_topic, job.days_topic):
    admin.create_topic(job.admin_url, topic, pipeline.PARTITIONS)
pipeline.write_flights(spark, job)
print(f"{flights.num_rows:,} flights written")

# %% [markdown]
# ## Two streaming queries
#
# Each has a subscription of its own and reads all there is. A day comes out when the watermark has passed its end, so
# the last days of a finished topic would never come out; one more message, with no flight in it, closes them.

# %%
queries = pipeline.start_queries(spark, job).values()
for query in queries:
    query.processAllAvailable()
pipeline.write_end_of_data(spark, job, flights["scheduled"][-1].as_py())
for query in queries:
    query.processAllAvailable()
    query.stop()

# %% [markdown]
# ## The result

# %%
days, repeats = pipeline.read_days(spark, job)
print(carrier_table(days))

# %%
show(chart.figure(days), "flights.png")

# %% [markdown]
# ## Check
#
# Every flight once, every day of every carrier once, nothing left in the backlog.

# %%
print(check.check_clean(pipeline.read_clean(spark, job), source.expected_clean(flights, airlines)))
print(check.check_days(days, source.expected_days(flights, airlines)))
print(check.check_zero("backlog", admin.backlogs(job.admin_url, job.flights_topic)))
print("check: passed")
