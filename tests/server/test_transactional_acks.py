# SPDX-License-Identifier: Apache-2.0
"""ACK with the id of a transaction on the wire: its answer, its codes, and what the broker does."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from broker_core.base.errors import (
    ConsumerNotFoundError,
    InvalidTxnStatusError,
    NotAllowedError,
    TransactionConflictError,
    TransactionNotFoundError,
)
from broker_core.testing.raw_client import must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.heads import TxnId
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandAck, CommandSubscribe, MessageIdData
from tests.server.transaction_client import TransactionClient, entry

SHARED = CommandSubscribe.Shared


class Acks(TransactionClient):
    """One consumer on one subscription, and a transaction."""

    def receive(self, topic: str, count: int) -> list[MessageIdData]:
        """Send that many messages, and subscribe to them."""
        must_succeed(self.open_producer(topic))
        for number in range(count):
            self.send_entry(0, number, entry(str(number), number))
            assert self.next_command().type == BaseCommand.SEND_RECEIPT
        must_succeed(self.subscribe(topic, "s", permits=100, kind=SHARED))
        return [self.next_message() for _ in range(count)]

    def next_message(self) -> MessageIdData:
        command = self.next_command()
        assert command.type == BaseCommand.MESSAGE, command
        return command.message.message_id

    def ack_in(
        self,
        name: TxnId,
        *ids: MessageIdData,
        kind: int = CommandAck.Individual,
        consumer_id: int = 0,
    ) -> int:
        """The code of the answer, which names the consumer, the request and the transaction."""
        command = ack_command(name, *ids, kind=kind, consumer_id=consumer_id)
        command.ack.request_id = self.request_id()
        answer = self.ask(command)
        assert answer.type == BaseCommand.ACK_RESPONSE
        response = answer.ackResponse
        assert (response.consumer_id, response.request_id) == (consumer_id, command.ack.request_id)
        assert response.HasField("txnid_most_bits")
        assert response.HasField("txnid_least_bits")
        assert (response.txnid_most_bits, response.txnid_least_bits) == name
        return response.error if response.HasField("error") else 0


def ack_command(
    name: TxnId, *ids: MessageIdData, kind: int = CommandAck.Individual, consumer_id: int = 0
) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id = consumer_id
    command.ack.ack_type = kind  # type: ignore[assignment]
    command.ack.message_id.extend(ids)
    command.ack.txnid_most_bits, command.ack.txnid_least_bits = name
    return command


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[Acks]:
    with Acks(broker.service_url) as connected:
        yield connected


def test_it_is_answered_and_committed(client: Acks, topic: str) -> None:
    """9.8.1, 9.1.2: the answer has the ids of the transaction, those of (0, 0) too; the commit is for good."""
    first, second = client.receive(topic, 2)
    name = client.new()
    assert client.ack_in(name, first) == 0
    assert client.end(name, commit=True).code == 0
    other = client.new()
    assert client.ack_in(other, first) == TransactionConflictError.code
    assert client.ack_in(other, second) == 0


def test_codes_of_refusals(client: Acks, topic: str) -> None:
    """9.8.1 to 9.8.3: conflict, no such transaction, one that is over, no such consumer, and what cannot be."""
    first, second = client.receive(topic, 2)
    one, two, over = client.new(), client.new(), client.new()
    assert client.end(over, commit=False).code == 0
    assert client.ack_in(one, first) == 0
    assert client.ack_in(one, first) == 0, "a repeat"
    assert client.ack_in(two, first) == TransactionConflictError.code
    assert client.ack_in(two, second, first) == TransactionConflictError.code
    assert client.ack_in(TxnId(0, 1 << 40), second) == TransactionNotFoundError.code
    assert client.ack_in(over, second) == InvalidTxnStatusError.code
    assert client.ack_in(two, second, consumer_id=9) == ConsumerNotFoundError.code
    assert client.ack_in(two, second, kind=CommandAck.Cumulative) == NotAllowedError.code
    assert client.ack_in(two, second) == 0, "none of them has changed anything"


def test_an_abort_delivers_again(client: Acks, topic: str) -> None:
    """9.8.7: to the consumer that is there, with a redelivery count."""
    (first,) = client.receive(topic, 1)
    name = client.new()
    assert client.ack_in(name, first) == 0
    client.tell(client.end_command(name, commit=False))
    answers = {command.type: command for command in (client.next_command(), client.next_command())}
    assert answers[BaseCommand.END_TXN_RESPONSE].endTxnResponse.HasField("error") is False
    again = answers[BaseCommand.MESSAGE].message
    assert (again.message_id.entryId, again.redelivery_count) == (first.entryId, 1)


def test_it_is_done_without_a_request_id_too(client: Acks, topic: str) -> None:
    """9.8.1: no client sends such an ACK; nobody is answered, and it counts."""
    (first,) = client.receive(topic, 1)
    one, two = client.new(), client.new()
    client.tell(ack_command(one, first))
    assert client.ack_in(two, first) == TransactionConflictError.code


def test_ordinary_acks_before_it_come_first(client: Acks, topic: str) -> None:
    """9.8.2: those that were gathered for the end of the turn."""
    (first,) = client.receive(topic, 1)
    name = client.new()
    ordinary = BaseCommand(type=BaseCommand.ACK)
    ordinary.ack.consumer_id = 0
    ordinary.ack.ack_type = CommandAck.Individual
    ordinary.ack.message_id.add().CopyFrom(first)
    client.tell(ordinary)
    assert client.ack_in(name, first) == TransactionConflictError.code


def test_a_list_that_is_read_in_steps_is_one_acknowledgement(client: Acks, topic: str) -> None:
    """9.8.2: ten thousand ids, of which the last conflicts; nothing of it is pending then."""
    first, second = client.receive(topic, 2)
    one, two = client.new(), client.new()
    assert client.ack_in(one, second) == 0
    many = [first] * 10_000
    assert client.ack_in(two, *many, second) == TransactionConflictError.code
    assert client.ack_in(one, *many, second) == 0
    assert client.ack_in(two, first) == TransactionConflictError.code


def test_the_end_of_a_transaction_comes_between_the_steps_of_a_list(
    client: Acks, broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """9.8.2, 9.5.1 (T13): by another connection; either all of the list is acknowledged, or none and that is said."""
    received = client.receive(topic, 3)
    for _ in range(5):
        name = client.new()
        command = ack_command(name, *received[:2] * 5000, received[2])
        command.ack.request_id = client.request_id()
        with TransactionClient(broker.service_url) as other:
            client.tell(command)
            assert other.end(name, commit=True).code == 0
        while (answer := client.next_command()).type != BaseCommand.ACK_RESPONSE:
            assert answer.type == BaseCommand.MESSAGE, "given back"
        backlog = http.get(f"{path}/stats").json()["subscriptions"]["s"]["msgBacklog"]
        refused = answer.ackResponse.HasField("error")
        assert backlog == (3 if refused else 0)
        if not refused:
            break
        assert answer.ackResponse.error == InvalidTxnStatusError.code


def test_messages_that_are_not_stored(client: Acks, topic: str) -> None:
    """9.8.10: TransactionConflict."""
    name = client.new()
    must_succeed(client.subscribe(topic.replace("persistent://", "non-persistent://"), "s", permits=10))
    assert client.ack_in(name, MessageIdData(ledgerId=0, entryId=0)) == TransactionConflictError.code
