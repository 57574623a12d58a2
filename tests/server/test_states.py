# SPDX-License-Identifier: Apache-2.0
"""Every command in every state: answered, dropped as Pulsar drops it, or the end of the connection."""

import pytest

from broker_core.base.errors import ConnectionLostError, IncompatibleSchemaError
from broker_core.server.conversation import RULES
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire import commands
from broker_core.wire.core.hot_commands import send_frame_head
from broker_core.wire.entry import seal_entry
from broker_core.wire.frames import encode_command
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata, Schema

FIRST = pb.MessageIdData(ledgerId=0, entryId=0)

COMMANDS: dict[int, BaseCommand] = {
    BaseCommand.CONNECT: commands.connect("test", 20),
    BaseCommand.AUTH_RESPONSE: BaseCommand(authResponse={"response": {"auth_method_name": "none"}}),
    BaseCommand.PING: commands.ping(),
    BaseCommand.PONG: commands.pong(),
    BaseCommand.PARTITIONED_METADATA: BaseCommand(partitionMetadata={"topic": "t", "request_id": 7}),
    BaseCommand.LOOKUP: BaseCommand(lookupTopic={"topic": "t", "request_id": 7}),
    BaseCommand.GET_TOPICS_OF_NAMESPACE: BaseCommand(
        getTopicsOfNamespace={"namespace": "public/default", "request_id": 7}
    ),
    BaseCommand.WATCH_TOPIC_LIST: BaseCommand(
        watchTopicList={"namespace": "public/default", "topics_pattern": ".*", "watcher_id": 5, "request_id": 7}
    ),
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: BaseCommand(watchTopicListClose={"watcher_id": 99, "request_id": 7}),
    BaseCommand.GET_SCHEMA: BaseCommand(getSchema={"topic": "t", "request_id": 7}),
    BaseCommand.GET_OR_CREATE_SCHEMA: BaseCommand(
        getOrCreateSchema={
            "topic": "t",
            "request_id": 7,
            "schema": {"name": "", "schema_data": b"", "type": "NoSchema"},
        }
    ),
    BaseCommand.PRODUCER: BaseCommand(producer={"topic": "t", "producer_id": 5, "request_id": 7}),
    BaseCommand.CLOSE_PRODUCER: BaseCommand(close_producer={"producer_id": 99, "request_id": 7}),
    BaseCommand.SUBSCRIBE: BaseCommand(
        subscribe={"topic": "t", "subscription": "s", "subType": 1, "consumer_id": 5, "request_id": 7}
    ),
    BaseCommand.CLOSE_CONSUMER: BaseCommand(close_consumer={"consumer_id": 99, "request_id": 7}),
    BaseCommand.UNSUBSCRIBE: BaseCommand(unsubscribe={"consumer_id": 99, "request_id": 7}),
    BaseCommand.FLOW: BaseCommand(flow={"consumer_id": 99, "messagePermits": 1}),
    BaseCommand.ACK: BaseCommand(ack={"consumer_id": 99, "ack_type": 0, "message_id": [FIRST]}),
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: BaseCommand(redeliverUnacknowledgedMessages={"consumer_id": 99}),
    BaseCommand.SEEK: BaseCommand(seek={"consumer_id": 99, "request_id": 7, "message_publish_time": 0}),
    BaseCommand.GET_LAST_MESSAGE_ID: BaseCommand(getLastMessageId={"consumer_id": 99, "request_id": 7}),
    BaseCommand.CONSUMER_STATS: BaseCommand(consumerStats={"consumer_id": 99, "request_id": 7}),
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: BaseCommand(tcClientConnectRequest={"tc_id": 0, "request_id": 7}),
    BaseCommand.NEW_TXN: BaseCommand(newTxn={"tc_id": 99, "request_id": 7}),
    BaseCommand.ADD_PARTITION_TO_TXN: BaseCommand(addPartitionToTxn={"txnid_most_bits": 99, "request_id": 7}),
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: BaseCommand(addSubscriptionToTxn={"txnid_most_bits": 99, "request_id": 7}),
    BaseCommand.END_TXN: BaseCommand(endTxn={"txnid_most_bits": 99, "request_id": 7, "txn_action": 1}),
    BaseCommand.END_TXN_ON_PARTITION: BaseCommand(endTxnOnPartition={"request_id": 7}),
    BaseCommand.END_TXN_ON_SUBSCRIPTION: BaseCommand(endTxnOnSubscription={"request_id": 7}),
}
for _kind, _command in COMMANDS.items():
    _command.type = _kind  # type: ignore[assignment] # the keys are members of the enumeration

