# SPDX-License-Identifier: Apache-2.0
"""Transactions of the official Java client on our broker, seen by it and by clients that have none."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from broker_core.testing.running_broker import RunningBroker
from tests.behaviour.access import PLAIN
from tests.behaviour.cell import take, take_all, values
from tests.behaviour.driver import DrivenClient, Driver
from tests.behaviour.interface import AnyClient, ConsumerChoice, Outgoing, ProducerChoice
from tests.behaviour.our_client import OurClient
from tests.behaviour.python_client import PythonClient
from tests.spark.transactions import JavaWriter, all_kinds


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Our broker."""
    with RunningBroker(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running
        assert "Traceback" not in running.stderr


@pytest.fixture
def writer_of(java_driver: Driver, broker: RunningBroker) -> Iterator[Callable[[str], JavaWriter]]:
    """Makes producers of one Java client with transactions."""
    with closing(DrivenClient(java_driver, broker.service_url, transactions=True)) as client:
        yield lambda topic: JavaWriter(client, topic)


def read(client: AnyClient, topic: str) -> list[int]:
    """All that a reader gets from the beginning on, until it is told that there is nothing more."""
    reader = client.reader(topic, "earliest", inclusive=True, rollback_s=0)
    found: list[int] = []
    while reader.has_message_available():
        received = reader.receive(10_000)
        assert received is not None, f"there is more behind {found}, and it does not come"
        found.append(int(received.value))
    return found


def read_by_all(driver: Driver, broker: RunningBroker, topic: str) -> list[int]:
    """The same by three clients, which agree."""
    with ExitStack() as stack:
        url = broker.service_url
        clients: list[AnyClient] = [OurClient(url, PLAIN), PythonClient(url, PLAIN), DrivenClient(driver, url)]
        for client in clients:
            stack.enter_context(closing(client))
        first, *others = (read(client, topic) for client in clients)
        assert others == [first, first]
    return first


def test_a_transaction_over_two_topics(
    java_driver: Driver, broker: RunningBroker, writer_of: Callable[[str], JavaWriter]
) -> None:
    """9.4.2, 9.4.4, 9.5.2, 9.2.1: nothing is seen before the commit, then all of it, and nothing of what is aborted."""
    topics = ["persistent://public/default/one", "persistent://public/default/two"]
    one, two = map(writer_of, topics)
    for number, is_committed in ((10, True), (20, False), (30, True)):
        transaction = one.begin()
        one.send(number, within=transaction)
        two.send(number + 1, number + 2, within=transaction)
        before = [read_by_all(java_driver, broker, topic) for topic in topics]
        assert not any(number <= each < number + 10 for each in [*before[0], *before[1]])
        (one.commit if is_committed else one.abort)(transaction)
    assert read_by_all(java_driver, broker, topics[0]) == [10, 30]
    assert read_by_all(java_driver, broker, topics[1]) == [11, 12, 31, 32]


def test_transactions_of_all_kinds(
    java_driver: Driver, broker: RunningBroker, writer_of: Callable[[str], JavaWriter]
) -> None:
    """9.4.3, 9.4.5: dead entries at the beginning, between others and at the end; a reader knows where the end is."""
    topic = "persistent://public/default/kinds"
    writer = writer_of(topic)
    expected = all_kinds(writer)
    assert read_by_all(java_driver, broker, topic) == expected
    transaction = writer.begin()
    writer.send(-9, within=transaction)
    assert read_by_all(java_driver, broker, topic) == expected
    writer.abort(transaction)
    assert read_by_all(java_driver, broker, topic) == expected


@pytest.fixture(params=["java", pytest.param("go", marks=pytest.mark.pulsar)])
def client(request: pytest.FixtureRequest, broker: RunningBroker) -> Iterator[DrivenClient]:
    """A client with transactions that does not end with the broker."""
    driver: Driver = request.getfixturevalue(f"{request.param}_driver")
    with closing(DrivenClient(driver, broker.service_url, transactions=True)) as made:
        yield made


def test_a_transaction_goes_on_after_the_broker_was_killed(broker: RunningBroker, client: DrivenClient) -> None:
    """9.5.3, 9.8.1: the client connects again, and what it sent and acknowledged before is committed with the rest."""
    topic, other = (f"persistent://public/default/{name}-{uuid.uuid4().hex}" for name in ("in", "out"))
    consumer = client.consumer([topic], "s", ConsumerChoice(type="Shared"))
    producer, results = client.producer(topic, ProducerChoice()), client.producer(other, ProducerChoice())
    for mark in "12":
        producer.send(Outgoing(value=mark))
    transaction = client.transaction()
    transaction.ack(consumer, take(consumer, 2)[0])
    transaction.send(results, Outgoing(value="1"))
    broker.kill()
    broker.start()
    transaction.send(results, Outgoing(value="2"))
    assert values(take_all(consumer)) == ["2"]
    assert read(client, other) == []
    transaction.commit()
    assert read(client, other) == [1, 2]
    consumer.close()
    assert values(take_all(client.consumer([topic], "s", ConsumerChoice(type="Shared")))) == ["2"]
