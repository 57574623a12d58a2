# SPDX-License-Identifier: Apache-2.0
"""Retry topics and dead letter topics, on both servers."""

import json
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from broker_core.base.errors import ConfigError, InvalidTopicNameError, PulsarishError, TopicTerminatedError, UsageError
from broker_core.base.positions import MessageId
from broker_core.client import Client, Consumer, ConsumerInterceptor, DeadLetterPolicy, Message, RedeliveryBackoff
from tests.client.conftest import Service, admin_path
from tests.client.helpers import (
    EARLY_S,
    WAIT_S,
    assert_nothing_comes,
    eventually,
    is_all_acknowledged,
    numbered,
    send,
    take,
    values,
)


def dead_letters(client: Client, topic: str, count: int) -> list[Message]:
    """``count`` messages of the dead letter topic, and no more."""
    consumer = client.subscribe(topic, "look", initial_position="earliest")
    found = take(consumer, count)
    assert_nothing_comes(consumer)
    consumer.close()
    return found


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_a_message_that_is_always_nacked_becomes_a_dead_letter(client: Client, topic: str, kind: str) -> None:
    """4.7.8, 4.7.4, 4.7.2 (I4.8) max = 2: deliveries with counts 0, 1, 2; the third nack makes one copy, backlog 0."""
    consumer = client.subscribe(
        topic, "s", type=kind, initial_position="earliest", negative_ack_redelivery_delay_s=0.2,  # type: ignore[arg-type]
        dead_letter_policy=DeadLetterPolicy(max_redeliver_count=2),
    )  # fmt: skip
    with client.create_producer(topic) as producer:
        sent = producer.send("poison", key="k", properties={"a": "b"}, event_time_ms=77, ordering_key=b"o")
        producer.send("good")
    seen: list[int] = []
    while len(seen) < 3:
        message = consumer.receive(WAIT_S)
        if message.value == b"good":
            consumer.acknowledge(message)
        else:
            seen.append(message.redelivery_count)
            consumer.negative_acknowledge(message)
    assert seen == [0, 1, 2]
    eventually(lambda: is_all_acknowledged(consumer), "the original is acknowledged behind its copy")
    assert_nothing_comes(consumer)
    (copy,) = dead_letters(client, f"{topic}-s-DLQ", 1)
    assert (copy.value, copy.key, copy.ordering_key, copy.event_time_ms) == (b"poison", "k", b"o", 77)
    assert copy.properties == {"a": "b", "REAL_TOPIC": topic, "ORIGIN_MESSAGE_ID": str(sent)}
    assert copy.redelivery_count == 0


def test_a_message_that_always_times_out_becomes_a_dead_letter(client: Client, topic: str) -> None:
    """4.7.3, 4.2.5 the ack timeout counts as a nack does; each message of a batch becomes one letter (4.7.6)."""
    send(client, topic, 10)
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest", ack_timeout_s=4, ack_timeout_tick_s=0.1,
        dead_letter_policy=DeadLetterPolicy(max_redeliver_count=1, dead_letter_topic=f"{topic}-mine"),
    )  # fmt: skip
    first = take(consumer, 10)
    for message in first[:3]:
        consumer.acknowledge(message)
    again = take(consumer, 7)
    assert [message.redelivery_count for message in again] == [1] * 7
    assert values(again) == numbered(3, 10)
    letters = dead_letters(client, f"{topic}-mine", 7)
    assert values(letters) == numbered(3, 10)
    assert [each.properties["ORIGIN_MESSAGE_ID"] for each in letters] == [str(each.message_id) for each in first[3:]]
    eventually(lambda: is_all_acknowledged(consumer), "the whole batch is acknowledged")


def test_an_acknowledged_candidate_is_no_dead_letter(client: Client, topic: str) -> None:
    """4.7.5 the last delivery may still succeed; 4.3.6 also after a nack."""
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest",
        negative_ack_redelivery_backoff=RedeliveryBackoff(min_s=0.1, max_s=4, multiplier=40),
        dead_letter_policy=DeadLetterPolicy(max_redeliver_count=1),
    )  # fmt: skip
    send(client, topic, 1, batched=False)
    consumer.negative_acknowledge(take(consumer, 1)[0])
    last = take(consumer, 1)[0]
    assert last.redelivery_count == 1
    consumer.negative_acknowledge(last)
    consumer.acknowledge(last, wait=True)
    assert_nothing_comes(consumer, 4.5)
    assert client.partitions(f"{topic}-s-DLQ") == 0
    assert f"{topic}-s-DLQ" not in client.topics_of("public/default")


