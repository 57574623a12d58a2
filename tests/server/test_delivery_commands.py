# SPDX-License-Identifier: Apache-2.0
"""What the broker says to a consumer about deliveries, byte by byte, where no client of our own would show it."""

from __future__ import annotations

import pytest

from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandMessage, CommandSubscribe, MessageMetadata


def publish(client: RawClient, topic: str, count: int) -> None:
    """Entries 0 to ``count`` - 1 of a new topic."""
    must_succeed(client.open_producer(topic))
    for number in range(count):
        metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
        client.send_entry(0, number, seal_entry(metadata.SerializeToString(), b"value"))
        assert client.next_command().type == BaseCommand.SEND_RECEIPT


def subscribe(client: RawClient, topic: str, kind: CommandSubscribe.SubType, epoch: int | None) -> None:
    """Consumer 0, which knows of epochs if ``epoch`` says so."""
    command = BaseCommand(type=BaseCommand.SUBSCRIBE)
    wish = command.subscribe
    wish.topic, wish.subscription, wish.subType = topic, "s", kind
    wish.consumer_id, wish.request_id, wish.initialPosition = 0, 1, CommandSubscribe.Earliest
    if epoch is not None:
        wish.consumer_epoch = epoch
    client.tell(command)
    client.flow(0, 1000)
    must_succeed(next_of(client, BaseCommand.SUCCESS))


def next_of(client: RawClient, kind: BaseCommand.Type) -> BaseCommand:
    """The next command of that type; others before it are news that a test does not ask about."""
    while (command := client.next_command()).type not in (kind, BaseCommand.ERROR):
        pass
    return command


def messages(client: RawClient, count: int) -> list[CommandMessage]:
    return [next_of(client, BaseCommand.MESSAGE).message for _ in range(count)]


def redeliver_all(client: RawClient, epoch: int) -> None:
    command = BaseCommand(type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
    command.redeliverUnacknowledgedMessages.consumer_id = 0
    command.redeliverUnacknowledgedMessages.consumer_epoch = epoch
    client.tell(command)


@pytest.mark.parametrize("kind", [CommandSubscribe.Exclusive, CommandSubscribe.Failover])
def test_messages_bear_the_epoch_in_which_they_were_sent(
    broker: RunningBroker, topic: str, kind: CommandSubscribe.SubType
) -> None:
    """2.3.5.3: by that a client tells what was under way when it asked for everything again from what came after."""
    with RawClient(broker.service_url) as client:
        publish(client, topic, 2)
        subscribe(client, topic, kind, epoch=3)
        first = messages(client, 2)
        redeliver_all(client, 4)
        again = messages(client, 2)
    assert [(each.message_id.entryId, each.consumer_epoch) for each in first + again] == [
        (0, 3),
        (1, 3),
        (0, 4),
        (1, 4),
    ]


@pytest.mark.parametrize(("kind", "epoch"), [(CommandSubscribe.Exclusive, None), (CommandSubscribe.Shared, 3)])
def test_messages_bear_no_epoch_where_it_means_nothing(
    broker: RunningBroker, topic: str, kind: CommandSubscribe.SubType, epoch: int | None
) -> None:
    """2.3.5.3: not to a client that named none, nor where no order is kept."""
    with RawClient(broker.service_url) as client:
        publish(client, topic, 1)
        subscribe(client, topic, kind, epoch)
        (message,) = messages(client, 1)
    assert not message.HasField("consumer_epoch")