ANSWERS: dict[int, int | None] = {
    BaseCommand.AUTH_RESPONSE: None,
    BaseCommand.PING: BaseCommand.PONG,
    BaseCommand.PONG: None,
    BaseCommand.PARTITIONED_METADATA: BaseCommand.PARTITIONED_METADATA_RESPONSE,
    BaseCommand.LOOKUP: BaseCommand.LOOKUP_RESPONSE,
    BaseCommand.GET_TOPICS_OF_NAMESPACE: BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
    BaseCommand.WATCH_TOPIC_LIST: BaseCommand.WATCH_TOPIC_LIST_SUCCESS,
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: BaseCommand.SUCCESS,
    BaseCommand.GET_SCHEMA: BaseCommand.GET_SCHEMA_RESPONSE,
    BaseCommand.GET_OR_CREATE_SCHEMA: BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE,
    BaseCommand.PRODUCER: BaseCommand.PRODUCER_SUCCESS,
    BaseCommand.CLOSE_PRODUCER: BaseCommand.SUCCESS,
    BaseCommand.SUBSCRIBE: BaseCommand.SUCCESS,
    BaseCommand.CLOSE_CONSUMER: BaseCommand.SUCCESS,
    BaseCommand.UNSUBSCRIBE: BaseCommand.ERROR,
    BaseCommand.FLOW: None,
    BaseCommand.ACK: None,
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: None,
    BaseCommand.SEEK: BaseCommand.ERROR,
    BaseCommand.GET_LAST_MESSAGE_ID: BaseCommand.ERROR,
    BaseCommand.CONSUMER_STATS: BaseCommand.ERROR,
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: BaseCommand.TC_CLIENT_CONNECT_RESPONSE,
    BaseCommand.NEW_TXN: BaseCommand.NEW_TXN_RESPONSE,
    BaseCommand.ADD_PARTITION_TO_TXN: BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
    BaseCommand.END_TXN: BaseCommand.END_TXN_RESPONSE,
    BaseCommand.END_TXN_ON_PARTITION: BaseCommand.END_TXN_ON_PARTITION_RESPONSE,
    BaseCommand.END_TXN_ON_SUBSCRIPTION: BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE,
}
"""What a connected client gets for each of COMMANDS, which name no producer or consumer that exists; None: nothing."""


def name_of(kind: int) -> str:
    return BaseCommand.Type.Name(kind)


def test_the_tables_cover_every_command() -> None:
    """A new command must say how it behaves in each state."""
    assert set(COMMANDS) == set(RULES)
    assert set(ANSWERS) | {BaseCommand.CONNECT} == set(RULES)


@pytest.mark.parametrize(
    "kind", sorted(set(COMMANDS) - {BaseCommand.CONNECT, BaseCommand.PING, BaseCommand.PONG}), ids=name_of
)
def test_before_connect_a_command_ends_the_connection(broker: RunningBroker, kind: int) -> None:
    """Row 30: nothing but the handshake and keep-alive is served to a stranger."""
    with RawClient(broker.service_url, connect=False) as client:
        answer = client.ask(COMMANDS[kind])
        assert answer.type == BaseCommand.ERROR
        assert "not allowed in state start" in answer.error.message
        assert client.ended_by_broker()


def test_before_connect_a_send_ends_the_connection(broker: RunningBroker) -> None:
    """SEND has a path of its own, which must not be a way around the table."""
    with RawClient(broker.service_url, connect=False) as client:
        client.send_entry(0, 0, b"anything")
        assert "before CONNECT" in client.next_command().error.message
        assert client.ended_by_broker()


def test_before_connect_a_ping_is_answered(broker: RunningBroker) -> None:
    """As in Pulsar; the time for CONNECT goes on all the same."""
    with RawClient(broker.service_url, connect=False) as client:
        assert client.ask(commands.ping()).type == BaseCommand.PONG


def test_a_second_connect_ends_the_connection(broker: RunningBroker) -> None:
    """As in Pulsar."""
    with RawClient(broker.service_url) as client:
        assert client.ask(COMMANDS[BaseCommand.CONNECT]).type == BaseCommand.ERROR
        assert client.ended_by_broker()


@pytest.mark.parametrize("kind", sorted(ANSWERS), ids=name_of)
def test_a_connected_client_gets_the_answer_of_its_command(broker: RunningBroker, kind: int) -> None:
    """Unknown producers and consumers are an ERROR where there is a request id, and silence where there is none."""
    with RawClient(broker.service_url) as client:
        client.tell(COMMANDS[kind], commands.ping())
        answer = client.next_command()
        expected = ANSWERS[kind]
        if expected is None or kind == BaseCommand.PING:
            assert answer.type == BaseCommand.PONG
        else:
            assert answer.type == expected
            assert client.next_command().type == BaseCommand.PONG