def test_a_message_over_the_limit_is_not_shown(client: Client, topic: str) -> None:
    """4.7.4 counts raised under a consumer without limit: above the maximum it goes to the dead letters at once."""
    send(client, topic, 1, batched=False)
    options = {"type": "shared", "initial_position": "earliest", "negative_ack_redelivery_delay_s": 0.1}
    policy = DeadLetterPolicy(max_redeliver_count=1)
    stays = client.subscribe(topic, "s", receiver_queue_size=0, **options)  # type: ignore[arg-type]
    with client.subscribe(topic, "s", **options) as consumer:  # type: ignore[arg-type]
        for count in (0, 1, 2):
            message = take(consumer, 1)[0]
            assert message.redelivery_count == count
            if count < 2:
                consumer.negative_acknowledge(message)
    consumer = client.subscribe(topic, "s", dead_letter_policy=policy, **options)  # type: ignore[arg-type]
    assert values(dead_letters(client, f"{topic}-s-DLQ", 1)) == ["m0"]
    assert_nothing_comes(consumer)
    eventually(lambda: is_all_acknowledged(stays), "the original is acknowledged behind its copy")


def test_the_initial_subscription_keeps_dead_letters(client: Client, topic: str) -> None:
    """4.7.1 the named subscription is made with the dead letter topic, before its first message."""
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest", negative_ack_redelivery_delay_s=0,
        negative_ack_precision_bits=0,
        dead_letter_policy=DeadLetterPolicy(max_redeliver_count=1, initial_subscription_name="keeper"),
    )  # fmt: skip
    send(client, topic, 5, batched=False)
    for _ in range(2):
        for message in take(consumer, 5):
            consumer.negative_acknowledge(message)
    eventually(lambda: is_all_acknowledged(consumer), "all five are dead")
    keeper = client.subscribe(f"{topic}-s-DLQ", "keeper")
    assert Counter(values(take(keeper, 5))) == Counter(numbered(0, 5))


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
def test_single_active_subscriptions_have_no_dead_letters(client: Client, topic: str, kind: str) -> None:
    """4.7.2 nothing counts there, so messages come again as often as they are nacked."""
    send(client, topic, 1, batched=False)
    consumer = client.subscribe(
        topic, "s", type=kind, initial_position="earliest", negative_ack_redelivery_delay_s=0.05,  # type: ignore[arg-type]
        negative_ack_precision_bits=0, dead_letter_policy=DeadLetterPolicy(max_redeliver_count=1),
    )  # fmt: skip
    for _ in range(4):
        consumer.negative_acknowledge(take(consumer, 1)[0])
    assert values(take(consumer, 1)) == ["m0"]


def test_reconsume_later_goes_round_until_it_is_dead(client: Client, topic: str) -> None:
    """4.6.6 (I4.8, I4.9) max = 3: four deliveries, RECONSUMETIMES absent, 1, 2, 3; the fourth call makes it dead."""
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest", retry_enabled=True,
        dead_letter_policy=DeadLetterPolicy(max_redeliver_count=3),
    )  # fmt: skip
    assert consumer.topics == [topic, f"{topic}-s-RETRY"]
    with client.create_producer(topic) as producer:
        sent = producer.send("again", key=b"bytes", properties={"a": "b"}, event_time_ms=-5)
    seen = []
    for _ in range(4):
        message = consumer.receive(WAIT_S)
        seen.append(message)
        consumer.reconsume_later(message, 0.05, {"round": str(len(seen))})
    origin = {"REAL_TOPIC": topic, "ORIGIN_MESSAGE_ID": str(sent), "a": "b"}
    assert seen[0].properties == {"a": "b"}
    for number, message in enumerate(seen[1:], 1):
        marks = {"RECONSUMETIMES": str(number), "DELAY_TIME": "50", "round": str(number)}
        assert message.properties == {**origin, **marks}
    assert [message.redelivery_count for message in seen] == [0] * 4
    assert len({message.message_id for message in seen}) >= 3
    (dead,) = dead_letters(client, f"{topic}-s-DLQ", 1)
    assert dead.properties == {**origin, "RECONSUMETIMES": "4", "DELAY_TIME": "50", "round": "4"}
    assert (dead.value, dead.key, dead.event_time_ms) == (b"again", b"bytes", -5)
    eventually(lambda: is_all_acknowledged(consumer), "original and copies are acknowledged")
    assert_nothing_comes(consumer)


