# SPDX-License-Identifier: Apache-2.0
"""Consumers of several topics: growing partitions, patterns, seeking, the end of what is published; on both servers."""

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable

import pytest

from broker_core.base.errors import AlreadyClosedError, ConsumerBusyError, MetadataServerError, UsageError
from broker_core.base.names import TopicName
from broker_core.base.positions import MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST, MessageId
from broker_core.base.topics_pattern import TopicsPattern
from broker_core.client import Client, Consumer, DeadLetterPolicy
from tests.client.conftest import Service, admin_path
from tests.client.helpers import assert_nothing_comes, eventually, numbered, send, take, values

LOOK_S = 0.1
"""How often the consumers of these tests look for new topics and partitions."""


@pytest.fixture
def family() -> str:
    """The beginning of names of topics that no other test uses."""
    return f"family-{uuid.uuid4().hex[:8]}"


def limits(consumer: Consumer) -> list[int]:
    """The share of the receiver queue that each part has."""
    return [part.permits.asked_size for part in consumer._inner.children]


@pytest.mark.parametrize("position", ["earliest", "latest"])
def test_new_partitions_are_read_from_their_first_message(
    service: Service, client: Client, topic: str, position: str
) -> None:
    """1.2.2, 1.2.4, 4.1.5 a consumer picks up added partitions by itself, whole, and divides its queue anew."""
    service.create_partitioned(topic, 2)
    consumer = client.subscribe(
        topic, "s", initial_position=position, auto_update_partitions_interval_s=LOOK_S,  # type: ignore[arg-type]
        max_total_receiver_queue_size_across_partitions=120,
    )  # fmt: skip
    assert limits(consumer) == [60, 60]
    service.admin("POST", f"{admin_path(topic)}/partitions", "4")
    send(client, topic, 400, batched=False)
    messages = take(consumer, 400)
    assert Counter(values(messages)) == Counter(numbered(0, 400))
    assert {message.message_id.partition for message in messages} == {0, 1, 2, 3}
    assert (len(consumer.topics), limits(consumer)) == (4, [30] * 4)
    for message in messages:
        consumer.acknowledge(message)
    assert not consumer.has_message_available()
    for part in consumer._inner.children:
        assert part.permits.at_broker + part.permits.free == part.permits.queue_size


def test_partitions_do_not_grow_unasked(service: Service, client: Client, topic: str) -> None:
    """1.2.2 with the interval 0 the consumer keeps to the partitions of its beginning."""
    service.create_partitioned(topic, 1)
    consumer = client.subscribe(topic, "s", auto_update_partitions_interval_s=0)
    service.admin("POST", f"{admin_path(topic)}/partitions", "2")
    time.sleep(0.3)
    assert consumer.topics == [f"{topic}-partition-0"]


def test_a_pattern_finds_topics_now_and_later(service: Service, client: Client, family: str) -> None:
    """1.2.4, 7.16 all topics of the namespace that match, partitions too; new ones join from their first message on."""
    base = f"persistent://public/default/{family}"
    service.create_partitioned(f"{base}-parts", 2)
    for number, name in enumerate(("one", "two", "other")):
        send(client, f"{base}-{name}", 1, first=number)
    consumer = client.subscribe_pattern(
        f"public/default/{family}-(one|two|three|parts)", "s", initial_position="earliest",
        pattern_auto_discovery_period_s=LOOK_S,
    )  # fmt: skip
    assert consumer.topics == [f"{base}-{each}" for each in ("one", "parts-partition-0", "parts-partition-1", "two")]
    assert sorted(values(take(consumer, 2))) == numbered(0, 2)
    send(client, f"{base}-three", 5, first=10)
    send(client, f"{base}-parts", 4, first=20, batched=False)
    messages = take(consumer, 9)
    assert sorted(values(messages)) == numbered(10, 15) + numbered(20, 24)
    assert f"{base}-three" in consumer.topics
    for message in messages:
        consumer.acknowledge(message)
    assert_nothing_comes(consumer)


