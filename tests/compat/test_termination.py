# SPDX-License-Identifier: Apache-2.0
"""Terminated topics as clients see them: the official one, ours, and the bare protocol."""

import http.client
import json
from urllib.parse import urlsplit

import pulsar
import pytest

from broker_core.base.errors import TopicTerminatedError
from broker_core.client import Client
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire import commands
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandAck
from tests.compat.receiving import receive, texts


def terminate(broker: RunningBroker, topic: str) -> tuple[int, int]:
    """Ledger and entry of the last message."""
    connection = http.client.HTTPConnection(urlsplit(broker.http_url).netloc, timeout=30)
    connection.request("POST", f"/admin/v2/{topic.replace('://', '/')}/terminate")
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    assert answer.status == 200, content
    last = json.loads(content)
    return last["ledgerId"], last["entryId"]


def test_the_official_client_hears_of_it_and_keeps_reading(
    broker: RunningBroker, client: pulsar.Client, topic: str
) -> None:
    """7.5: its producer fails for good; its consumer, which does not know the command for the end, is not disturbed."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    last = producer.send(b"last")
    assert terminate(broker, topic) == (last.ledger_id(), last.entry_id())
    with pytest.raises(pulsar.TopicTerminated):
        producer.send(b"late")
    with pytest.raises(pulsar.TopicTerminated):
        client.create_producer(topic)
    messages = receive(consumer, 1)
    assert texts(messages) == ["last"]
    consumer.acknowledge(messages[0])
    assert consumer.is_connected()
    assert texts(receive(client.subscribe(topic, "other", initial_position=pulsar.InitialPosition.Earliest), 1)) == [
        "last"
    ]
    assert consumer.is_connected()


def test_our_client_hears_of_it(broker: RunningBroker, topic: str) -> None:
    """7.5: sends fail with the reason, also after a restart of the broker."""
    with Client(broker.service_url) as client:
        producer = client.create_producer(topic)
        last = producer.send("last")
        assert terminate(broker, topic) == (last.ledger, last.entry)
        with pytest.raises(TopicTerminatedError):
            producer.send("late")
        broker.restart()
        with pytest.raises(TopicTerminatedError):
            client.create_producer(topic)


def test_the_end_on_the_wire(broker: RunningBroker, topic: str) -> None:
    """7.5: REACHED_END_OF_TOPIC when the last message is acknowledged, not before."""
    with Client(broker.service_url) as client, RawClient(broker.service_url) as raw:
        must_succeed(raw.subscribe(topic, "s", permits=10))
        client.create_producer(topic).send("last")
        delivered = raw.next_command().message
        terminate(broker, topic)
        assert raw.ask(commands.ping()).type == BaseCommand.PONG
        ack = BaseCommand(type=BaseCommand.ACK)
        ack.ack.consumer_id = 0
        ack.ack.ack_type = CommandAck.Individual
        ack.ack.message_id.add().CopyFrom(delivered.message_id)
        assert raw.ask(ack).type == BaseCommand.REACHED_END_OF_TOPIC