def test_a_retried_message_counts_its_redeliveries_anew(client: Client, topic: str) -> None:
    """4.6.7, 4.7.3 the copy begins with count 0: both counters are independent, and not added."""
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest", retry_enabled=True,
        negative_ack_redelivery_delay_s=0.1, dead_letter_policy=DeadLetterPolicy(max_redeliver_count=1),
    )  # fmt: skip
    send(client, topic, 1, batched=False)
    consumer.negative_acknowledge(take(consumer, 1)[0])
    again = take(consumer, 1)[0]
    assert again.redelivery_count == 1
    consumer.reconsume_later(again, 0)
    copy = take(consumer, 1)[0]
    assert (copy.redelivery_count, copy.properties["RECONSUMETIMES"]) == (0, "1")
    consumer.negative_acknowledge(copy)
    copy = take(consumer, 1)[0]
    assert (copy.redelivery_count, copy.properties["RECONSUMETIMES"]) == (1, "1")
    consumer.negative_acknowledge(copy)
    (dead,) = dead_letters(client, f"{topic}-s-DLQ", 1)
    assert (dead.properties["REAL_TOPIC"], dead.properties["RECONSUMETIMES"]) == (topic, "1")


def test_retry_without_a_policy_gives_up_after_sixteen(client: Client, topic: str) -> None:
    """4.6.3 the default maximum is 16; no wait between rounds with delay 0."""
    consumer = client.subscribe(topic, "s", type="shared", initial_position="earliest", retry_enabled=True)
    send(client, topic, 1, batched=False)
    for _ in range(17):
        consumer.reconsume_later(consumer.receive(WAIT_S), 0)
    (dead,) = dead_letters(client, f"{topic}-s-DLQ", 1)
    assert dead.properties["RECONSUMETIMES"] == "17"


def test_retry_must_be_enabled(client: Client, topic: str) -> None:
    """4.6.1 without it there is no retry topic to write to, and the error says what to do."""
    send(client, topic, 1)
    consumer = client.subscribe(topic, "s", type="shared", initial_position="earliest")
    with pytest.raises(UsageError, match="retry_enabled"):
        consumer.reconsume_later(take(consumer, 1)[0], 1)


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
def test_a_message_may_be_retried_and_all_before_it_acknowledged(client: Client, topic: str, kind: str) -> None:
    """4.6.3, 3.5.1 (4.6.4) the one that is named is copied; on Exclusive and Failover its delay does not hold it up."""
    send(client, topic, 5)
    options = {"type": kind, "initial_position": "earliest", "retry_enabled": True}
    with client.subscribe(topic, "s", **options) as consumer:  # type: ignore[arg-type]
        messages = {message.value: message for message in take(consumer, 5)}
        consumer.reconsume_later_cumulative(messages[b"m2"], 3600, {"why": "later"})
        copy = take(consumer, 1)[0]
        assert (copy.value, copy.topic) == (b"m2", f"{topic}-s-RETRY")
        assert (copy.properties["RECONSUMETIMES"], copy.properties["why"]) == ("1", "later")
        consumer.reconsume_later_cumulative(copy, 0)
        again = take(consumer, 1)[0]
        assert again.properties["RECONSUMETIMES"] == "2"
        consumer.acknowledge_cumulative(again, wait=True)
    with client.subscribe(topic, "s", **options) as consumer:  # type: ignore[arg-type]
        assert values(take(consumer, 2)) == ["m3", "m4"]
        assert_nothing_comes(consumer)


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_nothing_is_acknowledged_cumulatively_where_others_consume(client: Client, topic: str, kind: str) -> None:
    """4.6.3, 3.3.1 (2.4.1) the error comes before the copy."""
    send(client, topic, 1)
    consumer = client.subscribe(topic, "s", type=kind, initial_position="earliest", retry_enabled=True)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="belong to others"):
        consumer.reconsume_later_cumulative(take(consumer, 1)[0], 0)
    assert_nothing_comes(consumer)


def test_a_message_that_is_not_stored_may_be_retried(client: Client, topic: str) -> None:
    """4.6.3, 1.1.8 its retry topic stores nothing either, and has no chunks; that was no reason to refuse."""
    passing = f"non-{topic}"
    with client.subscribe(passing, "s", type="shared", retry_enabled=True) as consumer:
        with client.create_producer(passing) as producer:
            producer.send("again")
        consumer.reconsume_later(take(consumer, 1)[0], 0)
        copy = take(consumer, 1)[0]
        assert (copy.value, copy.topic) == (b"again", f"{passing}-s-RETRY")