def test_a_topic_that_refuses_keeps_no_other_of_its_pattern_away(client: Client, family: str) -> None:
    """7.12 a subscription of one matching topic may be in use by another consumer, for as long as that likes."""
    consumer = client.subscribe_pattern(f"{family}.*", "s", pattern_auto_discovery_period_s=0)
    client.subscribe(f"{family}-0", "s")
    for number in (1, 2):
        send(client, f"{family}-{number}", 1)
    following = consumer._inner._topics._follow(TopicsPattern.parse(f"{family}.*"))
    with pytest.raises(ConsumerBusyError):
        consumer._thread.run(following)
    assert {each[-1] for each in consumer.topics} == {"1", "2"}
    assert values(take(consumer, 2)) == ["m0", "m0"]


def test_a_pattern_lets_deleted_topics_go(service: Service, client: Client, family: str) -> None:
    """7.16 a topic that is gone leaves the consumer, which goes on with the others, and does not make it again."""
    base = f"persistent://public/default/{family}"
    for name in ("stays", "goes"):
        send(client, f"{base}-{name}", 1)
    consumer = client.subscribe_pattern(
        f"{family}-.*", "s", initial_position="earliest", pattern_auto_discovery_period_s=LOOK_S
    )
    for message in take(consumer, 2):
        consumer.acknowledge(message, wait=True)
    service.admin("DELETE", f"{admin_path(f'{base}-goes')}?force=true")
    eventually(lambda: consumer.topics == [f"{base}-stays"], "the deleted topic is left")
    send(client, f"{base}-stays", 1, first=7)
    assert values(take(consumer, 1)) == ["m7"]
    assert f"{base}-goes" not in client.topics_of("public/default")


def test_a_pattern_does_not_read_its_own_letters(client: Client, family: str) -> None:
    """4.6.2, 7.16 retry and dead letter topics of the subscription may match its pattern; they stay out of it."""
    topic = f"persistent://public/default/{family}"
    policy = DeadLetterPolicy(max_redeliver_count=1)
    send(client, topic, 1, batched=False)
    options = {"type": "shared", "initial_position": "earliest", "negative_ack_redelivery_delay_s": 0.05}
    consumer = client.subscribe_pattern(
        f"{family}.*", "s", dead_letter_policy=policy, pattern_auto_discovery_period_s=LOOK_S, **options,  # type: ignore[arg-type]
    )  # fmt: skip
    for _ in range(2):
        consumer.negative_acknowledge(take(consumer, 1)[0])
    assert values(take(client.create_reader(f"{topic}-s-DLQ"), 1)) == ["m0"]
    assert_nothing_comes(consumer, 3 * LOOK_S)
    assert consumer.topics == [topic]
    with pytest.raises(UsageError, match="retry topic has no name"):
        client.subscribe_pattern(f"{family}.*", "t", retry_enabled=True)
    named = DeadLetterPolicy(
        max_redeliver_count=1, dead_letter_topic=f"{topic}-dead", retry_letter_topic=f"{topic}-again"
    )
    retrying = client.subscribe_pattern(
        f"{family}", "t", type="shared", initial_position="earliest", retry_enabled=True, dead_letter_policy=named
    )
    assert retrying.topics == [topic, f"{topic}-again"]
    for _ in range(2):
        retrying.reconsume_later(take(retrying, 1)[0], 0)
    assert values(take(client.create_reader(f"{topic}-dead"), 1)) == ["m0"]


def test_a_pattern_without_topics_waits_for_them(client: Client, family: str) -> None:
    """7.16 nothing matches yet: that is no error, and the first topic is read whole."""
    consumer = client.subscribe_pattern(f"{family}.*", "s", pattern_auto_discovery_period_s=LOOK_S)
    assert consumer.topics == []
    assert not consumer.has_message_available()
    assert not consumer.has_reached_end_of_topic
    send(client, f"persistent://public/default/{family}", 3)
    assert values(take(consumer, 3)) == numbered(0, 3)


