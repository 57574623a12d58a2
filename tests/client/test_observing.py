# SPDX-License-Identifier: Apache-2.0
"""Pausing, interceptors, event listeners, and what producers and consumers tell about themselves."""

from collections.abc import Sequence

import pytest

from broker_core.base.errors import PulsarishError, QueueFullError
from broker_core.base.positions import MessageId, Position
from broker_core.client import (
    Client,
    ConsumerEventListener,
    ConsumerInterceptor,
    FileValue,
    Message,
    ProducerInterceptor,
)
from broker_core.client.messages.outgoing import OutgoingMessage
from tests.client.conftest import Service, admin_path
from tests.client.helpers import (
    WAIT_S,
    assert_nothing_comes,
    eventually,
    numbered,
    send,
    take,
    until_acks_are_stored,
    values,
)
from tests.client.test_chunking import chunking, large


def test_a_paused_consumer_gets_no_more_permits(client: Client, topic: str) -> None:
    """4.1.6: what was permitted before still comes; after resume the rest does, and none is missing."""
    with client.subscribe(topic, "s", receiver_queue_size=10) as consumer:
        consumer.pause()
        send(client, topic, 50, batched=False)
        assert values(take(consumer, 10)) == numbered(0, 10)
        assert_nothing_comes(consumer)
        assert consumer.stats().permits_at_broker == 0
        consumer.resume()
        assert values(take(consumer, 40)) == numbered(10, 50)


def test_a_pause_outlives_a_seek(client: Client, topic: str) -> None:
    """4.1.6, 4.1.7: attached anew, a paused consumer still asks for nothing; its whole queue is owed on resume."""
    with client.subscribe(topic, "s", receiver_queue_size=10) as consumer:
        send(client, topic, 20, batched=False)
        first = consumer.receive(WAIT_S)
        consumer.pause()
        consumer.seek(first.message_id, inclusive=True)
        consumer.resume()
        assert values(take(consumer, 20)) == numbered(0, 20)


def test_a_consumer_without_prefetch_can_pause(client: Client, topic: str) -> None:
    """4.1.4, 4.1.6: with a queue of 0 a receive of a paused consumer asks for nothing until it is resumed."""
    with client.subscribe(topic, "s", receiver_queue_size=0) as consumer:
        send(client, topic, 3, batched=False)
        consumer.pause()
        assert_nothing_comes(consumer)
        consumer.resume()
        assert values(take(consumer, 3)) == numbered(0, 3)


class Stamping(ProducerInterceptor):
    """Adds a property, and notes what became of every message."""

    def __init__(self) -> None:
        self.fates: list[tuple[bytes | FileValue | None, MessageId | None]] = []
        self.closed = False

    def before_send(self, message: OutgoingMessage) -> OutgoingMessage:
        return message._replace(properties={**(message.properties or {}), "stamp": "1"})

    def on_send_acknowledgement(
        self, message: OutgoingMessage, message_id: MessageId | None, failure: PulsarishError | None
    ) -> None:
        self.fates.append((message.value, message_id))

    def close(self) -> None:
        self.closed = True


class Failing(ProducerInterceptor):
    """Raises always."""

    def before_send(self, message: OutgoingMessage) -> OutgoingMessage:
        raise ValueError("not today")

    def on_send_acknowledgement(
        self, message: OutgoingMessage, message_id: MessageId | None, failure: PulsarishError | None
    ) -> None:
        raise ValueError("nor now")


def test_a_producer_interceptor_sees_every_message(client: Client, topic: str) -> None:
    """7.11: it may change what is sent and hears its fate; one that fails is passed over."""
    stamping = Stamping()
    with client.subscribe(topic, "s") as consumer:
        with client.create_producer(topic, interceptors=[Failing(), stamping]) as producer:
            sent = [producer.send("a"), producer.send("b", properties={"own": "2"})]
            producer.send_async("c")
            producer.flush()
        got = take(consumer, 3)
        assert [message.properties for message in got] == [{"stamp": "1"}, {"own": "2", "stamp": "1"}, {"stamp": "1"}]
        assert stamping.fates == [(b"a", sent[0]), (b"b", sent[1]), (b"c", got[2].message_id)]
        assert stamping.closed


def test_a_producer_interceptor_hears_of_messages_that_find_no_room(client: Client, topic: str) -> None:
    """7.11, 1.7.6: it has seen them, and may wait for their fate; in whichever way they were to be sent."""
    stamping = Stamping()
    options = {"interceptors": [stamping], "max_pending_messages": 1, "batching_max_publish_delay_s": 60.0}
    with client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
        producer.send_async("a")
        with pytest.raises(QueueFullError):
            producer.send_async("b")
        with pytest.raises(QueueFullError):
            producer._thread.run(producer._inner.send("c"))
        producer.flush()
    assert [(value, message_id is None) for value, message_id in stamping.fates] == [
        (b"b", True), (b"c", True), (b"a", False),
    ]  # fmt: skip