def test_what_is_stored_has_no_copy_where_nothing_is(client: Client, topic: str) -> None:
    """4.6.3 the copy would be gone where nobody is there for it, and the message with it: it comes again instead."""
    policy = DeadLetterPolicy(max_redeliver_count=1, retry_letter_topic=f"non-{topic}-again")
    options = {"type": "shared", "retry_enabled": True, "dead_letter_policy": policy, "initial_position": "earliest"}
    send(client, topic, 1)
    with client.subscribe([topic, f"non-{topic}"], "s", **options) as consumer:  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="not stored"):
            consumer.reconsume_later(take(consumer, 1)[0], 0)
        assert values(take(consumer, 1)) == ["m0"]


def test_partitions_share_their_retry_topic(service: Service, client: Client, topic: str) -> None:
    """4.6.2 with retry enabled the names come from the topic without its partition; without, from the partition."""
    service.create_partitioned(topic, 2)
    send(client, topic, 20, batched=False)
    retries = client.subscribe(topic, "s", type="shared", initial_position="earliest", retry_enabled=True)
    assert sorted(retries.topics) == sorted([f"{topic}-partition-0", f"{topic}-partition-1", f"{topic}-s-RETRY"])
    for message in take(retries, 20):
        retries.reconsume_later(message, 0)
    copies = take(retries, 20)
    assert Counter(values(copies)) == Counter(numbered(0, 20))
    assert {copy.properties["REAL_TOPIC"] for copy in copies} == {topic}
    alone = client.subscribe(
        topic, "t", type="shared", initial_position="earliest", negative_ack_redelivery_delay_s=0.1,
        dead_letter_policy=DeadLetterPolicy(max_redeliver_count=1),
    )  # fmt: skip
    for _ in range(2):
        for message in take(alone, 20):
            alone.negative_acknowledge(message)
    eventually(lambda: is_all_acknowledged(alone), "all are dead")
    dead = [letter for index in (0, 1) for letter in dead_letters(client, f"{topic}-partition-{index}-t-DLQ", 10)]
    assert Counter(values(dead)) == Counter(numbered(0, 20))
    origins = Counter(letter.properties["REAL_TOPIC"] for letter in dead)
    assert origins == {f"{topic}-partition-{index}": 10 for index in (0, 1)}


def test_letter_topics_can_be_named_otherwise(client: Client, topic: str) -> None:
    """4.6.2 a hook makes other names, and explicit names win."""

    def with_underscore(topic: str, subscription: str, suffix: str) -> str:
        return f"{topic}-{subscription}_{'RLQ' if suffix == '-RETRY' else 'DLQ'}"

    policy = DeadLetterPolicy(max_redeliver_count=1, dead_letter_topic=f"{topic}-dead", topic_name=with_underscore)
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest", retry_enabled=True, dead_letter_policy=policy
    )
    assert consumer.topics[1] == f"{topic}-s_RLQ"
    send(client, topic, 1, batched=False)
    for _ in range(2):
        consumer.reconsume_later(take(consumer, 1)[0], 0)
    assert values(dead_letters(client, f"{topic}-dead", 1)) == ["m0"]
    with pytest.raises(ConfigError, match="max_redeliver_count"):
        DeadLetterPolicy(max_redeliver_count=0)


def test_a_subscription_with_a_slash_needs_letter_topics_of_other_names(client: Client, topic: str) -> None:
    """4.6.2 the error names the subscription, not the topic that nobody has asked for; explicit names help."""
    policy = DeadLetterPolicy(max_redeliver_count=1, dead_letter_topic=f"{topic}-dead")
    with pytest.raises(InvalidTopicNameError, match=r"subscription 'team/job' has no default topic -DLQ: .*; name"):
        client.subscribe(topic, "team/job", type="shared", dead_letter_policy=DeadLetterPolicy(max_redeliver_count=1))
    with pytest.raises(InvalidTopicNameError, match=r"'team/job' has no default topic -RETRY: .*retry_letter_topic"):
        client.subscribe(topic, "team/job", type="shared", retry_enabled=True, dead_letter_policy=policy)
    with client.subscribe(
        topic, "team/job", type="shared", initial_position="earliest", dead_letter_policy=policy,
        negative_ack_redelivery_delay_s=0.1,
    ) as consumer:  # fmt: skip
        send(client, topic, 1, batched=False)
        for _ in range(2):
            consumer.negative_acknowledge(take(consumer, 1)[0])
        assert values(dead_letters(client, f"{topic}-dead", 1)) == ["m0"]


