# SPDX-License-Identifier: Apache-2.0
"""Whose a transaction is: by raw frames of several roles to a broker with authorization."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from broker_core.wire.heads import TxnId
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.server.rights_world import WHO, Secured, Who, furnish, hello, secured
from tests.server.transaction_client import NOT_ALLOWED, NOT_FOUND, OK, TransactionClient

TOPIC = "persistent://acme/ns/plain"
ASSIGN = "persistent://pulsar/system/transaction_coordinator_assign"


@pytest.fixture(scope="module")
def world() -> Iterator[Secured]:
    with secured() as world:
        furnish(world, "acme/ns")
        yield world


@contextmanager
def client_of(world: Secured, who: Who) -> Iterator[TransactionClient]:
    with TransactionClient(world.server.service_url, connect=False) as client:
        assert client.ask(hello(who)).HasField("connected")
        yield client


def test_every_role_finds_coordinators_and_begins_transactions(world: Secured) -> None:
    """7.8, 9.2.1, 9.3.3: they are nobody's topics, so no grant is needed, and no lookup of another topic is let in."""
    for who in (WHO["nobody"], WHO["superuser"], WHO["a proxy for a consumer"]):
        with client_of(world, who) as client:
            asked = {"topic": ASSIGN, "request_id": 1}
            answer = client.ask(BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata=asked))
            assert answer.partitionMetadataResponse.partitions == 16
            lookup = {"topic": f"{ASSIGN}-partition-3", "request_id": 1}
            answer = client.ask(BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=lookup))
            assert not answer.lookupTopicResponse.HasField("error")
            assert not client.connect_to(3).tcClientConnectResponse.HasField("error")
            assert client.end(client.new(3), commit=True).code == OK
    with client_of(world, WHO["nobody"]) as client:
        other = {"topic": "persistent://pulsar/system/another", "request_id": 1}
        assert client.ask(BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=other)).lookupTopicResponse.HasField("error")


def test_a_transaction_is_not_there_for_other_roles(world: Secured) -> None:
    """9.3.3: every request about it, and sends to topics that the other role may produce to; then its owner goes on."""
    with client_of(world, WHO["produces everywhere"]) as owner, client_of(world, WHO["produces to topics"]) as other:
        for client in (owner, other):
            client.open_producer(TOPIC)
        name = owner.new()
        assert other.add_partition(name, TOPIC).code == NOT_FOUND
        assert other.add_subscription(name, TOPIC, "open").code == NOT_FOUND
        assert other.end(name, commit=True).code == NOT_FOUND
        assert other.end(name, commit=False).code == NOT_FOUND
        assert other.send_in(name, "b0").send_error.error == NOT_ALLOWED
        unknown = TxnId(name.most_bits, name.least_bits + 500)
        assert other.send_in(unknown, "b0").send_error.error == NOT_ALLOWED
        assert owner.add_partition(name, TOPIC).code == OK
        assert owner.send_in(name, "a0").type == BaseCommand.SEND_RECEIPT
        assert owner.end(name, commit=True).code == OK


def test_a_superuser_ends_any_transaction(world: Secured) -> None:
    """9.3.3: one that speaks for itself; as a proxy it has the rights of the role that it speaks for."""
    with client_of(world, WHO["consumes everywhere"]) as owner:
        for who, expected in (
            (WHO["superuser"], OK),
            (WHO["a proxy for a role without rights"], NOT_FOUND),
            (WHO["a proxy for a consumer"], OK),
        ):
            name = owner.new()
            with client_of(world, who) as client:
                assert client.end(name, commit=False).code == expected, who


def test_brokers_among_themselves_are_superusers(world: Secured) -> None:
    """9.2.5: TransactionNotFound for others, in Pulsar's words; the connection goes on."""
    for who, expected in ((WHO["nobody"], NOT_FOUND), (WHO["superuser"], NOT_ALLOWED)):
        with client_of(world, who) as client:
            command = BaseCommand(type=BaseCommand.END_TXN_ON_PARTITION, endTxnOnPartition={"request_id": 7})
            answer = client.ask(command).endTxnOnPartitionResponse
            assert answer.error == expected
            if expected == NOT_FOUND:
                assert "TC client (nobody) is not a super user" in answer.message
            assert client.try_new().code == OK
