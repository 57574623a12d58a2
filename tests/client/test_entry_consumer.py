# SPDX-License-Identifier: Apache-2.0
"""Consumers that take entries of a shared subscription, on both servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from broker_core.base.errors import PulsarishError, SubscriptionNotFoundError
from broker_core.client import Client, EntryConsumer, GivenEntry
from tests.client.conftest import Service, admin_path
from tests.client.helpers import WAIT_S, assert_nothing_comes, eventually, numbered, send, take, values


class Inbox:
    """What an entry consumer was given, in its order."""

    def __init__(self, consumer: EntryConsumer) -> None:
        self.consumer = consumer
        self.entries: list[GivenEntry] = []
        self._news = threading.Event()
        consumer.listen(self._news.set)

    def wait_for(self, entries: int) -> list[GivenEntry]:
        """The first so many entries that come."""
        deadline = time.monotonic() + WAIT_S
        while len(self.entries) < entries:
            self.entries += self.consumer.take().entries
            assert time.monotonic() < deadline, f"only {len(self.entries)} of {entries} entries came"
            self._news.wait(0.05)
            self._news.clear()
        return self.entries


def ids(entries: list[GivenEntry]) -> dict[int, list[int]]:
    """The ids of ``entries`` by ledger, as acknowledgements take them."""
    found: dict[int, list[int]] = {}
    for each in sorted(entries):
        found.setdefault(each.ledger, []).append(each.entry)
    return found


def test_entries_are_given_with_their_numbers_and_acknowledged_by_position(
    service: Service, client: Client, topic: str
) -> None:
    """What is acknowledged does not come again, and what is not goes to others when the consumer leaves."""
    consumer = client.subscribe_entries(topic_made(client, topic), "s", initial_position="earliest", queue_size=1000)
    send(client, topic, 50)
    send(client, topic, 3, batched=False, first=50)
    entries = Inbox(consumer).wait_for(8)
    assert [each.messages for each in entries] == [10] * 5 + [1] * 3
    assert [each.redelivery_count for each in entries] == [0] * 8
    consumer.start_ack(ids(entries[:2] + entries[3:])).result(WAIT_S)
    assert consumer.mark_delete() == entries[1].position
    consumer.close()
    with client.subscribe(topic, "s", type="shared") as other:
        assert values(take(other, 10)) == numbered(20, 30)
        assert_nothing_comes(other)


def topic_made(client: Client, topic: str) -> str:
    """A topic that is there, for entry consumers make none."""
    client.create_producer(topic).close()
    return topic


def test_permits_bound_what_is_given(service: Service, client: Client, topic: str) -> None:
    """The broker gives what was permitted, to within an entry, and again as much as is released."""
    send(client, topic, 40, batched=False)
    with client.subscribe_entries(topic, "s", initial_position="earliest", queue_size=10) as consumer:
        inbox = Inbox(consumer)
        assert len(inbox.wait_for(10)) == 10
        consumer.mark_delete()  # Its answer comes behind whatever the broker had given before.
        assert consumer.take().entries == []
        assert not consumer.has_permits
        consumer.release(consumer.session - 1, 10)  # Of a session that is over: nothing.
        consumer.release(consumer.session, 10)
        assert len(inbox.wait_for(20)) == 20
        consumer.resize(30)
        assert len(inbox.wait_for(40)) == 40


def test_what_another_consumer_has_acknowledged_of_a_batch_is_told(
    service: Service, client: Client, topic: str
) -> None:
    """The ack set of a batch, and how often it came."""
    send(client, topic_made(client, topic), 10)
    options = {"type": "shared", "initial_position": "earliest", "batch_index_ack_enabled": True}
    with client.subscribe_entries(topic, "s", initial_position="earliest") as consumer:
        # Counts are kept as long as the subscription has a consumer.
        with client.subscribe(topic, "s", **options) as other:  # type: ignore[arg-type]
            for message in take(other, 10):
                if message.message_id.batch_index in (0, 1, 5):
                    other.acknowledge(message, wait=True)
            other.redeliver_unacknowledged()
            take(other, 7)
        consumer.resize(100)
        (entry,) = Inbox(consumer).wait_for(1)
        assert (entry.messages, entry.unacked) == (7, 0b1111011100)
        assert entry.redelivery_count >= 1


def test_entries_of_one_key_have_one_hash(service: Service, client: Client, topic: str) -> None:
    """Also of keys in bytes; on a Shared subscription nobody asks for it."""
    topic_made(client, topic)
    with client.create_producer(topic, batching_enabled=False) as producer:
        for number in range(12):
            producer.send(f"m{number}", key=f"k{number % 3}")
    with client.subscribe_entries(
        topic, "s", type="key_shared", initial_position="earliest", queue_size=100
    ) as consumer:
        hashes = [each.key_hash for each in Inbox(consumer).wait_for(12)]
        assert hashes == hashes[:3] * 4
        assert len(set(hashes)) == 3


def test_chunks_take_no_permits_before_the_last(service: Service, client: Client, topic: str) -> None:
    """A message of more chunks than there are permits would never be complete."""
    topic_made(client, topic)
    with client.create_producer(
        topic, batching_enabled=False, chunking_enabled=True, chunk_max_message_size=1000
    ) as producer:
        producer.send(b"x" * 20_000)
    with client.subscribe_entries(topic, "s", initial_position="earliest", queue_size=2) as consumer:
        inbox = Inbox(consumer)
        eventually(lambda: sum(each.messages for each in inbox.wait_for(len(inbox.entries) + 1)) == 1, "it is whole")
        chunks = [each.chunk for each in inbox.entries]
        assert all(each is not None and each.chunks == len(chunks) for each in chunks)
        assert [each.chunk_id for each in chunks if each] == list(range(len(chunks)))


def test_an_unloaded_topic_begins_a_session_and_gives_all_again(service: Service, client: Client, topic: str) -> None:
    """What was given before may be anybody's, so it is forgotten; acks wait for the new attachment."""
    send(client, topic, 30, batched=False)
    with client.subscribe_entries(topic, "s", initial_position="earliest", queue_size=100) as consumer:
        entries = list(Inbox(consumer).wait_for(30))
        session = consumer.session
        service.admin("PUT", f"{admin_path(topic)}/unload")
        eventually(lambda: consumer.session > session, "a new session begins")
        consumer.start_ack(ids(entries[:10])).result(WAIT_S)
        inbox = Inbox(consumer)
        inbox.wait_for(20)
        assert {each.position for each in entries[10:]} <= {each.position for each in inbox.entries}
        assert consumer.session > session


def test_a_deleted_subscription_ends_the_consumer(
    service: Service, client: Client, topic: str, new_topic: Callable[[], str]
) -> None:
    """It is not made anew in silence, for what it kept is gone."""
    send(client, topic, 10)
    assert not client.has_subscription(topic, "s")
    with client.subscribe_entries(topic, "s", initial_position="earliest", queue_size=100) as consumer:
        assert client.has_subscription(topic, "s")
        service.admin("DELETE", f"{admin_path(topic)}/subscription/s?force=true")
        eventually(lambda: consumer.failure is not None, "the consumer ends")
        assert isinstance(consumer.failure, SubscriptionNotFoundError)
        with pytest.raises(PulsarishError, match="does not exist"):
            consumer.take()
    assert not client.has_subscription(topic, "s")
