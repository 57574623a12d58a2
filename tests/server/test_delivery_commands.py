# SPDX-License-Identifier: Apache-2.0
"""Deliveries and acknowledgements byte by byte: what no client of our own shows, and what none of them would send."""

from __future__ import annotations

import pytest

from broker_core.base.positions import Position
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.commands import message_id
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandMessage,
    CommandSubscribe,
    MessageIdData,
    MessageMetadata,
    ServerError,
)

NO_TEXT = b"\xff\xfe"
PLAIN = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString()


def publish(client: RawClient, topic: str, *entries: bytes) -> list[MessageIdData]:
    """The first entries of a topic, from their metadata; where they are."""
    must_succeed(client.open_producer(topic))
    places = []
    for number, metadata in enumerate(entries):
        client.send_entry(0, number, seal_entry(metadata, b"value"))
        places.append(next_of(client, BaseCommand.SEND_RECEIPT).send_receipt.message_id)
    return places


def subscribe(client: RawClient, topic: str, kind: CommandSubscribe.SubType, epoch: int | None = None) -> None:
    """Consumer 0, which knows of epochs if ``epoch`` says so."""
    command = BaseCommand(type=BaseCommand.SUBSCRIBE)
    body = command.subscribe
    body.topic, body.subscription, body.subType = topic, "s", kind
    body.consumer_id, body.request_id, body.initialPosition = 0, 1, CommandSubscribe.Earliest
    if epoch is not None:
        body.consumer_epoch = epoch
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


