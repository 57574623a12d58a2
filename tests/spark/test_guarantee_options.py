# SPDX-License-Identifier: Apache-2.0
"""The options of the exactly-once sink."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker_core.base.errors import ConfigError
from pulsarish_spark.options import Side, WriteOptions, write_options
from pulsarish_spark.options.guarantee import ExactlyOnce


def options(side: Side = Side.STREAM_WRITE, /, **given: str) -> WriteOptions:
    return write_options({"service.url": "pulsar://host:6650", "topic": "sales/eu/orders", **given}, side, {})


@pytest.mark.parametrize("side", [Side.STREAM_WRITE, Side.BATCH_WRITE])
def test_rows_are_written_exactly_once_by_default(side: Side) -> None:
    """Where the brokers have transactions: it is no error where they have none."""
    once = options(side, **({"checkpointLocation": "/c"} if side is Side.STREAM_WRITE else {})).once
    assert once is not None
    assert not once.is_asked_for
    assert options(side, deliveryGuarantee="At-Least-Once").once is None
    asked = options(side, deliveryGuarantee="exactly-once", transactionalId="x").once
    assert asked == ExactlyOnce("persistent://sales/eu/__spark_sink_x", is_asked_for=True)


def test_a_stream_is_named_by_its_checkpoint_or_by_the_user() -> None:
    """Its control topic is in the namespace of the topic, and one that names none, in the default namespace."""
    named = options(deliveryGuarantee="exactly-once", transactionalId="orders", transactionTimeoutMs="90000")
    assert named.once == ExactlyOnce("persistent://sales/eu/__spark_sink_orders", 90.0, is_asked_for=True)
    by_checkpoint = options(checkpointLocation="/c").once
    assert by_checkpoint is not None
    asked = options(deliveryGuarantee="exactly-once", checkpointLocation="/c").once
    assert asked == replace(by_checkpoint, is_asked_for=True)
    assert by_checkpoint != options(checkpointLocation="/d").once
    assert by_checkpoint == options(checkpointLocation="/c/").once
    given = {"service.url": "pulsar://h:1", "deliveryGuarantee": "exactly-once", "transactionalId": "x"}
    everywhere = write_options(given, Side.STREAM_WRITE, {}).once
    assert everywhere == ExactlyOnce("persistent://public/default/__spark_sink_x", 3600.0, is_asked_for=True)


def test_an_id_may_say_where_its_control_topic_is() -> None:
    """A source and a sink of different namespaces can meet on one; the options of the default count."""
    named = options(Side.BATCH_WRITE, transactionalId="ops/control/load-1", onUnknownTransaction="assumecommitted").once
    control = "persistent://ops/control/__spark_sink_load-1"
    assert named == ExactlyOnce(control, is_asked_for=True, assumes_committed=True)
    short = options(Side.BATCH_WRITE, transactionTimeoutMs="5000").once
    assert short == ExactlyOnce(timeout_s=5.0, intents="persistent://sales/eu/__spark_sink_~intents")


def test_a_stream_without_a_known_checkpoint_has_no_name() -> None:
    """As where a setting of Spark gives it; by default it is then written at least once, which the sink tells."""
    assert options().once == ExactlyOnce()


def test_topics_that_keep_nothing_are_written_as_before() -> None:
    """By default: nobody can be promised a row there."""
    assert options(Side.BATCH_WRITE, topic="non-persistent://sales/eu/live").once is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"deliveryGuarantee": "exactly-once"}, "the stream needs a name, and its checkpoint is not known here"),
        ({"transactionalId": "x"}, "option transactionalId means nothing without transactions"),
        ({"transactionTimeoutMs": "5"}, "option transactionTimeoutMs means nothing without transactions"),
        ({"onUnknownTransaction": "fail"}, "option onUnknownTransaction means nothing without transactions"),
        ({"deliveryGuarantee": "at-most-once"}, "it takes one of exactly-once, at-least-once"),
        ({"onUnknownTransaction": "guess"}, "it takes one of fail, assumeCommitted"),
        ({"deliveryGuarantee": "exactly-once", "transactionalId": "a/b"}, "namespace \"?'a' is not valid"),
        ({"transactionalId": "a/b/"}, "it takes up to 128 letters"),
        ({"topic": "non-persistent://a/b/c", "transactionalId": "x"}, "keeps nothing, so no row is there exactly once"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, str], told: str) -> None:
    """Before anything is written."""
    at_least = {} if {"deliveryGuarantee", "topic"} & given.keys() else {"deliveryGuarantee": "at-least-once"}
    with pytest.raises(ConfigError, match=told):
        options(**given | at_least)
