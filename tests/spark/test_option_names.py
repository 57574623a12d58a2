# SPDX-License-Identifier: Apache-2.0
"""Names of options that other sources and clients have: taken, refused with the reason, or recognised when misspelt."""

from __future__ import annotations

import msgspec
import pytest

from broker_core.base.errors import ConfigError
from broker_core.client import WriterConfig
from pulsarish_spark.options import OPTIONS, Side, check_option
from tests.spark.test_options import reading, writing


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("kafkaConsumer__pollTimeoutMs", "is not needed here; remove it"),
        ("pulsar__client__statsIntervalSeconds", "is a setting of the Java client of Pulsar, which is not used here"),
        ("owner", "CREATE TEMPORARY VIEW flights USING pulsarish OPTIONS (topic 'flights')"),
        ("provider", "CREATE TEMPORARY VIEW flights USING pulsarish OPTIONS (topic 'flights')"),
        ("paths", '.option("topics", "a,b").load()'),
    ],
)
def test_what_other_sources_have_and_this_one_has_not_is_not_taken_for_a_typing_error(option: str, why: str) -> None:
    """The nearest name may mean something else: paths is not a misspelt path."""
    with pytest.raises(ConfigError) as caught:
        reading(topic="t", **{option: "1"})
    assert why in str(caught.value)
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("pulsar.producer.compresionType", "did you mean pulsar.producer.compressionType? example: .option("),
        ("pulsar.producer.chunkEnabled", "did you mean pulsar.producer.chunkingEnabled? example: .option("),
        ("pulsar.client.operationTimeout", "did you mean pulsar.client.operationTimeoutMs? example: .option("),
        ("pulsar.producer.maxPendingMessage", "did you mean pulsar.producer.maxPendingMessages? It is not needed: a"),
        ("kafka.bootstrap.server", "did you mean kafka.bootstrap.servers? It names a Kafka cluster and this format"),
    ],
)
def test_a_misspelt_name_of_another_client_is_compared_with_names_of_that_client(key: str, hint: str) -> None:
    """What is suggested means the same there; and what that client refuses here is told at once."""
    with pytest.raises(ConfigError) as caught:
        check_option(key, None, Side.BATCH_WRITE)
    assert str(caught.value).startswith(f'option "{key}" is unknown; {hint}')


@pytest.mark.parametrize("key", ["pulsar.client.numIoThreads", "pulsar.producer.", "pulsar.client", "kafka."])
def test_a_common_beginning_makes_no_names_alike(key: str) -> None:
    """pulsar.client.numIoThreads was taken for a misspelt pulsar.client.authParams."""
    with pytest.raises(ConfigError, match=r"is a setting of the .* which is not used here; remove it"):
        check_option(key, None, Side.BATCH_WRITE)


@pytest.mark.parametrize("key", ["kafka.security.protocol", "kafka.ssl.truststore.location", "kafka.sasl.mechanism"])
def test_security_of_kafka_is_not_just_removed(key: str) -> None:
    """That was the advice: the job would have connected without TLS, as nobody."""
    with pytest.raises(ConfigError) as caught:
        check_option(key, None, Side.STREAM_READ)
    assert "remove it" not in str(caught.value)
    assert 'pulsar+ssl://host:6651"), and who connects is said by tokenFile' in str(caught.value)


def test_the_java_clients_limits_of_sending_are_taken() -> None:
    """Under its names, with its meaning; what would wait for ever there is refused."""
    given = {"pulsar__producer__sendTimeoutMs": "2500", "pulsar__client__memoryLimitBytes": "4096"}
    options = writing(topic="t", **given).writing
    assert (options["send_timeout_s"], options["window_bytes_max"]) == (2.5, 4096)
    assert {"send_timeout_s", "window_bytes_max"}.isdisjoint(writing(topic="t").writing)
    with pytest.raises(ConfigError, match='option sendTimeoutMs="0" is not valid: it takes a whole number from 1 up'):
        writing(topic="t", sendTimeoutMs="0")


def test_the_defaults_of_the_clients_writer_are_told() -> None:
    """Who leaves an option out learns from its meaning what happens then."""
    fields = {field.name: field.default for field in msgspec.structs.fields(WriterConfig)}
    told = {
        "batchingMaxMessages": fields["batching_max_messages"],
        "batchingMaxBytes": fields["batching_max_bytes"],
        "memoryLimitBytes": fields["window_bytes_max"],
        "compression": fields["compression"],
    }
    meanings = {option.name: option.meaning for option in OPTIONS}
    assert [name for name, default in told.items() if f"Default {default}." not in meanings[name]] == []


def test_include_headers_adds_a_column_and_columns_chooses() -> None:
    """Headers come last unless the user says where."""
    assert reading(topic="t", includeHeaders="TRUE").columns[-1] == "headers"
    assert reading(topic="t", columns="value, key").columns == ("value", "key")


def test_the_columns_without_any_option_are_those_of_the_kafka_source() -> None:
    """In its order, and headers behind them; Pulsar's own are read where an option names them, or says all."""
    kafkas = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert reading(topic="t").columns == kafkas
    assert reading(topic="t", includeHeaders="true").columns == (*kafkas, "headers")
    every = reading(topic="t", columns=" ALL ").columns
    assert every[:7] == kafkas
    assert {"message_id", "properties", "headers", "redelivery_count", "sequence_id"} < {*every}
    assert not [name for name in every if name.startswith("__")]
    assert reading(topic="t", columns="all", includeHeaders="true").columns == every
    assert reading(topic="t", columns="sequence_id,producer_name").columns == ("sequence_id", "producer_name")


def test_columns_can_have_the_names_of_pulsar_spark() -> None:
    """One option for all; columns beats it, headers may be added."""
    names = ("value", "__key", "__topic", "__messageId", "__publishTime", "__eventTime", "__messageProperties")
    assert reading(topic="t", columnNames="pulsar-spark").columns == names
    assert reading(topic="t", columnNames="pulsar-spark", includeHeaders="true").columns == (*names, "headers")
    assert reading(topic="t", columnNames="pulsar-spark", columns="value,__key").columns == ("value", "__key")
    assert "__key" not in reading(topic="t", columnNames="pulsarish").columns
