# SPDX-License-Identifier: Apache-2.0
"""The guarantee that the sink has on brokers without transactions, and that only their answer counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from broker_core.base.errors import NotAllowedError, ProducerBlockedQuotaException, PulsarishError, TopicNotFoundError
from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from pulsarish_spark.options import Side, WriteOptions, write_options
from pulsarish_spark.sink.guarantees import tell_at_least_once
from pulsarish_spark.sink.writer import PulsarishBatchWriter, PulsarishStreamWriter, Written
from tests.apache_pulsar.web import Web
from tests.behaviour.servers import on_ours
from tests.client.conftest import admin_path
from tests.spark.brokers import eventually


@pytest.fixture(scope="module", params=["pulsarish", pytest.param("apache", marks=pytest.mark.pulsar)])
def without(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The service URL of a broker without transactions."""
    if request.param == "pulsarish":
        settings = {"transactionCoordinatorEnabled": False}
        with RunningBroker(tmp_path_factory.mktemp("without") / "data", settings=settings) as broker:
            yield broker.service_url
    else:
        yield request.getfixturevalue("apache_pulsar").service_url


@pytest.fixture(autouse=True)
def untold() -> None:
    """As in a new process of Spark's."""
    tell_at_least_once.cache_clear()


def options(url: str, topic: str, side: Side = Side.BATCH_WRITE, /, **given: str) -> WriteOptions:
    return write_options({"service.url": url, "topic": topic, **given}, side, {})


