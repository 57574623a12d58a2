# SPDX-License-Identifier: Apache-2.0
"""Which query and which of its batches a task works for. Spark tells that to tasks, and to nothing else of a source.

Works without ``pyspark``, where no task is.
"""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


class RunningBatch(NamedTuple):
    """``query_id`` is that of the checkpoint, the same over restarts; ``number`` counts from 0."""

    query_id: str
    number: int


def running_batch() -> RunningBatch | None:
    """The batch that this process runs; None outside of a task of a stream."""
    if sys.modules.get("pyspark") is None:
        return None
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return None
    query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    return RunningBatch(query, int(batch)) if query and batch else None