def test_a_pattern_is_an_expression_in_one_namespace() -> None:
    """7.16 the namespace is literal, the expression matches whole names without their partition."""
    pattern = TopicsPattern.parse("persistent://public/default/a.*b")
    assert str(pattern.namespace) == "public/default"
    full = [f"persistent://public/default/{each}" for each in ("ab", "axb", "axb-partition-3", "abc", "__ab", "xab")]
    assert {name.local for name in pattern.select(full)} == {"ab", "axb", "axb-partition-3"}
    assert TopicsPattern.parse("x+").namespace == TopicName.parse("t").namespace_name
    assert str(TopicsPattern.parse("acme/shop/x").namespace) == "acme/shop"
    for wrong in ("", "a/b", "a/b/c/d", "(", "public/default/("):
        with pytest.raises(UsageError, match="topics pattern"):
            TopicsPattern.parse(wrong)


def test_a_pattern_may_span_namespaces_that_it_names() -> None:
    """7.16 one pattern for each, of which each knows its own topics, whether they exist or not."""
    spanning = TopicsPattern.spanning("persistent://(acme|public)/shop-(a|b)/x.*")
    namespaces = ["acme/shop-a", "acme/shop-b", "public/shop-a", "public/shop-b"]
    assert [str(each.namespace) for each in spanning] == namespaces
    one, other = (TopicName.parse(f"acme/shop-{each}/x1") for each in "ab")
    assert [each.matches(one) for each in spanning] == [True, False, False, False]
    assert [each.matches(other.partition(3)) for each in spanning] == [False, True, False, False]
    assert not spanning[0].matches(TopicName.parse("acme/shop-a/y"))
    assert TopicsPattern.spanning("x+") == (TopicsPattern.parse("x+"),)
    with pytest.raises(UsageError, match=r'does not name its namespaces: "\*" at character 9 .* name them, as in'):
        TopicsPattern.spanning("public/.*/x")


def test_several_topics_seek_together_or_one_by_one(client: Client, new_topic: Callable[[], str]) -> None:
    """1.4.6 earliest, latest and times go to all topics, a message to its own, a function says it for each."""
    one, two = new_topic(), new_topic()
    send(client, one, 10, batched=False)
    send(client, two, 10, batched=False, first=10)
    consumer = client.subscribe([one, two], "s", initial_position="earliest")
    messages = {values([message])[0]: message for message in take(consumer, 20)}
    consumer.seek(MESSAGE_ID_EARLIEST)
    assert sorted(values(take(consumer, 20))) == sorted(numbered(0, 20))
    consumer.seek(messages["m4"])
    assert values(take(consumer, 5)) == numbered(5, 10)
    consumer.seek(messages["m14"], inclusive=True)
    assert values(take(consumer, 6)) == numbered(14, 20)
    targets: dict[str, MessageId | int] = {one: messages["m7"].message_id, two: MESSAGE_ID_LATEST}
    consumer.seek(lambda topic: targets[topic])
    assert values(take(consumer, 2)) == numbered(8, 10)
    consumer.seek(messages["m0"].publish_time_ms)
    assert sorted(values(take(consumer, 20))) == sorted(numbered(0, 20))
    with pytest.raises(UsageError, match="does not tell which"):
        consumer.seek(messages["m4"].message_id)
    assert_nothing_comes(consumer)


def test_messages_are_available_until_all_topics_are_read(
    service: Service, client: Client, new_topic: Callable[[], str]
) -> None:
    """1.9 has_message_available over topics and partitions; acknowledged messages do not count."""
    one, two = new_topic(), new_topic()
    service.create_partitioned(two, 2)
    consumer = client.subscribe([one, two], "s", initial_position="earliest")
    assert not consumer.has_message_available()
    send(client, one, 3)
    send(client, two, 6, batched=False, first=3)
    seen = []
    while consumer.has_message_available():
        seen += take(consumer, 1)
    assert sorted(values(seen)) == numbered(0, 9)
    for message in seen:
        consumer.acknowledge(message)
    consumer.close()
    later = client.subscribe([one, two], "s")
    assert not later.has_message_available()