def test_a_batch_write_is_at_least_once_without_transactions(
    without: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By default, which a warning tells once; a name, or exactly-once by name, is an error with what to do."""
    for _ in range(2):
        writer = PulsarishBatchWriter(options(without, topic))
        assert writer.write(iter([pa.record_batch({"value": ["x"]})])) == Written(1)
        writer.commit([Written(1)])
    told = [each.getMessage() for each in caplog.records if "at least once" in each.getMessage()]
    assert len(told) == 1
    assert "no transactions: the brokers have none" in told[0]
    for asked in ({"deliveryGuarantee": "exactly-once"}, {"transactionalId": "load-1"}):
        with pytest.raises(NotAllowedError, match="without transactions: the brokers have none") as refused:
            PulsarishBatchWriter(options(without, topic, **asked))
        assert refused.value.hint.endswith('or use .option("deliveryGuarantee", "at-least-once")')
    PulsarishBatchWriter(options(without, topic, deliveryGuarantee="at-least-once"))
    with Client(without) as client, client.create_reader(topic) as reader:
        assert [reader.read_next(30).value for _ in range(2)] == [b"x"] * 2


def test_a_stream_is_at_least_once_without_transactions(
    without: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A writer for each micro-batch, and one warning; by name it is an error that Spark shows as it is."""
    given = {"checkpointLocation": "/c"}
    for _ in range(2):
        assert (
            PulsarishStreamWriter(options(without, topic, Side.STREAM_WRITE, **given)).__getstate__()["_within"] is None
        )
    assert caplog.text.count("rows are written at least once") == 1
    asked = options(without, topic, Side.STREAM_WRITE, deliveryGuarantee="exactly-once", **given)
    with pytest.raises(PulsarishError, match="without transactions: the brokers have none"):
        PulsarishStreamWriter(asked).__getstate__()


def test_a_stream_of_an_unknown_checkpoint_is_at_least_once(
    tmp_path: Path, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a setting of Spark names it the sink is not told; a name makes up for it."""
    with RunningBroker(tmp_path / "data") as broker:
        nameless = PulsarishStreamWriter(options(broker.service_url, topic, Side.STREAM_WRITE))
        assert nameless.__getstate__()["_within"] is None
        assert "the stream has no name: its checkpoint is not known to the sink" in caplog.text
        named = PulsarishStreamWriter(options(broker.service_url, topic, Side.STREAM_WRITE, transactionalId="s"))
        assert named.__getstate__()["_within"] is not None


@pytest.mark.parametrize("asked", [{}, {"deliveryGuarantee": "exactly-once"}], ids=["default", "asked"])
def test_a_broker_that_is_away_is_not_taken_for_one_without_transactions(
    tmp_path: Path, topic: str, asked: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """The write fails, and nothing is written at least once."""
    with RunningBroker(tmp_path / "data") as broker:
        broker.kill()
        given = options(broker.service_url, topic, operationTimeoutMs="1500", **asked)
        with pytest.raises(PulsarishError) as away:
            PulsarishBatchWriter(given)
        assert not isinstance(away.value, NotAllowedError)
    assert "at least once" not in caplog.text


def test_topics_that_brokers_do_not_make_are_missed_where_they_are_needed(tmp_path: Path, topic: str) -> None:
    """A batch write without an id needs the topics of its rows alone; the control topic of an id is named."""
    with RunningBroker(tmp_path / "data", settings={"allowAutoTopicCreation": False}) as broker:
        Web(broker.http_url).call("PUT", f"/admin/v2/{admin_path(topic)}")
        writer = PulsarishBatchWriter(options(broker.service_url, topic))
        message = writer.write(iter([pa.record_batch({"value": ["x"]})]))
        assert isinstance(message, Written)
        assert message.share is not None
        writer.commit([message])
        with pytest.raises(
            TopicNotFoundError, match="the control topic persistent://public/default/__spark_sink_load-1"
        ):
            PulsarishBatchWriter(options(broker.service_url, topic, transactionalId="load-1"))
        with Client(broker.service_url) as client, client.create_reader(topic) as reader:
            assert reader.read_next(30).value == b"x"


def test_a_quota_of_age_stops_no_batch_write_and_names_the_control_topic(tmp_path: Path, topic: str) -> None:
    """Records of earlier jobs are as old as these; the last decision of a stream is needed."""
    with RunningBroker(tmp_path / "data") as broker, Client(broker.service_url) as client:
        for given in ({}, {"transactionalId": "load-1"}):
            PulsarishBatchWriter(options(broker.service_url, topic, **given))
        quota = {"limitTime": 1, "policy": "producer_exception"}
        path = "/admin/v2/namespaces/public/default/backlogQuota?backlogQuotaType=message_age"
        Web(broker.http_url).call("POST", path, json.dumps(quota))
        control = "persistent://public/default/__spark_sink_load-1"
        eventually(lambda: _is_stopped(client, control), "the quota of age stops producers")
        with pytest.raises(ProducerBlockedQuotaException, match=f"the control topic {control} is needed") as stopped:
            PulsarishBatchWriter(options(broker.service_url, topic, transactionalId="load-1"))
        assert "do not skip it" in stopped.value.hint
        assert _is_stopped(client, "persistent://public/default/__spark_sink_~intents")
        within = PulsarishBatchWriter(options(broker.service_url, topic))._within
        assert within is not None
        assert within.run is not None


def _is_stopped(client: Client, topic: str) -> bool:
    try:
        client.create_producer(topic).close()
    except ProducerBlockedQuotaException:
        return True
    return False


def test_a_right_that_is_missing_is_named(tmp_path: Path, topic: str) -> None:
    """A stream needs its control topic; a batch write without an id needs the topics of its rows alone."""
    with on_ours(tmp_path) as server:
        service = server.service("token")
        secret = {"token": service.access.token or ""}
        stream = options(service.service_url, topic, Side.STREAM_WRITE, checkpointLocation="/c", **secret)
        batch = options(service.service_url, topic, **secret)
        assert PulsarishStreamWriter(stream).__getstate__()["_within"] is not None
        service.grant("public/default", "produce")
        needs = "needs the right to consume on the control topic persistent://public/default/__spark_sink_"
        with pytest.raises(PulsarishError, match=needs) as refused:
            PulsarishStreamWriter(stream).__getstate__()
        assert refused.value.hint.endswith('or use .option("deliveryGuarantee", "at-least-once")')
        writer = PulsarishBatchWriter(batch)
        message = writer.write(iter([pa.record_batch({"value": ["x"]})]))
        assert isinstance(message, Written)
        assert message.share is not None
        writer.commit([message])
