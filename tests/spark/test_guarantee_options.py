# SPDX-License-Identifier: Apache-2.0
"""The options of the exactly-once sink."""

from __future__ import annotations

import pytest

from broker_core.base.errors import ConfigError
from pulsarish_spark.options import Side, WriteOptions, write_options
from pulsarish_spark.options.guarantee import ExactlyOnce


def options(side: Side = Side.STREAM_WRITE, /, **given: str) -> WriteOptions:
    return write_options({"service.url": "pulsar://host:6650", "topic": "sales/eu/orders", **given}, side, {})


def test_a_stream_is_at_least_once_by_default() -> None:
    """Most brokers have no transactions."""
    assert options(checkpointLocation="/c").once is None
    assert options(deliveryGuarantee="At-Least-Once").once is None


def test_a_stream_is_named_by_its_checkpoint_or_by_the_user() -> None:
    """Its control topic is in the namespace of the topic, and one that names none, in the default namespace."""
    named = options(deliveryGuarantee="exactly-once", transactionalId="orders", transactionTimeoutMs="90000")
    assert named.once == ExactlyOnce("persistent://sales/eu/__spark_sink_orders", 90.0)
    by_checkpoint = options(deliveryGuarantee="exactly-once", checkpointLocation="/c").once
    assert by_checkpoint == options(deliveryGuarantee="exactly-once", checkpointLocation="/c").once
    assert by_checkpoint != options(deliveryGuarantee="exactly-once", checkpointLocation="/d").once
    given = {"service.url": "pulsar://h:1", "deliveryGuarantee": "exactly-once", "transactionalId": "x"}
    everywhere = write_options(given, Side.STREAM_WRITE, {}).once
    assert everywhere == ExactlyOnce("persistent://public/default/__spark_sink_x", 3600.0)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"deliveryGuarantee": "exactly-once"}, "the stream needs a name, and its checkpoint is not known here"),
        ({"transactionalId": "x"}, "option transactionalId means nothing without transactions"),
        ({"transactionTimeoutMs": "5"}, "option transactionTimeoutMs means nothing without transactions"),
        ({"deliveryGuarantee": "at-most-once"}, "it takes one of at-least-once, exactly-once"),
        ({"deliveryGuarantee": "exactly-once", "transactionalId": "a/b"}, "it takes up to 128 letters"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, str], told: str) -> None:
    """Before anything is written."""
    with pytest.raises(ConfigError, match=told):
        options(**given)


@pytest.mark.parametrize("name", ["deliveryGuarantee", "transactionalId", "transactionTimeoutMs"])
def test_a_batch_write_is_at_least_once(name: str) -> None:
    """So it does not take the options, nor does a read."""
    with pytest.raises(ConfigError, match=f'option "{name}" does not work in a batch write: is for streams'):
        options(Side.BATCH_WRITE, **{name: "1"})
