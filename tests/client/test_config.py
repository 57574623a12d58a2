# SPDX-License-Identifier: Apache-2.0
"""What can be configured."""

import dataclasses
import math
from typing import Any

import pytest

from broker_core.base.errors import ConfigError
from broker_core.client import Client
from broker_core.client.settings.config import (
    ClientConfig,
    ConsumerConfig,
    ConsumerOptions,
    ProducerConfig,
    ProducerOptions,
)
from broker_core.client.settings.dead_letter_policy import DeadLetterPolicy


@pytest.mark.parametrize(("config", "options"), [(ProducerConfig, ProducerOptions), (ConsumerConfig, ConsumerOptions)])
def test_keyword_arguments_are_the_fields_of_the_config(config: type, options: Any) -> None:
    """Both lists of names are one list."""
    fields = {field.name: field.type for field in dataclasses.fields(config)}
    assert {name: str(kind.__forward_arg__) for name, kind in options.__annotations__.items()} == fields


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
        (
            ConsumerConfig,
            {"dead_letter_policy": DeadLetterPolicy(max_redeliver_count=1, initial_subscription_name="\udcff")},
        ),
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
