# SPDX-License-Identifier: Apache-2.0
"""When rows of the sink may be delivered: delays of a column and of an option, without a session but for one test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from broker_core.base.errors import ConfigError
from broker_core.client import Client
from pulsarish_spark.options import Side, write_options
from pulsarish_spark.sink.rows import with_delivery_times
from tests.spark.brokers import Broker
from tests.spark.conftest import Load, failure
from tests.spark.test_write import save

NOW_MS = 1_800_000_000_000


def delays(given: list[Any], kind: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.record_batch({"key": [f"k{n}" for n in range(len(given))], "deliver_after": pa.array(given, kind)})


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ([timedelta(seconds=5), None, timedelta(0), timedelta(days=1, microseconds=999)], pa.duration("us")),
        ([5000, None, 0, 86_400_000], pa.int64()),
        ([5000, None, 0, 86_400_000], pa.int32()),
    ],
)
def test_a_delay_counts_from_when_the_row_is_sent(given: list[Any], kind: pa.DataType) -> None:
    """An interval is cut to milliseconds; null leaves the row at once; a slice of a batch is read as such."""
    found = with_delivery_times(delays(given, kind), 0, NOW_MS)
    wanted = [NOW_MS + 5000, None, NOW_MS, NOW_MS + 86_400_000]
    assert found.schema.names == ["key", "deliver_at"]
    assert found.column("deliver_at").to_pylist() == wanted
    assert with_delivery_times(delays(given, kind).slice(1), 0, NOW_MS).column("deliver_at").to_pylist() == wanted[1:]


def test_the_option_is_for_rows_that_say_nothing_themselves() -> None:
    """A time of the column is kept to the millisecond, a delay of the column, of zero too, beats the option."""
    at = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    rows = pa.record_batch(
        {
            "value": ["a", "b", "c"],
            "deliver_at": pa.array([at, None, None], pa.timestamp("us", "UTC")),
            "deliver_after": pa.array([None, 0, None], pa.int64()),
        }
    )
    found = with_delivery_times(rows, 7, NOW_MS).column("deliver_at").to_pylist()
    assert found == [int(at.timestamp() * 1000), NOW_MS, NOW_MS + 7]
    plain = pa.record_batch({"value": ["a", "b"]})
    assert with_delivery_times(plain, 7, NOW_MS).column("deliver_at").to_pylist() == [NOW_MS + 7] * 2
    assert with_delivery_times(plain, 0, NOW_MS) is plain


@pytest.mark.parametrize("delay_ms", [-1, 2**63 - 1])
def test_a_delay_that_cannot_be_is_refused_by_the_key_of_its_row(delay_ms: int) -> None:
    """A negative one is a mistake, and one of a century too: nobody waits for it."""
    with pytest.raises(ConfigError) as caught:
        with_delivery_times(delays([0, delay_ms], pa.int64()), 0, NOW_MS)
    assert str(caught.value) == (
        f"the row with the key 'k1' has a deliver_after of {delay_ms} milliseconds; it takes 0 to 3153600000000, "
        "which is a century; deliver_at takes a time"
    )


def test_an_option_of_more_than_a_century_is_refused() -> None:
    """It would be beyond what a message can say."""
    with pytest.raises(ConfigError, match='option deliverAfterMs="9999999999999" is not valid: it takes milliseconds'):
        write_options({"topic": "t", "deliverafterms": "9999999999999"}, Side.BATCH_WRITE, {})


@pytest.mark.spark
def test_rows_with_a_delay_come_to_queues_when_it_is_over(
    spark: SparkSession, broker: Broker, source: Load, topic: str
) -> None:
    """An interval of Spark's, the option, and an error that names the row which has a time and a delay."""
    frame = spark.sql(
        """SELECT * FROM VALUES ('later', interval 1 day), ('due', interval 0 seconds), ('by the option', null)
           AS t(value, deliver_after)"""
    )
    with Client(broker.service_url) as client:
        consumer = client.subscribe(topic, "queue", type="shared")
        save(frame, broker, topic=topic, deliverAfterMs="86400000")
        assert consumer.receive(60).value == b"due"
        stats = broker.admin("GET", f"persistent/public/default/{topic}/stats")
        assert stats["subscriptions"]["queue"]["msgDelayed"] == 2
    both = spark.sql("SELECT 'k' AS key, 'v' AS value, now() AS deliver_at, 1000L AS deliver_after")
    refused = failure(lambda: save(both, broker, topic=topic))
    assert "the row with the key 'k' has both deliver_at and deliver_after; " in refused
    assert "; leave one of them null" in refused
    assert len(source(topic).collect()) == 3