@pytest.mark.parametrize(
    "kind", [BaseCommand.CONNECTED, BaseCommand.SUCCESS, BaseCommand.ERROR, BaseCommand.SEND_RECEIPT], ids=name_of
)
def test_a_command_of_a_broker_ends_the_connection(broker: RunningBroker, kind: BaseCommand.Type) -> None:
    """A client has no business sending it."""
    command = {
        BaseCommand.CONNECTED: commands.connected("x", 20, 1),
        BaseCommand.SUCCESS: commands.success(1),
        BaseCommand.ERROR: BaseCommand(type=BaseCommand.ERROR, error={"request_id": 1, "error": 0, "message": ""}),
        BaseCommand.SEND_RECEIPT: BaseCommand(
            type=BaseCommand.SEND_RECEIPT, send_receipt={"producer_id": 0, "sequence_id": 0}
        ),
    }[kind]
    with RawClient(broker.service_url) as client:
        assert "not a command of a client" in client.ask(command).error.message
        assert client.ended_by_broker()


def test_a_send_for_an_unknown_producer_is_dropped(broker: RunningBroker) -> None:
    """It crosses with the broker's CLOSE_PRODUCER whenever a topic is unloaded."""
    body = seal_entry(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString(), b"x")
    with RawClient(broker.service_url) as client:
        client.send_entry(77, 0, body)
        assert client.ask(commands.ping()).type == BaseCommand.PONG


def test_the_same_producer_and_consumer_id_again_is_confirmed_not_doubled(broker: RunningBroker, topic: str) -> None:
    """A client that lost patience asks again."""
    with RawClient(broker.service_url) as client:
        first = must_succeed(client.open_producer(topic, 3))
        second = must_succeed(client.open_producer(topic, 3))
        assert first.producer_success.producer_name == second.producer_success.producer_name
        must_succeed(client.subscribe(topic, "s", 3))
        must_succeed(client.subscribe(topic, "s", 3))


def test_a_producer_is_told_an_empty_schema_version(broker: RunningBroker, topic: str) -> None:
    """Java clients up to 4.0 read it without asking whether it is there, fail, and connect again for ever."""
    with RawClient(broker.service_url) as client:
        made = must_succeed(client.open_producer(topic)).producer_success
    assert made.HasField("schema_version")
    assert made.schema_version == b""


@pytest.mark.parametrize(("size", "taken"), [(5_200_000, True), (5_260_000, False)])
def test_a_schema_may_be_as_large_as_a_frame(broker: RunningBroker, topic: str, size: int, taken: bool) -> None:
    """1.3.1: these are Apache Pulsar's bounds, too: with a larger one than a frame holds the connection ends. One that
    is only larger than what is kept is refused."""
    command = BaseCommand(type=BaseCommand.PRODUCER)
    command.producer.topic, command.producer.producer_id, command.producer.request_id = topic, 1, 2
    command.producer.schema.CopyFrom(Schema(name="s", schema_data=b"x" * size, type=Schema.Avro))
    with RawClient(broker.service_url) as client:
        if taken:
            assert client.ask(command).error.error == IncompatibleSchemaError.code
            assert client.ask(commands.ping()).type == BaseCommand.PONG
        else:
            with pytest.raises((ConnectionLostError, OSError)):
                client.ask(command)


def test_a_producer_may_come_back_over_the_connection_that_it_was_taken_from(broker: RunningBroker, topic: str) -> None:
    """1.7.1: each of its connections is newer than the one before, whichever it is; the last one has it."""
    body = seal_entry(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString(), b"x")
    with RawClient(broker.service_url) as one, RawClient(broker.service_url) as other:
        for epoch, client in enumerate((one, other, one)):
            command = BaseCommand(
                type=BaseCommand.PRODUCER, producer={"topic": topic, "producer_id": 0, "request_id": 7}
            )
            command.producer.producer_name, command.producer.user_provided_producer_name = "generated", False
            command.producer.epoch = epoch
            assert client.ask(command).producer_success.producer_ready
            client.send_entry(0, epoch, body)
            assert client.next_command().type == BaseCommand.SEND_RECEIPT


def test_closing_a_producer_is_answered_after_its_receipts(broker: RunningBroker, topic: str) -> None:
    """Else the client would take its unanswered sends for lost."""
    body = seal_entry(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString(), b"x")
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic, 0))
        for number in range(10):
            client.send_entry(0, number, body)
        client.tell(commands.close_producer(0, 5))
        kinds = [client.next_command().type for _ in range(11)]
    assert kinds == [BaseCommand.SEND_RECEIPT] * 10 + [BaseCommand.SUCCESS]