def test_a_redelivered_message_is_not_the_last_one(client: Client, topic: str) -> None:
    """1.9 (4.3) after an old message was taken once more there is still nothing new."""
    send(client, topic, 3, batched=False)
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest", negative_ack_redelivery_delay_s=0
    )
    messages = take(consumer, 3)
    consumer.negative_acknowledge(messages[0])
    assert take(consumer, 1)[0].message_id == messages[0].message_id
    assert not consumer.has_message_available()


def test_what_others_have_acknowledged_is_not_available(client: Client, topic: str) -> None:
    """1.9, 2.4.1: whoever shares a subscription takes some of its messages; when all of it is done, all know."""
    one = client.subscribe(topic, "s", type="shared", receiver_queue_size=1)
    two = client.subscribe(topic, "s", type="shared", receiver_queue_size=1)
    send(client, topic, 1, batched=False)
    send(client, topic, 1, batched=False, first=1)
    for consumer in (one, two):
        consumer.acknowledge(take(consumer, 1)[0], wait=True)
    assert (one.has_message_available(), two.has_message_available()) == (False, False)


def test_a_topic_that_is_named_twice_is_read_once(client: Client, topic: str) -> None:
    """1.2.4 a list of topics is a set."""
    send(client, topic, 2)
    consumer = client.subscribe([topic, topic], "s", initial_position="earliest")
    assert consumer.topics == [topic]
    assert values(take(consumer, 2)) == numbered(0, 2)
    retry = f"{topic}-t-RETRY"
    assert client.subscribe([topic, retry], "t", retry_enabled=True).topics == [topic, retry]
    with pytest.raises(UsageError, match="no topic"):
        client.subscribe([], "s")


def test_only_what_may_be_unsubscribed_is(service: Service, client: Client, topic: str) -> None:
    """2.1.8: one partition has another consumer, so the subscription of the other alone is deleted, and this one goes
    on with what is left; nothing of it stays behind unread."""
    service.create_partitioned(topic, 2)
    consumer = client.subscribe(topic, "s", type="shared", auto_update_partitions_interval_s=LOOK_S)
    other = client.subscribe(f"{topic}-partition-1", "s", type="shared")
    with pytest.raises(MetadataServerError):
        consumer.unsubscribe()
    other.close()
    assert consumer.topics == [f"{topic}-partition-1"]
    send(client, f"{topic}-partition-1", 2)
    assert values(take(consumer, 2)) == numbered(0, 2)
    received: list[Exception] = []

    def receive() -> None:
        try:
            consumer.receive()
        except AlreadyClosedError as error:
            received.append(error)

    waiting = threading.Thread(target=receive)
    waiting.start()
    consumer.unsubscribe()
    waiting.join(30)
    assert len(received) == 1


def test_a_topic_that_was_unsubscribed_does_not_come_back_by_its_pattern(
    service: Service, client: Client, family: str
) -> None:
    """2.1.8, 7.12: one topic has another consumer, so only the subscription of the other is deleted; the pattern made
    it anew, from the first message on, while it should be gone. A topic that is made anew later is another one."""
    base = f"persistent://public/default/{family}"
    for name in ("goes", "stays"):
        send(client, f"{base}-{name}", 1)
    pattern = f"{family}-.*"
    consumer = client.subscribe_pattern(pattern, "s", type="shared", pattern_auto_discovery_period_s=0)

    def look_again() -> list[str]:
        consumer._thread.run(consumer._inner._topics._follow(TopicsPattern.parse(pattern)))
        return consumer.topics

    with client.subscribe(f"{base}-stays", "s", type="shared"), pytest.raises(MetadataServerError):
        consumer.unsubscribe()
    assert look_again() == [f"{base}-stays"]
    service.admin("DELETE", admin_path(f"{base}-goes"))
    assert look_again() == [f"{base}-stays"]
    send(client, f"{base}-goes", 1, first=7)
    assert set(look_again()) == {f"{base}-stays", f"{base}-goes"}
    assert values(take(consumer, 1)) == ["m7"]