def redeliver(client: RawClient, *ids: MessageIdData) -> None:
    command = BaseCommand(type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
    command.redeliverUnacknowledgedMessages.consumer_id = 0
    command.redeliverUnacknowledgedMessages.message_ids.extend(ids)
    client.tell(command)


@pytest.mark.parametrize("kind", [CommandSubscribe.Exclusive, CommandSubscribe.Failover])
def test_messages_bear_the_epoch_in_which_they_were_sent(
    broker: RunningBroker, topic: str, kind: CommandSubscribe.SubType
) -> None:
    """2.3.5.3: by that a client tells what was under way when it asked for everything again from what came after."""
    with RawClient(broker.service_url) as client:
        publish(client, topic, PLAIN, PLAIN)
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


def test_an_epoch_never_falls(broker: RunningBroker, topic: str) -> None:
    """2.3.5.3: a request of a former epoch is served all the same, as Apache Pulsar 4.2.4 does, in the newest."""
    with RawClient(broker.service_url) as client:
        publish(client, topic, PLAIN)
        subscribe(client, topic, CommandSubscribe.Exclusive, epoch=3)
        epochs = [messages(client, 1)[0].consumer_epoch]
        for asked in (1, 5, 4):
            redeliver_all(client, asked)
            epochs.append(messages(client, 1)[0].consumer_epoch)
    assert epochs == [3, 3, 5, 5]


@pytest.mark.parametrize(("kind", "epoch"), [(CommandSubscribe.Exclusive, None), (CommandSubscribe.Shared, 3)])
def test_messages_bear_no_epoch_where_it_means_nothing(
    broker: RunningBroker, topic: str, kind: CommandSubscribe.SubType, epoch: int | None
) -> None:
    """2.3.5.3: not to a client that named none, nor where no order is kept."""
    with RawClient(broker.service_url) as client:
        publish(client, topic, PLAIN)
        subscribe(client, topic, kind, epoch)
        (message,) = messages(client, 1)
    assert not message.HasField("consumer_epoch")


@pytest.mark.parametrize("kind", CommandSubscribe.SubType.values())
def test_a_compacted_read_is_for_types_that_keep_order(
    broker: RunningBroker, topic: str, kind: CommandSubscribe.SubType
) -> None:
    """7.4.7: it is refused on Shared and Key_Shared."""
    command = BaseCommand(type=BaseCommand.SUBSCRIBE)
    body = command.subscribe
    body.topic, body.subscription, body.subType = topic, "s", kind
    body.consumer_id, body.request_id, body.read_compacted = 0, 1, True
    with RawClient(broker.service_url) as client:
        client.tell(command)
        answer = next_of(client, BaseCommand.SUCCESS)
    refused = kind in (CommandSubscribe.Shared, CommandSubscribe.Key_Shared)
    assert (answer.error.error == ServerError.NotAllowedError) == refused


def test_a_compacted_read_is_of_stored_topics(broker: RunningBroker, topic: str) -> None:
    """7.4.7: a topic that stores nothing has no view."""
    command = BaseCommand(type=BaseCommand.SUBSCRIBE)
    body = command.subscribe
    body.topic, body.subscription, body.subType = f"non-{topic}", "s", CommandSubscribe.Exclusive
    body.consumer_id, body.request_id, body.read_compacted = 0, 1, True
    with RawClient(broker.service_url) as client:
        client.tell(command)
        answer = next_of(client, BaseCommand.SUCCESS)
    assert answer.error.error == ServerError.NotAllowedError


def test_acks_that_arrive_together_count_each_for_its_consumer(broker: RunningBroker, topic: str) -> None:
    """3.1.1, 3.3.2: of several consumers and subscriptions, of what others hold, of nobody; then one with a receipt."""
    shared = CommandSubscribe.Shared
    with RawClient(broker.service_url) as client:
        ids = publish(client, topic, *[PLAIN] * 6)
        for consumer_id, subscription in enumerate(("s", "s", "t")):
            must_succeed(client.subscribe(topic, subscription, consumer_id, kind=shared))
        for consumer_id in range(3):
            client.flow(consumer_id, 1000)
        unknown = 9
        acks = [ack_of(0, ids[0]), ack_of(1, ids[1]), ack_of(0, ids[1]), ack_of(2, ids[0], ids[2])]
        client.tell(*acks, ack_of(unknown, ids[5]), ack_of(1, ids[3], request_id=5))
        assert not next_of(client, BaseCommand.ACK_RESPONSE).ackResponse.HasField("error")
    for subscription, left in (("s", [2, 4, 5]), ("t", [1, 3, 4, 5])):
        with RawClient(broker.service_url) as client:
            must_succeed(client.subscribe(topic, subscription, kind=shared, permits=1000))
            assert [message.message_id.entryId for message in messages(client, len(left))] == left


def ack_of(consumer_id: int, *ids: MessageIdData, request_id: int | None = None) -> BaseCommand:
    """An ACK of whole entries, each by itself."""
    ack = CommandAck(consumer_id=consumer_id, ack_type=CommandAck.Individual, message_id=ids, request_id=request_id)
    return BaseCommand(type=BaseCommand.ACK, ack=ack)


def acknowledge(client: RawClient, *ids: MessageIdData) -> BaseCommand:
    """The answer to an ack of consumer 0."""
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.CopyFrom(CommandAck(consumer_id=0, ack_type=CommandAck.Individual, message_id=ids, request_id=5))
    client.tell(command)
    return next_of(client, BaseCommand.ACK_RESPONSE)


@pytest.mark.parametrize(
    "poison",
    [
        b"\x0a\x02" + NO_TEXT + b"\x10\x00\x18\x01",  # the name of the producer
        PLAIN + b"\x32\x02" + NO_TEXT,  # the key
        PLAIN + b"\xd2\x01\x02" + NO_TEXT + b"\xd8\x01\x02\xe8\x01\x00",  # the uuid of chunks
    ],
)
@pytest.mark.parametrize("kind", [CommandSubscribe.Shared, CommandSubscribe.Key_Shared])
def test_text_that_is_none_holds_up_nobody(
    broker: RunningBroker, topic: str, kind: CommandSubscribe.SubType, poison: bytes
) -> None:
    """1.5, 2.9: nobody checks the text in an entry; whatever it is, the entry and those around it are delivered."""
    with RawClient(broker.service_url) as client:
        publish(client, topic, PLAIN, poison, PLAIN)
        subscribe(client, topic, kind)
        assert sorted(each.message_id.entryId for each in messages(client, 3)) == [0, 1, 2]


def test_an_ack_set_of_millions_of_words_holds_up_nobody(broker: RunningBroker, topic: str) -> None:
    """3.1.6, 3.4.3: what an ack set says beyond the end of its batch means nothing, and costs next to nothing."""
    with RawClient(broker.service_url) as client:
        place, _ = publish(client, topic, PLAIN, PLAIN)
        subscribe(client, topic, CommandSubscribe.Shared)
        messages(client, 2)
        place.ack_set.extend([4] + [5] * 2_500_000)
        assert not acknowledge(client, place).ackResponse.HasField("error")
        redeliver_all(client, 0)
        assert [each.message_id.entryId for each in messages(client, 1)] == [1]


@pytest.mark.parametrize("kind", [CommandSubscribe.Shared, CommandSubscribe.Key_Shared])
def test_ids_that_make_no_sense_change_nothing(
    broker: RunningBroker, topic: str, kind: CommandSubscribe.SubType
) -> None:
    """3.3.4, 4.4.1, 4.1.2: of no entry, of other topics, of the future; each ack has an answer, the rest is ignored."""
    with RawClient(broker.service_url) as client:
        place, *_ = publish(client, topic, PLAIN, PLAIN, PLAIN)
        subscribe(client, topic, kind)
        messages(client, 3)
        ledger = place.ledgerId
        nowhere = [(-1, -1), (-(2**63), 0), (0, 0), (ledger, -1), (ledger - 1, 5)]
        future = [(ledger, 3), (ledger, 2**40), (ledger + 1, 0), (2**63 - 1, 2**63 - 1)]
        for where in nowhere + future:
            for ack_set in ([], [0], [-1, -1]):
                wrong = message_id(Position(*where), ack_set=ack_set)
                assert acknowledge(client, wrong, wrong).ackResponse.HasField("error") is (where in future), where
                redeliver(client, wrong, wrong)
        for consumer_id, permits in ((0, 0), (0, 2**32 - 1), (77, 1)):
            client.flow(consumer_id, permits)
        redeliver_all(client, 0)
        again = sorted((each.message_id.entryId, each.redelivery_count) for each in messages(client, 3))
        assert again == [(0, 1), (1, 1), (2, 1)]
