# SPDX-License-Identifier: Apache-2.0
"""Seeking and readers, on both servers."""

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.base.errors import UsageError
from broker_core.base.positions import MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST, MessageId
from broker_core.client import Client
from tests.client.conftest import Service, admin_path
from tests.client.helpers import assert_nothing_comes, numbered, send, take, until_acks_are_stored, values


@pytest.mark.parametrize("inclusive", [False, True])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("index_acks", [True, False])
def test_seek_by_id_goes_behind_it_or_to_it(
    service: Service, client: Client, topic: str, batched: bool, inclusive: bool, index_acks: bool
) -> None:
    """1.4.6 exclusive by default, also inside a batch, and after everything was acknowledged."""
    send(client, topic, 30, batched=batched)
    consumer = client.subscribe(topic, "s", initial_position="earliest", batch_index_ack_enabled=index_acks)
    messages = take(consumer, 30)
    consumer.acknowledge_cumulative(messages[-1], wait=True)
    until_acks_are_stored(service, topic)
    for target in (14, 0, 29, 9, 10):
        consumer.seek(messages[target].message_id, inclusive=inclusive)
        first = target if inclusive else target + 1
        assert values(take(consumer, 30 - first)) == numbered(first, 30)
    assert_nothing_comes(consumer)


@pytest.mark.parametrize("batched", [True, False])
def test_an_exclusive_seek_leaves_nothing_in_the_backlog(client: Client, topic: str, batched: bool) -> None:
    """1.4.6 our client acknowledges the message that it drops, so that the backlog goes to nothing."""
    send(client, topic, 20, batched=batched)
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    messages = take(consumer, 20)
    consumer.seek(messages[11].message_id)
    for message in take(consumer, 8):
        consumer.acknowledge(message)
    consumer.acknowledge(message, wait=True)
    last = consumer._thread.run(consumer._inner.last_messages())[0]
    assert last.mark_delete == last.message_id.position


def test_a_seek_forgets_what_was_refused(client: Client, topic: str) -> None:
    """1.4.6, 3.1.11 what it brings again comes at once, and not when nacks of before would be due."""
    send(client, topic, 3, batched=False)
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest", negative_ack_redelivery_delay_s=3600
    )
    for message in take(consumer, 3):
        consumer.negative_acknowledge(message)
    consumer.seek(MESSAGE_ID_EARLIEST)
    assert sorted(values(take(consumer, 3))) == numbered(0, 3)


def test_a_seek_into_a_batch_hides_the_messages_before_it_from_others(service: Service, topic: str) -> None:
    """1.4.6 the broker is told which ones: the next consumer, who knows nothing of the seek, does not get them."""
    with Client(service.service_url) as client:
        send(client, topic, 10, batched=True)
        with client.subscribe(topic, "s", initial_position="earliest") as consumer:
            messages = take(consumer, 10)
            assert messages[6].message_id.batch_index == 6
            consumer.seek(messages[6].message_id, inclusive=True)
        with client.subscribe(topic, "s") as consumer:
            assert values(take(consumer, 4)) == numbered(6, 10)


@pytest.mark.parametrize("time_ms", [-5, 2**64])
def test_a_time_that_is_none_is_refused(client: Client, topic: str, time_ms: int) -> None:
    """1.4.6 with a word that says so, and the consumer stays where it is."""
    send(client, topic, 1)
    reader = client.create_reader(topic)
    with pytest.raises(UsageError, match=f"cannot seek to {time_ms}: .* milliseconds since the epoch"):
        reader.seek(time_ms)
    assert values(take(reader, 1)) == numbered(0, 1)


def test_seek_to_the_ends(client: Client, topic: str) -> None:
    """1.4.6 earliest is before the first stored entry, latest behind the last."""
    send(client, topic, 20)
    consumer = client.subscribe(topic, "s")
    consumer.seek(MESSAGE_ID_EARLIEST)
    assert values(take(consumer, 20)) == numbered(0, 20)
    consumer.seek(MESSAGE_ID_LATEST)
    send(client, topic, 1, first=20)
    assert values(take(consumer, 1)) == ["m20"]


def test_seek_by_time_is_inclusive(client: Client, topic: str) -> None:
    """1.4.6 the first message with publish time at or after the time."""
    send(client, topic, 5, batched=False)
    time.sleep(0.02)
    send(client, topic, 5, batched=False, first=5)
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    messages = take(consumer, 10)
    consumer.seek(messages[5].publish_time_ms)
    assert values(take(consumer, 5)) == numbered(5, 10)
    consumer.seek(messages[5].publish_time_ms + 3_600_000)
    assert_nothing_comes(consumer)


