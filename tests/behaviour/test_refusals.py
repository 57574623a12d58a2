# SPDX-License-Identifier: Apache-2.0
"""A server that asks who a client is: wrong identities, missing rights, and a server whose name is another."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from tests.behaviour.cell import Cell, take_values
from tests.behaviour.interface import Outgoing, ProducerChoice, RefusedError
from tests.behaviour.servers import SecuredServer

SOON_S: Final = 10
"""A refusal that is final comes long before a client gives up, which is after 15 s."""


@contextmanager
def refused(*kinds: str) -> Iterator[None]:
    """A refusal of one of these kinds, which comes soon."""
    began = time.monotonic()
    with pytest.raises(RefusedError) as raised:
        yield
    assert raised.value.kind in kinds
    assert time.monotonic() - began < SOON_S


def test_who_forges_an_identity_is_told_so(cell: Cell, secured_server: SecuredServer) -> None:
    """A token or a certificate that somebody else signed, a guessed password."""
    client = cell.new_client(secured_server.forged(cell.service.access.kind))
    with refused("Authentication", "Tls"):
        client.producer(cell.topic(), ProducerChoice())


def test_who_has_no_identity_is_told_so(cell: Cell, secured_server: SecuredServer) -> None:
    """It trusts the server, and shows nothing."""
    client = cell.new_client(secured_server.nobody(cell.service.access.kind))
    with refused("Authentication"):
        client.producer(cell.topic(), ProducerChoice())


def test_a_server_with_another_name_is_not_trusted(cell: Cell, tls_server: SecuredServer) -> None:
    """Its certificate is for localhost, and an address is no name of it."""
    client = cell.new_client(service_url=tls_server.tls_url.replace("localhost", "127.0.0.1"))
    with refused("Tls", "Connect"):
        client.producer(cell.topic(), ProducerChoice())


def test_a_server_of_another_authority_is_not_trusted(cell: Cell, tls_server: SecuredServer) -> None:
    """Its certificate is signed by nobody whom the client trusts."""
    client = cell.new_client(tls_server.distrusting(cell.service.access.kind))
    with refused("Tls", "Connect"):
        client.producer(cell.topic(), ProducerChoice())


def test_who_may_only_consume_does_not_produce(cell: Cell, secured_server: SecuredServer) -> None:
    """The producer is refused; the consumer of the same connection stays."""
    namespace = cell.namespace("consume")
    topic = f"persistent://{namespace}/t"
    consumer = cell.consumer(topic)
    with refused("Authorization"):
        cell.producer(topic)
    cell.service.grant(namespace, "produce", "consume")
    cell.send(topic, "a")
    assert take_values(consumer, 1) == ["a"]


def test_who_may_only_produce_does_not_consume(cell: Cell, secured_server: SecuredServer) -> None:
    """No subscription is made, and no reader; messages are stored."""
    namespace = cell.namespace("produce")
    topic = f"persistent://{namespace}/t"
    producer = cell.producer(topic)
    for use in (cell.consumer, cell.reader):
        with refused("Authorization"):
            use(topic)
    producer.send(Outgoing(value="a"))
    cell.service.grant(namespace, "consume")
    assert take_values(cell.reader(topic), 1) == ["a"]


def test_who_may_do_nothing_is_not_led_to_a_topic(cell: Cell, secured_server: SecuredServer) -> None:
    """Whether it is there, has partitions, or is not."""
    namespace = cell.namespace()
    cell.service.create_partitioned(f"persistent://{namespace}/parted", 2)
    for name in ("parted", "other"):
        for use in (cell.producer, cell.consumer, cell.reader):
            with refused("Authorization"):
                use(f"persistent://{namespace}/{name}")