def test_a_producer_id_can_be_used_again_right_behind_its_close(broker: RunningBroker, topic: str) -> None:
    """Receipts of the former one may be on their way: a client that starts over does not wait for them."""
    body = seal_entry(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString(), b"x")
    with RawClient(broker.service_url) as client:
        former = must_succeed(client.open_producer(topic, 0))
        again = BaseCommand(type=BaseCommand.PRODUCER)
        again.producer.topic, again.producer.producer_id, again.producer.request_id = topic, 0, 6
        client.socket.sendall(
            send_frame_head(0, 0, 1, len(body))
            + body
            + encode_command(commands.close_producer(0, 5))
            + encode_command(again)
        )
        answers = {each.type: each for each in [client.next_command() for _ in range(3)]}
        made = answers[BaseCommand.PRODUCER_SUCCESS].producer_success
        assert (made.request_id, made.producer_ready) == (6, True)
        assert made.producer_name != former.producer_success.producer_name
        assert answers[BaseCommand.SUCCESS].success.request_id == 5
        assert answers[BaseCommand.SEND_RECEIPT].send_receipt.sequence_id == 0
        client.send_entry(0, 1, body)
        assert client.next_command().send_receipt.sequence_id == 1
        client.tell(commands.close_producer(0, 7))
        assert client.next_command().success.request_id == 7


def test_ids_may_be_zero_or_the_largest_number(broker: RunningBroker, topic: str) -> None:
    """Ids start at 0, which is a number like any other."""
    with RawClient(broker.service_url) as client:
        for producer_id in (0, 2**64 - 1):
            command = BaseCommand(type=BaseCommand.PRODUCER)
            command.producer.topic = topic
            command.producer.producer_id = command.producer.request_id = producer_id
            assert client.ask(command).producer_success.request_id == producer_id


def test_what_a_connection_had_is_redelivered_once_when_it_is_hung_up(broker: RunningBroker) -> None:
    """2.4.9, 4.4.3: not once to each of its own consumers, which go too; the counts lead to the dead letter topic."""
    topic = "hung-up"
    with RawClient(broker.service_url) as producer, RawClient(broker.service_url) as heir:
        must_succeed(producer.open_producer(topic))
        shared = pb.CommandSubscribe.Shared
        must_succeed(heir.subscribe(topic, "s", kind=shared))
        with RawClient(broker.service_url) as client:
            for consumer_id in range(3):
                must_succeed(client.subscribe(topic, "s", consumer_id, kind=shared, permits=10))
            metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
            producer.send_entry(0, 0, seal_entry(metadata.SerializeToString(), b"x"))
            assert client.next_command().type == BaseCommand.MESSAGE
            client.tell(COMMANDS[BaseCommand.CONNECT])
            assert client.ended_by_broker()
        heir.flow(0, 10)
        assert heir.next_command().message.redelivery_count == 1


def test_sends_of_two_producers_in_one_write_are_stored_as_they_were_sent(broker: RunningBroker, topic: str) -> None:
    """1.7.7 Sends of one producer that follow each other are taken together, which nobody can tell."""
    turns = [0, 0, 1, 0, 1, 1, 1, 0]
    with RawClient(broker.service_url) as client:
        for producer_id in (0, 1):
            must_succeed(client.open_producer(topic, producer_id=producer_id))
        entry = seal_entry(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString(), b"x")
        heads = [send_frame_head(turn, number, 1, len(entry)) for number, turn in enumerate(turns)]
        client.socket.sendall(b"".join(head + entry for head in heads))
        receipts = [client.next_command().send_receipt for _ in turns]
    places = [(each.message_id.entryId, each.producer_id, each.sequence_id) for each in receipts]
    assert places == [(number, turn, number) for number, turn in enumerate(turns)]


def test_a_pattern_that_is_too_long_is_refused_as_pulsar_does(broker: RunningBroker) -> None:
    """7.12: its limit and its words; the client looks by itself then."""
    command = BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST)
    watch = command.watchTopicList
    watch.namespace, watch.watcher_id, watch.request_id = "public/default", 5, 7
    with RawClient(broker.service_url) as client:
        watch.topics_pattern = "x" * 50
        assert client.ask(command).type == BaseCommand.WATCH_TOPIC_LIST_SUCCESS
        watch.topics_pattern += "x"
        assert "longer than maximum: 50" in client.ask(command).error.message