def test_seeking_forgets_acks_and_nacks_that_wait(service: Service, client: Client, topic: str) -> None:
    """1.4.6 and 3.1.11 a seek clears the client's queue and trackers."""
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest", negative_ack_redelivery_delay_s=0.2,
        acknowledgment_group_time_s=30,
    )  # fmt: skip
    send(client, topic, 1)
    consumer.acknowledge(take(consumer, 1)[0], wait=True)
    until_acks_are_stored(service, topic)
    send(client, topic, 10, batched=False, first=1)
    messages = take(consumer, 10)
    consumer.acknowledge(messages[0])
    consumer.negative_acknowledge(messages[9])
    consumer.seek(MESSAGE_ID_EARLIEST)
    assert sorted(values(take(consumer, 11))) == sorted(numbered(0, 11))
    assert_nothing_comes(consumer, 0.5)


def test_a_seek_of_another_consumer_is_not_filtered(client: Client, topic: str) -> None:
    """A client that has seeked forward shows what another one seeks back to."""
    send(client, topic, 10, batched=False)
    one = client.subscribe(topic, "s", type="shared", initial_position="earliest", acknowledgment_group_time_s=0)
    other = client.subscribe(topic, "s", type="shared", initial_position="earliest", receiver_queue_size=0)
    messages = take(one, 10)
    one.seek(max(message.message_id for message in messages))
    other.seek(MESSAGE_ID_EARLIEST)
    assert sorted(values(take(one, 10))) == sorted(numbered(0, 10))


def test_partitions_seek_together_or_one_by_one(service: Service, client: Client, topic: str) -> None:
    """A time, earliest and latest mean every partition, an id the one that it names."""
    service.create_partitioned(topic, 2)
    send(client, topic, 40, batched=False)
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    messages = take(consumer, 40)
    consumer.seek(MESSAGE_ID_EARLIEST)
    assert len(take(consumer, 40)) == 40
    in_one = [message for message in messages if message.message_id.partition == 1]
    consumer.seek(in_one[5].message_id)
    assert values(take(consumer, len(in_one) - 6)) == values(in_one[6:])
    assert_nothing_comes(consumer)


@pytest.mark.parametrize("inclusive", [False, True])
@pytest.mark.parametrize("batched", [True, False])
def test_a_reader_begins_where_it_is_told(client: Client, topic: str, batched: bool, inclusive: bool) -> None:
    """1.9.2 behind the start id, or at it; inside a batch too; and it knows when it is at the end."""
    send(client, topic, 25, batched=batched)
    ids = [message.message_id for message in take(client.create_reader(topic), 25)]
    for target in (0, 9, 13, 24):
        reader = client.create_reader(topic, ids[target], inclusive=inclusive)
        first = target if inclusive else target + 1
        assert reader.has_message_available() == (first < 25)
        assert values(take(reader, 25 - first)) == numbered(first, 25)
        assert not reader.has_message_available()
        reader.close()


def test_a_reader_at_latest_sees_what_comes(client: Client, topic: str) -> None:
    """From latest: only later messages; latest and inclusive: the last one too, if there is any."""
    empty = client.create_reader(topic, MESSAGE_ID_LATEST, inclusive=True)
    assert not empty.has_message_available()
    send(client, topic, 10)
    assert values(take(empty, 10)) == numbered(0, 10)
    later = client.create_reader(topic, MESSAGE_ID_LATEST)
    last = client.create_reader(topic, MESSAGE_ID_LATEST, inclusive=True)
    assert (later.has_message_available(), last.has_message_available()) == (False, True)
    send(client, topic, 3, first=10)
    assert values(take(later, 3)) == numbered(10, 13)
    assert values(take(last, 4)) == numbered(9, 13)


def test_the_ends_of_a_topic_have_names(client: Client, topic: str) -> None:
    """A reader and a seek take "earliest" and "latest" in the place of the two ids that mean them."""
    send(client, topic, 3)
    late, reader = client.create_reader(topic, "latest"), client.create_reader(topic, "earliest")
    assert not late.has_message_available()
    assert values(take(reader, 3)) == numbered(0, 3)
    reader.seek("earliest")
    assert values(take(reader, 1)) == ["m0"]
    reader.seek("latest")
    assert not reader.has_message_available()


@pytest.mark.parametrize("place", ["newest", 1.5, None])
def test_what_is_no_place_in_a_topic_is_refused(client: Client, topic: str, place: Any) -> None:
    """In one line that says what can be named, before the broker is asked."""
    send(client, topic, 1)
    with pytest.raises(UsageError, match=re.escape(f"{place!r} is no place in a topic")):
        client.create_reader(topic, place)
    reader = client.create_reader(topic)
    with pytest.raises(UsageError, match=re.escape(f"{place!r} is no place in a topic")):
        reader.seek(place)
    assert values(take(reader, 1)) == ["m0"]


