# SPDX-License-Identifier: Apache-2.0
"""What a task of the sink leaves behind at the broker, without a session."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from broker_core.base.errors import RowsUnconfirmedError
from pulsarish_spark.options import Side, write_options
from pulsarish_spark.writer import write_rows
from tests.spark.brokers import Broker

pytestmark = pytest.mark.spark


def test_a_task_that_failed_on_one_topic_leaves_the_others_too(broker: Broker, topic: str) -> None:
    """The worker and its client serve the next tasks: each failure left its producers at the broker."""
    topics = [f"{topic}-{number}" for number in range(3)]
    paths = [f"persistent/public/default/{each}" for each in topics]
    rows = pa.record_batch({"topic": topics, "value": topics})

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows
        broker.admin("POST", f"{paths[0]}/terminate")
        yield rows

    options = write_options({"service.url": broker.service_url}, Side.BATCH_WRITE, {})
    with pytest.raises(RowsUnconfirmedError):
        write_rows(batches(), options)
    assert [broker.admin("GET", f"{path}/stats")["publishers"] for path in paths] == [[], [], []]
