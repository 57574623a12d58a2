# SPDX-License-Identifier: Apache-2.0
"""The lag of queries, from their progress: Spark lets a Python source report no metrics of its own.

    progress.lag(query.lastProgress)                             # {TopicPartition(...): PartitionLag(...), ...}
    history = progress.LagHistory()                              # a table in a notebook, and history.plot()
    spark.streams.addListener(progress.LagListener(history, progress.LagLog(), progress.LagFile("lag.json")))
    progress.LagProbe(**{"service.url": "pulsar://host:6650"})(query.lastProgress)    # with bytes and seconds
    progress.schema_changes(query.lastProgress)                  # newer schemas than the query reads by
    progress.bad_records(query.lastProgress)                     # of rows that count_bad_records was called with

Zero means that nothing is behind; None means that it is not known.
"""

from pulsarish_spark.progress.bad_records import bad_records, count_bad_records
from pulsarish_spark.progress.listener import LagFile, LagHistory, LagListener, LagLog
from pulsarish_spark.progress.probe import LagProbe
from pulsarish_spark.progress.reports import Lag, PartitionLag, lag, schema_changes, total

__all__ = [
    "Lag",
    "LagFile",
    "LagHistory",
    "LagListener",
    "LagLog",
    "LagProbe",
    "PartitionLag",
    "bad_records",
    "count_bad_records",
    "lag",
    "schema_changes",
    "total",
]