def test_without_a_copy_the_original_is_not_acknowledged(client: Client, topic: str) -> None:
    """4.6.3, 4.7.5 (I4.7, I4.10) somebody else owns the letter topics: messages come again until copies can be made."""
    policy = DeadLetterPolicy(max_redeliver_count=1)
    locks = [client.create_producer(f"{topic}-s-{each}", access_mode="exclusive") for each in ("DLQ", "RETRY")]
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest", retry_enabled=True, dead_letter_policy=policy,
        negative_ack_redelivery_delay_s=0.1,
    )  # fmt: skip
    send(client, topic, 2, batched=False)
    retried, nacked = take(consumer, 2)
    with pytest.raises(PulsarishError):
        consumer.reconsume_later(retried, 0)
    consumer.negative_acknowledge(nacked)
    again = {message.value: message for message in take(consumer, 2)}
    assert [message.redelivery_count for message in again.values()] == [1, 1]
    consumer.negative_acknowledge(again[nacked.value or b""])
    time.sleep(0.5)
    assert not is_all_acknowledged(consumer)
    for lock in locks:
        lock.close()
    consumer.reconsume_later(again[retried.value or b""], 0)
    copy = take(consumer, 1)[0]
    assert copy.value == retried.value
    consumer.acknowledge(copy)
    assert dead_letters(client, f"{topic}-s-DLQ", 1)[0].value == nacked.value
    eventually(lambda: is_all_acknowledged(consumer), "everything ended in exactly one place")


def test_several_topics_share_the_letters_of_the_first(client: Client, new_topic: Callable[[], str]) -> None:
    """4.6.2 one consumer, one retry topic; each copy remembers the topic that it came from (4.6.4)."""
    topics = [new_topic(), new_topic()]
    consumer = client.subscribe(topics, "s", type="shared", initial_position="earliest", retry_enabled=True)
    for number, each in enumerate(topics):
        send(client, each, 1, batched=False, first=number)
    for message in take(consumer, 2):
        consumer.reconsume_later(message, 0)
    copies = take(consumer, 2)
    assert {(copy.topic, copy.properties["REAL_TOPIC"]) for copy in copies} == {
        (f"{topics[0]}-s-RETRY", each) for each in topics
    }