class Watching(ConsumerInterceptor):
    """Notes everything and changes values."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def before_consume(self, message: Message) -> Message:
        message.value = (message.value or b"").upper()
        return message

    def on_acknowledge(self, message_id: MessageId) -> None:
        self.seen.append(f"ack {message_id}")

    def on_acknowledge_cumulative(self, message_id: MessageId) -> None:
        self.seen.append(f"through {message_id}")

    def on_negative_acks_send(self, topic: str, positions: Sequence[Position]) -> None:
        self.seen.append(f"nack {topic.rpartition('/')[2]} {positions[0]}")

    def on_ack_timeout_send(self, topic: str, positions: Sequence[Position]) -> None:
        self.seen.append(f"timeout {positions[0]}")

    def close(self) -> None:
        self.seen.append("close")


def test_a_consumer_interceptor_sees_every_message(client: Client, topic: str) -> None:
    """7.11: it may change what the application gets, and hears of acks, nacks that are due, timeouts and the end."""
    watching = Watching()
    options = {
        "interceptors": [watching], "type": "shared", "negative_ack_redelivery_delay_s": 0.01,
        "negative_ack_precision_bits": 0, "ack_timeout_s": 5.0, "ack_timeout_tick_s": 0.1,
    }  # fmt: skip
    with client.subscribe(topic, "s", **options) as consumer:  # type: ignore[arg-type]
        send(client, topic, 3, batched=False)
        one, two, three = take(consumer, 3)
        assert values([one, two, three]) == ["M0", "M1", "M2"]
        consumer.acknowledge(one)
        consumer.negative_acknowledge(two)
        again = consumer.receive(WAIT_S)
        assert again.message_id == two.message_id
        consumer.acknowledge(again, wait=True)
        assert consumer.receive(WAIT_S).message_id == three.message_id
    nacked = f"nack {topic.rpartition('/')[2]} {two.message_id.position}"
    timed_out = f"timeout {three.message_id.position}"
    assert watching.seen == [f"ack {one.message_id}", nacked, f"ack {two.message_id}", timed_out, "close"]


def test_cumulative_acks_are_seen_as_such(client: Client, topic: str) -> None:
    """7.11, 3.1.4: one call for everything up to a message."""
    watching = Watching()
    with client.subscribe(topic, "s", interceptors=[watching]) as consumer:
        send(client, topic, 3, batched=False)
        last = take(consumer, 3)[-1]
        consumer.acknowledge_cumulative(last, wait=True)
    assert watching.seen == [f"through {last.message_id}", "close"]


class Listening(ConsumerEventListener):
    """Notes every event."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def became_active(self, topic: str) -> None:
        self.heard.append("active")

    def became_inactive(self, topic: str) -> None:
        self.heard.append("inactive")

    def reached_end_of_topic(self, topic: str) -> None:
        self.heard.append(f"end of {topic}")


def test_failover_consumers_hear_who_is_active(client: Client, topic: str) -> None:
    """2.3.4.2: the one that is active and the one that stands by are told, and the latter when it takes over."""
    one, two = Listening(), Listening()
    first = client.subscribe(topic, "s", type="failover", consumer_name="a", event_listener=one)
    eventually(lambda: one.heard == ["active"], "the first is active")
    # Of lower priority, because among equals Apache Pulsar asks a hash ring, which may prefer the newcomer.
    with client.subscribe(topic, "s", type="failover", consumer_name="b", priority_level=1, event_listener=two):
        eventually(lambda: two.heard == ["inactive"], "the second stands by")
        first.close()
        eventually(lambda: two.heard == ["inactive", "active"], "the second takes over")
    assert one.heard == ["active"]


def test_consumers_hear_of_the_end_of_a_topic(client: Client, service: Service, topic: str) -> None:
    """7.5: told once, when the topic is terminated and everything in it acknowledged."""
    listening = Listening()
    with client.subscribe(topic, "s", event_listener=listening) as consumer:
        send(client, topic, 3)
        service.admin("POST", f"{admin_path(topic)}/terminate")
        messages = take(consumer, 3)
        assert (listening.heard, consumer.has_reached_end_of_topic) == ([], False)
        for message in messages:
            consumer.acknowledge(message, wait=True)
        eventually(lambda: listening.heard == [f"end of {topic}"], "the end is told")
        assert consumer.has_reached_end_of_topic


