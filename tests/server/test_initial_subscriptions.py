# SPDX-License-Identifier: Apache-2.0
"""Producers that bring a subscription, as those of dead letters do. What comes of it is as in Apache Pulsar 4.2.4."""

from __future__ import annotations

import httpx

from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, ServerError


def produce(client: RawClient, topic: str) -> BaseCommand:
    """The answer to a producer that brings the subscription ``letters``."""
    command = BaseCommand(type=BaseCommand.PRODUCER)
    command.producer.topic, command.producer.producer_id, command.producer.request_id = topic, 0, 1
    command.producer.initial_subscription_name = "letters"
    return client.ask(command)


def test_it_is_made_with_the_producer(broker: RunningBroker, http: httpx.Client, topic: str, path: str) -> None:
    """4.7.1: so that what is sent waits for somebody to look."""
    with RawClient(broker.service_url) as client:
        must_succeed(produce(client, topic))
    assert http.get(f"{path}/subscriptions").json() == ["letters"]


def test_where_none_may_be_made_by_using_it_the_producer_is_refused(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """1.1.7, 4.7.1: NotAllowedError, unless the subscription is there already."""
    http.put(path)
    http.post(f"{path}/autoSubscriptionCreation", json={"allowAutoSubscriptionCreation": False})
    with RawClient(broker.service_url) as client:
        assert produce(client, topic).error.error == ServerError.NotAllowedError
        http.put(f"{path}/subscription/letters")
        must_succeed(produce(client, topic))


def test_nothing_waits_where_nothing_is_stored(broker: RunningBroker, topic: str) -> None:
    """1.1.8, 4.7.1: the producer comes without."""
    with RawClient(broker.service_url) as client:
        must_succeed(produce(client, topic.replace("persistent:", "non-persistent:")))
