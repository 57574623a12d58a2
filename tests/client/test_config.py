# SPDX-License-Identifier: Apache-2.0
"""What can be configured."""

import ast
import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from broker_core.base.errors import ConfigError
from broker_core.client import Client, KeySharedPolicy, RedeliveryBackoff
from broker_core.client.settings.config import (
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    ReaderConfig,
    WriterConfig,
)
from broker_core.client.settings.policies import DeadLetterPolicy
from tests.source_trees import parsed

SETTINGS: Final = Path(__file__).resolve().parents[2] / "broker_core" / "client" / "settings" / "config.py"


def test_every_setting_says_what_it_means() -> None:
    """The declaration is the only place that does: a docstring behind each field, but the service URL."""
    configs = [each for each in ast.walk(parsed(SETTINGS)) if isinstance(each, ast.ClassDef) and "Config" in each.name]
    assert len(configs) == 8
    for config in configs:
        for field, behind in pairwise(config.body):
            if isinstance(field, ast.AnnAssign) and ast.unparse(field.target) != "service_url":
                says = isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant)
                assert says, f"{config.name}.{ast.unparse(field.target)}"


def test_an_unknown_option_is_refused_with_the_one_that_is_meant(unconnected: Client) -> None:
    """As an unknown setting of the broker is; nothing is connected for it."""
    with pytest.raises(ConfigError, match="recieve_queue_size") as refused:
        unconnected.subscribe("t", "s", recieve_queue_size=1)  # type: ignore[call-arg] # misspelt
    assert refused.value.hint == 'did you mean "receiver_queue_size"?'
    with pytest.raises(ConfigError, match="colour") as refused:
        unconnected.create_reader("t", colour="red")  # type: ignore[call-arg] # there is nothing like it
    assert "rollback_s" in (refused.value.hint or "")


@pytest.fixture
def unconnected() -> Iterator[Client]:
    with Client("pulsar://127.0.0.1:1") as client:
        yield client


def test_numbers_of_other_kinds_are_numbers() -> None:
    """Those of numpy, which come out of tables."""
    config = ConsumerConfig(receiver_queue_size=np.int64(5), ack_timeout_s=np.float32(2))  # type: ignore[arg-type]
    assert (config.receiver_queue_size, config.ack_timeout_s) == (5, 2)


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (ProducerConfig, {"compression": "gzip"}),
        (ProducerConfig, {"hashing_scheme": "md5"}),
        (ProducerConfig, {"message_routing_mode": "random"}),
        (ProducerConfig, {"access_mode": "alone"}),
        (ProducerConfig, {"batching_max_messages": 0}),
        (ProducerConfig, {"send_timeout_s": 0}),
        (ProducerConfig, {"initial_sequence_id": -2}),
        (ProducerConfig, {"initial_sequence_id": 2**63 - 1}),
        (ProducerConfig, {"initial_sequence_id": 1.5}),
        (ProducerConfig, {"chunk_max_message_size": 0.5}),
        (ProducerConfig, {"initial_subscription_name": "\udcff"}),
        (ProducerConfig, {"properties": {"a": "\udcff"}}),
        (ProducerConfig, {"send_timeout_s": math.inf}),
        (ConsumerConfig, {"ack_timeout_s": math.nan}),
        (ConsumerConfig, {"ack_timeout_s": 1e300}),
        (ConsumerConfig, {"type": "keyed"}),
        (ConsumerConfig, {"consumer_name": "\udcff"}),
        (ConsumerConfig, {"priority_level": 2**31}),
        (ConsumerConfig, {"receiver_queue_size": 1.5}),
        (ConsumerConfig, {"negative_ack_precision_bits": 1000}),
        (ConsumerConfig, {"properties": {"a": 5}}),
        (ConsumerConfig, {"subscription_properties": {"a": "\udcff"}}),
        (ConsumerConfig, {"retry_enabled": "no"}),
        (DeadLetterPolicy, {"max_redeliver_count": 1, "initial_subscription_name": "\udcff"}),
        (DeadLetterPolicy, {"max_redeliver_count": 0}),
        (RedeliveryBackoff, {"max_s": 1}),
        (KeySharedPolicy, {"mode": "by_hand"}),
        (ReaderConfig, {"rollback_s": -1}),
        (WriterConfig, {"send_timeout_s": 0}),
        (WriterConfig, {"window_bytes_max": 0}),
        (ConsumerConfig, {"initial_position": "middle"}),
        (ConsumerConfig, {"receiver_queue_size": -1}),
        (ConsumerConfig, {"acknowledgment_group_time_s": -0.1}),
        (ClientConfig, {"service_url": "pulsar://x", "operation_timeout_s": 0}),
    ],
)
def test_bad_values_are_refused_by_name(config: type, options: dict[str, Any]) -> None:
    """A wrong value is found where it is given, and the error names it and what is allowed."""
    name = list(options)[-1]
    with pytest.raises(ConfigError, match=name) as refused:
        config(**options)
    assert refused.value.hint


def test_defaults_are_those_of_pulsar() -> None:
    """8 Configuration names and defaults: producer and consumer."""
    producer, consumer = ProducerConfig(), ConsumerConfig()
    assert (producer.batching_max_messages, producer.batching_max_bytes) == (1000, 131072)
    assert (producer.batching_max_publish_delay_s, producer.send_timeout_s) == (0.001, 30)
    assert (producer.block_if_queue_full, producer.max_pending_messages) == (False, 0)
    assert (consumer.type, consumer.initial_position, consumer.receiver_queue_size) == ("exclusive", "latest", 1000)
    assert consumer.max_total_receiver_queue_size_across_partitions == 50_000
    assert (consumer.acknowledgment_group_time_s, consumer.max_acknowledgment_group_size) == (0.1, 1000)
    assert consumer.negative_ack_redelivery_delay_s == 60


def test_a_client_is_more_patient_than_a_cluster_needs_that_has_lost_a_broker() -> None:
    """For 30 s nobody serves what it served, and another has to load it then. Both kinds of client."""
    config, client = ClientConfig(service_url="pulsar://x"), Client("pulsar://x")
    assert config.operation_timeout_s >= 60
    assert client.config == config
    assert config.connection_timeout_s == 10


def test_a_dead_letter_policy_sets_no_timeout() -> None:
    """4.7.7 who wants an ack timeout beside it says so."""
    config = ConsumerConfig(type="shared", dead_letter_policy=DeadLetterPolicy(max_redeliver_count=3))
    assert config.ack_timeout_s == 0
