# SPDX-License-Identifier: Apache-2.0
"""What a producer of our client experiences when the backlog of its topic exceeds a quota."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.base.errors import OperationTimeoutError, ProducerBlockedQuotaException
from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId
from broker_core.client import Client, Producer
from broker_core.client.admin import AdminApi
from broker_core.testing.running_broker import RunningBroker

TOPIC = "persistent://public/default/quota"
NAME = TopicName.parse(TOPIC)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """One that looks at backlogs every second."""
    with RunningBroker(tmp_path / "data", settings={"backlogQuotaCheckIntervalInSeconds": 1}) as running:
        yield running


def set_quota(broker: RunningBroker, policy: str) -> None:
    with AdminApi(broker.http_url, timeout_s=20) as admin:
        admin.set_policy(NAME, "backlogQuota", {"destination_storage": {"limitSize": 10, "policy": policy}})


def clear(broker: RunningBroker) -> None:
    with AdminApi(broker.http_url, timeout_s=20) as admin:
        admin.clear_backlog(NAME, "s")


def producers_connected(broker: RunningBroker) -> int:
    """How many producers are connected now."""
    with AdminApi(broker.http_url, timeout_s=20) as admin:
        return len(admin.topic_stats(NAME, 0)["publishers"])


def wait_until_sent_away(broker: RunningBroker) -> None:
    """The next check of the broker disconnects everybody who produces."""
    while producers_connected(broker):
        pass


def sent_in_the_end(producer: Producer, value: bytes) -> MessageId:
    """The id of a message of a producer that is on its way back: an attempt from before may still be refused."""
    while True:
        with contextlib.suppress(ProducerBlockedQuotaException):
            return producer.send(value)


def test_a_held_producer_goes_on_when_the_backlog_is_gone(broker: RunningBroker) -> None:
    """7.3: producer_request_hold: sends wait, none is lost, and they arrive once there is room."""
    with Client(broker.service_url) as client, client.subscribe(TOPIC, "s") as consumer:
        producer = client.create_producer(TOPIC, send_timeout_s=60)
        producer.send(b"first")
        set_quota(broker, "producer_request_hold")
        wait_until_sent_away(broker)
        answered: list[object] = []
        producer.send_async(b"second", callback=lambda sent, failure: answered.append(failure))
        with (
            pytest.raises(OperationTimeoutError, match="quota"),
            Client(broker.service_url, operation_timeout_s=3) as impatient,
        ):
            impatient.create_producer(TOPIC)
        assert answered == []
        clear(broker)
        producer.flush()
        assert answered == [None]
        assert [consumer.receive(20).value for _ in range(2)] == [b"first", b"second"]


def test_a_producer_fails_under_the_policy_exception(broker: RunningBroker) -> None:
    """7.3: producer_exception: what waits fails with the broker's own error, and so does a new producer. The one that
    was sent away goes on trying, as the Java client's does on Apache Pulsar; it had ended for good."""
    with Client(broker.service_url) as client, client.subscribe(TOPIC, "s"):
        producer = client.create_producer(TOPIC)
        producer.send(b"first")
        set_quota(broker, "producer_exception")
        wait_until_sent_away(broker)
        for _ in range(2):
            with pytest.raises(ProducerBlockedQuotaException):
                producer.send(b"second")
        with pytest.raises(ProducerBlockedQuotaException):
            client.create_producer(TOPIC)
        clear(broker)
        client.create_producer(TOPIC).send(b"third")
        clear(broker)
        assert sent_in_the_end(producer, b"fourth")


def test_an_evicted_backlog_is_not_delivered(broker: RunningBroker) -> None:
    """7.3: consumer_backlog_eviction: producers go on, the oldest messages are gone for those who come late."""
    with Client(broker.service_url) as client:
        client.subscribe(TOPIC, "s").close()
        with client.create_producer(TOPIC, batching_enabled=False) as producer:
            for number in range(20):
                producer.send(b"%d" % number)
            set_quota(broker, "consumer_backlog_eviction")
            with AdminApi(broker.http_url, timeout_s=20) as admin:
                while admin.topic_stats(NAME, 0)["subscriptions"]["s"]["msgBacklog"]:
                    pass
            producer.send(b"late")
            with AdminApi(broker.http_url, timeout_s=20) as admin:
                admin.remove_policy(NAME, "backlogQuota")
        with client.subscribe(TOPIC, "s") as consumer:
            assert consumer.receive(20).value == b"late"