@pytest.mark.parametrize("how", ["by itself", "by an administrator"])
def test_a_consumer_that_is_sent_back_is_not_at_the_end_of_its_topic(
    client: Client, service: Service, topic: str, how: str
) -> None:
    """7.5, 1.4.6: what was acknowledged comes again, and whoever looks for the end must not stop before it."""
    listening = Listening()
    with client.subscribe(topic, "s", event_listener=listening) as consumer:
        send(client, topic, 3)
        service.admin("POST", f"{admin_path(topic)}/terminate")
        for message in take(consumer, 3):
            consumer.acknowledge(message, wait=True)
        eventually(lambda: consumer.has_reached_end_of_topic, "the end is told")
        until_acks_are_stored(service, topic)
        if how == "by itself":
            consumer.seek("earliest")
        else:
            service.admin("POST", f"{admin_path(topic)}/subscription/s/resetcursor/0")
        again = take(consumer, 3)
        assert not consumer.has_reached_end_of_topic
        for message in again:
            consumer.acknowledge(message, wait=True)
        eventually(lambda: listening.heard == [f"end of {topic}"] * 2, "the end is told again")
        assert consumer.has_reached_end_of_topic


def test_producers_and_consumers_count(client: Client, topic: str) -> None:
    """7.15: messages, entries and bytes; latency of receipts; acks; what is queued and what is permitted."""
    with client.subscribe(topic, "s", receiver_queue_size=100) as consumer:
        with client.create_producer(topic, batching_max_messages=10, batching_max_publish_delay_s=60.0) as producer:
            for number in range(20):
                producer.send_async(f"m{number}")
            producer.flush()
            told = producer.stats()
        assert (told.messages_confirmed, told.messages_failed, told.pending_messages) == (20, 0, 0)
        assert (told.entries_confirmed, told.bytes_confirmed > 100) == (2, True)
        assert 0 < told.latency.p50_ms <= told.latency.p95_ms <= told.latency.p99_ms <= told.latency.max_ms
        got = take(consumer, 15)
        consumer.acknowledge(got[0])
        consumer.negative_acknowledge(got[1])
        eventually(lambda: consumer.stats().negative_acks == 1, "the nack is counted")
        seen = consumer.stats()
        assert (seen.entries_received, seen.messages_received, seen.messages_taken) == (2, 20, 15)
        assert (seen.acks, seen.receives_failed, seen.queued_messages) == (1, 0, 5)
        assert (seen.permits_at_broker, seen.bytes_received >= told.bytes_confirmed) == (80, True)


def test_what_was_counted_stays_when_a_topic_goes(client: Client, topic: str) -> None:
    """7.15: the sums are of what the consumer has done; they fell when a topic was deleted or unsubscribed."""
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    send(client, topic, 3)
    for message in take(consumer, 3):
        consumer.acknowledge(message, wait=True)
    consumer.unsubscribe()
    seen = consumer.stats()
    assert (seen.entries_received, seen.messages_received, seen.messages_taken, seen.acks) == (1, 3, 3, 3)
    assert (seen.queued_messages, seen.permits_at_broker) == (0, 0)


def test_failures_are_counted(client: Client, topic: str) -> None:
    """7.15: a message that was not sent counts as failed."""
    with client.create_producer(topic, batching_enabled=False) as producer:
        failures: list[PulsarishError | None] = []
        producer.send_async(b"x" * 6_000_000, callback=lambda _, failure: failures.append(failure))
        producer.flush()
        eventually(lambda: len(failures) == 1, "the failure is told")
        assert (producer.stats().messages_failed, producer.stats().messages_confirmed) == (1, 0)


def test_chunks_are_counted_as_what_they_are(client: Client, topic: str) -> None:
    """7.15, I5.5: many entries, one message; nothing is left in the assembly."""
    with client.subscribe(topic, "s") as consumer, chunking(client, topic) as producer:
        producer.send(large("a", 5))
        assert (producer.stats().messages_confirmed, producer.stats().entries_confirmed) == (1, 5)
        consumer.receive(WAIT_S)
        seen = consumer.stats()
        assert (seen.entries_received, seen.messages_taken) == (5, 1)
        assert (seen.incomplete_chunked_messages, seen.buffered_chunk_bytes) == (0, 0)


def test_several_messages_at_once(client: Client, topic: str) -> None:
    """7.14: as many as there are up to the count, or until their bytes suffice, or the time is over."""
    with client.subscribe(topic, "s") as consumer:
        assert consumer.batch_receive(timeout_s=0.01) == []
        send(client, topic, 30)
        assert values(consumer.batch_receive(10, timeout_s=WAIT_S)) == numbered(0, 10)
        assert values(consumer.batch_receive(max_bytes=9, timeout_s=WAIT_S)) == numbered(10, 13)
        assert values(consumer.batch_receive(17, timeout_s=WAIT_S)) == numbered(13, 30)
        assert consumer.batch_receive(timeout_s=0.1) == []


def test_several_messages_without_prefetch(client: Client, topic: str) -> None:
    """7.14, 4.1.4: a queue of 0 is asked for one message after the other."""
    with client.subscribe(topic, "s", receiver_queue_size=0) as consumer:
        send(client, topic, 5, batched=False)
        assert values(consumer.batch_receive(5, timeout_s=WAIT_S)) == numbered(0, 5)
