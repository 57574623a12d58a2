# SPDX-License-Identifier: Apache-2.0
"""Commands of transactions by raw frames: late, repeated and reordered, in each state of a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire import commands
from broker_core.wire.core.hot_commands import send_frame_head
from broker_core.wire.frames import encode_command
from broker_core.wire.heads import TxnId
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.server.transaction_client import (
    NO_COORDINATOR,
    NOT_ALLOWED,
    NOT_FOUND,
    OK,
    TransactionClient,
    entry,
    send_frame,
)

ASSIGN = "persistent://pulsar/system/transaction_coordinator_assign"


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[TransactionClient]:
    with TransactionClient(broker.service_url) as connected:
        yield connected


def received(client: RawClient, topic: str, subscription: str = "look") -> list[str]:
    """What a new subscription gets from the beginning on, until an ordinary message that is sent now comes."""
    with RawClient(f"pulsar://{client.socket.getpeername()[0]}:{client.socket.getpeername()[1]}") as other:
        must_succeed(other.open_producer(topic, 77))
        must_succeed(other.subscribe(topic, subscription, 78, permits=1000))
        other.send_entry(77, 0, entry("end"))
        found: list[str] = []
        while True:
            frame = other.next_frame()
            command = commands.parse_command(frame.command)
            if command.type == BaseCommand.MESSAGE:
                text = frame.body.rsplit(b"\x01", 1)[-1].decode(errors="replace")
                if text.endswith("end"):
                    return found
                found.append(text[-2:])


# -- discovery


def test_coordinators_are_found_as_partitions(client: TransactionClient, broker: RunningBroker) -> None:
    """9.2.1: by a topic that there is not, in a namespace that there is not, each by LOOKUP and a connect."""
    asked = BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata={"topic": ASSIGN, "request_id": 1})
    count = client.ask(asked).partitionMetadataResponse.partitions
    assert count == 16
    for number in range(count):
        topic = f"{ASSIGN}-partition-{number}"
        lookup = BaseCommand(type=BaseCommand.LOOKUP, lookupTopic={"topic": topic, "request_id": 2})
        assert client.ask(lookup).lookupTopicResponse.brokerServiceUrl == broker.service_url
        answer = client.connect_to(number).tcClientConnectResponse
        assert not answer.HasField("error")
    beyond = BaseCommand(type=BaseCommand.LOOKUP, lookupTopic={"topic": f"{ASSIGN}-partition-16", "request_id": 2})
    assert client.ask(beyond).lookupTopicResponse.error == NO_COORDINATOR
    assert client.connect_to(16).tcClientConnectResponse.error == NO_COORDINATOR
    assert client.connect_to(2**64 - 1).tcClientConnectResponse.error == NO_COORDINATOR


@pytest.mark.parametrize("topic", [ASSIGN, f"{ASSIGN}-partition-0", "a-sub__transaction_pending_ack"])
def test_nobody_makes_the_topics_of_coordinators(client: TransactionClient, topic: str) -> None:
    """9.2.4: neither by producing nor by subscribing."""
    assert client.open_producer(topic).type == BaseCommand.ERROR
    assert client.subscribe(topic, "s").type == BaseCommand.ERROR


# -- ids and answers


def test_new_transactions_have_new_ids_of_their_coordinator(client: TransactionClient) -> None:
    """9.1.1, 9.2.2: counted from 0 or later; an error names the coordinator that was asked."""
    first, second, other = client.new(3), client.new(3), client.new(4)
    assert second == TxnId(3, first.least_bits + 1)
    assert other.most_bits == 4
    refused = client.try_new(99)
    assert (refused.kind, refused.name.most_bits, refused.code) == (BaseCommand.NEW_TXN_RESPONSE, 99, NO_COORDINATOR)


def test_zero_is_an_id_like_any_other(data_dir: Path) -> None:
    """9.1.2, 9.1.3: presence of both fields decides; one alone is no transaction."""
    with RunningBroker(data_dir) as broker, TransactionClient(broker.service_url) as client:
        assert client.new() == TxnId(0, 0)
        must_succeed(client.open_producer("t"))
        assert client.send_in(TxnId(0, 0), "a0").type == BaseCommand.SEND_RECEIPT
        assert client.end(TxnId(0, 0), commit=False).code == OK
        assert client.send_in(TxnId(0, 0), "a1").send_error.error == NOT_ALLOWED
        client.send_entry(0, 2, entry("n2"))
        assert client.next_command().type == BaseCommand.SEND_RECEIPT
        assert received(client, "t") == ["n2"]


def test_requests_that_were_sent_together_are_all_answered(client: TransactionClient, topic: str) -> None:
    """9.4.1, 9.5.1: SEND and END in one write: the end holds all that was sent before it, and nothing behind it."""
    must_succeed(client.open_producer(topic))
    name = client.new()
    end = client.end_command(name, commit=True)
    frames = [send_frame(name, entry(f"a{number}", number), sequence_id=number) for number in range(3)]
    late = send_frame(name, entry("b0", 3), sequence_id=3)
    client.socket.sendall(b"".join(frames) + encode_command(end) + late)
    answers = [client.next_command() for _ in range(5)]
    kinds = [answer.type for answer in answers]
    assert kinds.count(BaseCommand.SEND_RECEIPT) == 3
    assert kinds.index(BaseCommand.END_TXN_RESPONSE) > 2
    assert [answer.send_error.error for answer in answers if answer.HasField("send_error")] == [NOT_ALLOWED]
    assert received(client, topic) == ["a0", "a1", "a2"]


# -- refusals beside other messages (each request in each state: test_transaction_matrix)

OPEN, COMMITTED, ABORTED, TIMED_OUT, UNKNOWN = "open", "committed", "aborted", "timed out", "unknown"
STATES = (OPEN, COMMITTED, ABORTED, TIMED_OUT, UNKNOWN)


def in_state(client: TransactionClient, topic: str, state: str) -> TxnId:
    """A transaction that has sent a0 to ``topic`` and is in ``state``."""
    if state == UNKNOWN:
        return TxnId(5, 2**40)
    must_succeed(client.open_producer(topic))
    name = client.new(ttl_ms=150 if state == TIMED_OUT else 60_000)
    assert client.send_in(name, "a0").type == BaseCommand.SEND_RECEIPT
    if state in (COMMITTED, ABORTED):
        assert client.end(name, commit=state == COMMITTED).code == OK
    while state == TIMED_OUT and client.add_partition(name, topic).code == OK:
        pass
    return name


@pytest.mark.parametrize("state", STATES)
def test_send_in_each_state(client: TransactionClient, topic: str, state: str) -> None:
    """9.4.1, 9.3.2 (T8, Go batches): without ADD_PARTITION too; refused with NotAllowed, and the producer goes on."""
    name = in_state(client, topic, state)
    must_succeed(client.open_producer(topic))
    answer = client.send_in(name, "a1", sequence_id=1)
    if state == OPEN:
        assert answer.type == BaseCommand.SEND_RECEIPT
        assert client.end(name, commit=True).code == OK
        assert received(client, topic) == ["a0", "a1"]
        return
    assert (answer.send_error.error, answer.send_error.sequence_id) == (NOT_ALLOWED, 1)
    around = [send_frame_head(0, number, 1, len(entry("n2"))) + entry("n2") for number in (2, 4)]
    client.socket.sendall(around[0] + send_frame(name, entry("a3"), sequence_id=3) + around[1])
    answers = [client.next_command() for _ in range(3)]
    assert [each.type for each in answers] == [
        BaseCommand.SEND_RECEIPT, BaseCommand.SEND_ERROR, BaseCommand.SEND_RECEIPT,
    ]  # fmt: skip
    assert answers[2].send_receipt.message_id.entryId == answers[0].send_receipt.message_id.entryId + 1
    assert received(client, topic) == (["a0"] if state == COMMITTED else []) + ["n2", "n2"]


def test_an_end_without_an_action_is_refused(client: TransactionClient) -> None:
    """9.2.2: what is left out is no commit."""
    name = client.new()
    command = client.end_command(name, commit=True)
    command.endTxn.ClearField("txn_action")
    assert client.ask(command).endTxnResponse.error == NOT_ALLOWED
    assert client.end(name, commit=True).code == OK


def test_an_end_is_asked_for_again_on_another_connection(broker: RunningBroker, topic: str) -> None:
    """9.6 (#19629): the answer was lost; the repeated request reports what has happened, after a restart too."""
    with TransactionClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        name = client.new()
        client.send_in(name, "a0")
        client.tell(client.end_command(name, commit=True))
    for _ in range(2):
        with TransactionClient(broker.service_url) as again:
            answer = again.end(name, commit=True)
            assert answer.code == OK


def test_open_transactions_survive_their_client_and_the_broker(data_dir: Path) -> None:
    """9.5.3, 9.1.1: killed with the broker, and gone on with afterwards; a new id is never an old one."""
    with RunningBroker(data_dir) as broker:
        with TransactionClient(broker.service_url) as client:
            must_succeed(client.open_producer("t"))
            name = client.new()
            client.send_in(name, "a0")
        broker.kill()
        broker.start()
        with TransactionClient(broker.service_url) as client:
            assert client.new() not in (name, TxnId(0, 0))
            must_succeed(client.open_producer("t"))
            assert client.send_in(name, "a1", sequence_id=1).type == BaseCommand.SEND_RECEIPT
            assert client.end(name, commit=True).code == OK
            assert received(client, "t") == ["a0", "a1"]


# -- what belongs to brokers among themselves, and a broker without transactions


def test_a_part_of_a_transaction_cannot_end(client: TransactionClient) -> None:
    """9.2.5: the commands of brokers among themselves are answered, and the connection goes on."""
    for kind, field in (
        (BaseCommand.END_TXN_ON_PARTITION, "endTxnOnPartition"),
        (BaseCommand.END_TXN_ON_SUBSCRIPTION, "endTxnOnSubscription"),
    ):
        command = BaseCommand(type=kind)
        getattr(command, field).request_id = 7
        getattr(command, field).txnid_most_bits = 3
        answer = getattr(client.ask(command), f"{field}Response")
        assert (answer.request_id, answer.txnid_most_bits, answer.error) == (7, 3, NOT_ALLOWED)


def test_a_broker_without_transactions_says_so(data_dir: Path) -> None:
    """9.2.3, 9.2.2: no coordinators are found, a connect is refused with Pulsar's text, each request as its kind."""
    with (
        RunningBroker(data_dir, {"transactionCoordinatorEnabled": False}) as broker,
        TransactionClient(broker.service_url) as client,
    ):
        asked = BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata={"topic": ASSIGN, "request_id": 1})
        assert client.ask(asked).partitionMetadataResponse.partitions == 0
        refused = client.connect_to(0)
        assert (refused.type, refused.error.error) == (BaseCommand.ERROR, NOT_ALLOWED)
        assert "Transactions are not enabled." in refused.error.message
        assert client.try_new().code == NOT_ALLOWED
        assert client.end(TxnId(0, 0), commit=True).code == NOT_FOUND
        must_succeed(client.open_producer("t"))
        assert client.send_in(TxnId(0, 0), "a0").send_error.error == NOT_ALLOWED
        assert client.ask(commands.ping()).type == BaseCommand.PONG


def test_a_topic_that_stores_nothing_takes_no_transactions(client: TransactionClient, topic: str) -> None:
    """9.7.6: NotAllowed for the SEND alone."""
    must_succeed(client.open_producer(topic.replace("persistent://", "non-persistent://")))
    assert client.send_in(client.new(), "a0").send_error.error == NOT_ALLOWED


def test_limits_of_ids_and_times(client: TransactionClient, topic: str) -> None:
    """9.3.1, 9.1.1: the largest numbers of the protocol are refused or cut, and nothing breaks."""
    must_succeed(client.open_producer(topic))
    huge = TxnId(2**64 - 1, 2**64 - 1)
    for answer in (client.end(huge, commit=True), client.add_partition(huge, topic)):
        assert (answer.name, answer.code) == (huge, NOT_FOUND)
    assert client.send_in(huge, "a0").send_error.error == NOT_ALLOWED
    name = client.new(ttl_ms=2**64 - 1)
    assert client.end(name, commit=True).code == OK