def test_every_message_ends_in_exactly_one_place(service: Service, client: Client, topic: str) -> None:
    """I4.7, I4.8 (4.7.4, 4.6.3) an application that does something else with each: acknowledged, or one dead letter."""
    service.create_partitioned(topic, 2)
    count, most = 60, 2
    send(client, topic, count // 2)
    send(client, topic, count // 2, batched=False, first=count // 2)
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest", receiver_queue_size=7, retry_enabled=True,
        negative_ack_redelivery_delay_s=0.05, negative_ack_precision_bits=4,
        dead_letter_policy=DeadLetterPolicy(max_redeliver_count=most),
    )  # fmt: skip
    shown: Counter[str] = Counter()
    acknowledged: set[str] = set()
    while len(acknowledged) < count // 3 or sum(shown.values()) < count // 3 + 2 * (count // 3) * (most + 1):
        message = consumer.receive(WAIT_S)
        name = values([message])[0]
        shown[name] += 1
        kind = int(name[1:]) % 3
        if kind == 0:
            consumer.acknowledge(message)
            acknowledged.add(name)
        elif kind == 1 and int(name[1:]) >= count // 2:
            consumer.negative_acknowledge(message)
        else:
            consumer.reconsume_later(message, 0)
    letters = dead_letters(client, f"{topic}-s-DLQ", 2 * (count // 3))
    assert_nothing_comes(consumer)
    eventually(lambda: is_all_acknowledged(consumer), "nothing is left in the backlog")
    assert acknowledged == {f"m{number}" for number in range(0, count, 3)}
    assert Counter(values(letters)) == Counter(set(numbered(0, count)) - acknowledged)
    assert shown == {name: 1 if name in acknowledged else most + 1 for name in numbered(0, count)}


def test_a_retried_message_waits_for_its_delay(client: Client, topic: str) -> None:
    """4.6.3 (I6.1) the copy is a delayed message: it waits, but for a tick (6.1.3), while others go on."""
    consumer = client.subscribe(topic, "s", type="shared", initial_position="earliest", retry_enabled=True)
    send(client, topic, 1, batched=False)
    message = take(consumer, 1)[0]
    producer = client.create_producer(topic)
    asked_at = time.monotonic()
    consumer.reconsume_later(message, 6)
    producer.send("m1")
    assert values(take(consumer, 1)) == ["m1"]
    copy = take(consumer, 1)[0]
    assert (copy.value, copy.properties["DELAY_TIME"]) == (b"m0", "6000")
    assert time.monotonic() - asked_at >= 6 - EARLY_S


def test_copies_have_one_producer_made_at_the_first_of_them(client: Client, service: Service, topic: str) -> None:
    """4.6.5 however many are asked for at a time; each copy is an entry of its own."""
    consumer = client.subscribe(topic, "s", type="shared", initial_position="earliest", retry_enabled=True)

    def publishers() -> int:
        return len(json.loads(service.admin("GET", f"{admin_path(topic)}-s-RETRY/stats"))["publishers"])

    send(client, topic, 6)
    messages = take(consumer, 6)
    assert publishers() == 0
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda message: consumer.reconsume_later(message, 0), messages))
    copies = take(consumer, 6)
    assert publishers() == 1
    assert len({copy.producer_name for copy in copies}) == 1
    assert len({copy.message_id.position for copy in copies}) == 6


def test_letters_are_sent_again_when_their_topic_was_made_anew(client: Client, service: Service, topic: str) -> None:
    """4.6.5, 4.7.5: a producer of letters that was refused for good stayed, and with it each letter failed for ever."""
    dead = f"{topic}-s-DLQ"
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest", retry_enabled=True,
        dead_letter_policy=DeadLetterPolicy(max_redeliver_count=1),
    )  # fmt: skip
    send(client, topic, 2, batched=False)
    for message in take(consumer, 2):
        consumer.reconsume_later(message, 0)
    first, second = take(consumer, 2)
    consumer.reconsume_later(first, 0)
    service.admin("POST", f"{admin_path(dead)}/terminate")
    with pytest.raises(TopicTerminatedError):
        consumer.reconsume_later(second, 0)
    service.admin("DELETE", f"{admin_path(dead)}?force=true")
    (again,) = take(consumer, 1)
    consumer.reconsume_later(again, 0)
    assert values(dead_letters(client, dead, 1)) == values([second])


def test_a_large_message_is_copied_in_chunks(client: Client, topic: str) -> None:
    """4.6.5 letters may be larger than the broker takes at once; the original goes with all its chunks (3.1.7)."""
    consumer = client.subscribe(topic, "s", type="shared", initial_position="earliest", retry_enabled=True)
    value = bytes(range(256)) * 24 * 1024
    with client.create_producer(topic, batching_enabled=False, chunking_enabled=True) as producer:
        sent = producer.send(value)
    message = take(consumer, 1)[0]
    consumer.reconsume_later(message, 0)
    copy = take(consumer, 1)[0]
    assert copy.value == value
    assert copy.properties["ORIGIN_MESSAGE_ID"] == str(sent)
    consumer.acknowledge(copy)
    eventually(lambda: is_all_acknowledged(consumer), "all chunks of both are acknowledged")


class _Restless(ConsumerInterceptor):
    """Asks for everything again at the first acknowledgement that it sees."""

    def __init__(self) -> None:
        self.consumer: Consumer | None = None

    def on_acknowledge(self, message_id: MessageId) -> None:
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            consumer._inner.redeliver_unacknowledged()  # on the client's own thread already


@pytest.mark.parametrize("index_acks", [True, False])
def test_a_dead_batch_leaves_the_backlog_though_it_is_asked_for_again(
    client: Client, topic: str, index_acks: bool
) -> None:
    """4.7.5, 3.1.5: what comes again while copies are on their way is not shown, so the copies alone must do."""
    restless = _Restless()
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest", negative_ack_redelivery_delay_s=0.1,
        batch_index_ack_enabled=index_acks, interceptors=[restless],
        dead_letter_policy=DeadLetterPolicy(max_redeliver_count=1),
    )  # fmt: skip
    send(client, topic, 5, batched=True)
    for _ in range(2):
        batch = take(consumer, 5)
        restless.consumer = consumer if batch[0].redelivery_count else None
        consumer.negative_acknowledge(batch[0])
    eventually(lambda: is_all_acknowledged(consumer), "the batch is acknowledged behind its copies")
    letters = client.subscribe(f"{topic}-s-DLQ", "look", initial_position="earliest")
    assert values(take(letters, 5)) == numbered(0, 5)