def test_a_reader_seeks(client: Client, topic: str) -> None:
    """A subscription that is not durable survives the disconnect of a seek (A of the wire notes)."""
    send(client, topic, 10)
    reader = client.create_reader(topic)
    messages = take(reader, 10)
    reader.seek(messages[6].message_id)
    assert values(take(reader, 3)) == numbered(7, 10)
    reader.seek(messages[0].publish_time_ms)
    assert reader.has_message_available()
    assert values(take(reader, 10)) == numbered(0, 10)
    reader.seek(messages[9].publish_time_ms + 3_600_000)
    assert not reader.has_message_available()
    reader.seek(MESSAGE_ID_EARLIEST)
    assert values(take(reader, 1)) == ["m0"]


def test_a_reader_of_partitions_reads_all(
    service: Service, client: Client, topic: str, new_topic: Callable[[], str]
) -> None:
    """Earliest and latest are possible over partitions, an id is not."""
    service.create_partitioned(topic, 3)
    send(client, topic, 30, batched=False)
    reader = client.create_reader(topic)
    assert sorted(values(take(reader, 30))) == sorted(numbered(0, 30))
    assert not reader.has_message_available()
    with pytest.raises(UsageError, match="3 partitions"):
        client.create_reader(topic, MessageId(1, 1, 0))


def test_a_reader_takes_no_id_of_another_partition(service: Service, client: Client, topic: str) -> None:
    """1.4.6: there the numbers mean another message; without a partition an id is taken as one of this topic."""
    service.create_partitioned(topic, 2)
    with client.create_producer(f"{topic}-partition-1") as producer:
        first = producer.send("m0")
    here = f"{topic}-partition-1"
    for start in (first._replace(partition=0), first._replace(partition=5)):
        with pytest.raises(UsageError, match=f"of partition {start.partition}"):
            client.create_reader(here, start, inclusive=True)
    for start in (first._replace(partition=1), first._replace(partition=-1)):
        assert values(take(client.create_reader(here, start, inclusive=True), 1)) == ["m0"]


@pytest.mark.parametrize("rollback_s", [-1, 2**31])
def test_a_reader_goes_back_a_possible_time(client: Client, topic: str, rollback_s: int) -> None:
    """What the protocol cannot express is told by name."""
    with pytest.raises(UsageError, match="rollback_s"):
        client.create_reader(topic, rollback_s=rollback_s)


def test_a_subscription_made_at_an_id_begins_with_it(service: Service, client: Client, topic: str) -> None:
    """Over the admin REST, which ``pulsarish sub create --from ID`` uses, on both servers: not right behind it."""
    send(client, topic, 4, batched=False)
    second = take(client.create_reader(topic), 2)[1].message_id
    where = json.dumps({"ledgerId": second.ledger, "entryId": second.entry, "partitionIndex": -1})
    service.admin("PUT", f"{admin_path(topic)}/subscription/s", where)
    assert values(take(client.subscribe(topic, "s"), 3)) == numbered(1, 4)


def test_a_reset_by_an_administrator_is_not_undone(service: Service, client: Client, topic: str) -> None:
    """1.4.6, 3.1.8, 3.1.12 after a reset over admin REST everything is shown again, acknowledged or not."""
    send(client, topic, 10, batched=False)
    consumer = client.subscribe(topic, "s", type="failover", initial_position="earliest")
    messages = take(consumer, 10)
    consumer.acknowledge_cumulative(messages[-1], wait=True)
    until_acks_are_stored(service, topic)
    for _ in range(2):
        before = messages[0].publish_time_ms - 1000
        service.admin("POST", f"{admin_path(topic)}/subscription/s/resetcursor/{before}")
        assert values(take(consumer, 10)) == numbered(0, 10)
        consumer.acknowledge_cumulative(messages[4], wait=True)
    consumer.close()
    later = client.subscribe(topic, "s", type="failover")
    assert values(take(later, 5)) == numbered(5, 10)


def test_what_is_acknowledged_since_a_seek_is_not_available(client: Client, topic: str) -> None:
    """1.4.6: where a seek led says nothing any more when all is to be delivered again that is not acknowledged."""
    send(client, topic, 3, batched=False)
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    first = take(consumer, 3)[0]
    consumer.seek(first, inclusive=True)
    for message in take(consumer, 3):
        consumer.acknowledge(message, wait=True)
    consumer.redeliver_unacknowledged()
    assert not consumer.has_message_available()
    send(client, topic, 1, first=3)
    assert consumer.has_message_available()
    assert values(take(consumer, 1)) == ["m3"]
