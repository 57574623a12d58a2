# SPDX-License-Identifier: Apache-2.0
"""Subscription types: who may come, who gets what, what happens when somebody leaves (semantics 2.1 to 2.4)."""

from __future__ import annotations

import pytest

from tests.behaviour.cell import Cell, take, take_all, take_and_ack, take_values, values
from tests.behaviour.interface import SILENCE_MS, RefusedError
from tests.client.helpers import eventually


def test_a_second_exclusive_consumer_is_refused(cell: Cell) -> None:
    """2.2.1, 2.1.4: exclusive is the default, and means one."""
    topic = cell.topic()
    first = cell.consumer(topic)
    with pytest.raises(RefusedError) as refused:
        cell.consumer(topic)
    assert refused.value.kind == "ConsumerBusy"
    first.close()
    cell.consumer(topic)


def test_another_type_is_refused_while_somebody_is_connected(cell: Cell) -> None:
    """2.1.1: the first consumer decides; with the last one the type is free."""
    topic = cell.topic()
    first = cell.consumer(topic, type="Shared")
    with pytest.raises(RefusedError) as refused:
        cell.consumer(topic, type="Failover")
    assert refused.value.kind == "ConsumerBusy"
    first.close()
    cell.consumer(topic, type="Failover")


def test_another_type_keeps_what_was_acknowledged(cell: Cell) -> None:
    """2.1.3: the cursor belongs to the subscription."""
    topic = cell.topic()
    first = cell.consumer(topic, type="Shared")
    cell.send(topic, "abcd")
    for message in take(first, 4):
        if message.value in "ac":
            first.ack(message)
    first.close()
    assert take_values(cell.consumer(topic), 2) == ["b", "d"]


def test_every_subscription_gets_every_message(cell: Cell) -> None:
    """2.1.5: different names fan out."""
    topic = cell.topic()
    consumers = [cell.consumer(topic, name) for name in ("one", "two")]
    cell.send(topic, "ab")
    assert [take_values(consumer, 2) for consumer in consumers] == [["a", "b"], ["a", "b"]]


def test_the_initial_position_counts_once(cell: Cell) -> None:
    """1.9.1, 1.9.3: for a new subscription; an existing one stays where it is."""
    topic = cell.topic()
    cell.send(topic, "ab")
    cell.consumer(topic, "late").close()
    early = cell.consumer(topic, "early", initial_position="Earliest")
    late = cell.consumer(topic, "late", initial_position="Earliest")
    cell.send(topic, "c")
    assert take_values(early, 3) == ["a", "b", "c"]
    assert take_values(late, 1) == ["c"]


def test_unsubscribing_forgets_the_position(cell: Cell) -> None:
    """2.1.8: the cursor is deleted."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    cell.send(topic, "ab")
    take_and_ack(consumer, 2)
    consumer.unsubscribe()
    assert take_values(cell.consumer(topic, initial_position="Earliest"), 2) == ["a", "b"]


def test_unsubscribing_is_refused_while_others_are_connected(cell: Cell) -> None:
    """2.1.8: only the sole consumer may."""
    topic = cell.topic()
    first = cell.consumer(topic, type="Shared")
    cell.consumer(topic, type="Shared")
    with pytest.raises(RefusedError):
        first.unsubscribe()


def test_a_consumer_goes_on_when_it_may_not_unsubscribe(cell: Cell) -> None:
    """2.1.8: nothing was done, so it receives as before, and may unsubscribe once it is alone."""
    topic = cell.topic()
    first = cell.consumer(topic, type="Shared")
    second = cell.consumer(topic, type="Shared")
    with pytest.raises(RefusedError):
        first.unsubscribe()
    second.close()
    cell.send(topic, "ab")
    assert take_values(first, 2) == ["a", "b"]
    first.unsubscribe()
    assert take_values(cell.consumer(topic, initial_position="Earliest"), 2) == ["a", "b"]


def test_unsubscribing_by_force_disconnects_others(cell: Cell) -> None:
    """2.1.8: they come back to a new subscription, which knows nothing of the acknowledgements of the former."""
    topic = cell.topic()
    first = cell.consumer(topic, type="Shared", initial_position="Earliest")
    cell.send(topic, "ab")
    take_and_ack(first, 2)
    second = cell.consumer(topic, type="Shared", initial_position="Earliest")
    first.unsubscribe(force=True)
    assert take_values(second, 2) == ["a", "b"]


def test_a_standby_takes_over_what_is_unacknowledged(cell: Cell) -> None:
    """2.3.4.1, 2.9.6 (2.3.5.4): from the first unacknowledged message on, without counting."""
    topic = cell.topic()
    going = cell.new_client()
    first = cell.consumer(topic, type="Failover", name="a", priority=0, client=going)
    cell.send(topic, "abcd")
    first.ack(take(first, 2)[0])
    second = cell.consumer(topic, type="Failover", name="b")
    going.close()
    cell.send(topic, "e")
    taken = take(second, 4)
    assert values(taken) == ["b", "c", "d", "e"]
    assert {message.redelivery_count for message in taken} == {0}


def test_a_better_priority_takes_the_lead(cell: Cell) -> None:
    """2.3.1, 2.1.6: only the best priority present can be active."""
    topic = cell.topic()
    cell.consumer(topic, type="Failover", name="a", priority=1)
    better = cell.consumer(topic, type="Failover", name="b", priority=0)
    cell.send(topic, "ab")
    assert take_values(better, 2) == ["a", "b"]


def test_partitions_are_dealt_out_by_the_order_of_names(cell: Cell) -> None:
    """2.3.2 (2.3.1): partition p belongs to candidate p modulo their number; to the last one all."""
    topic = cell.topic(partitions=3)
    first = cell.consumer(topic, type="Failover", name="a")
    second = cell.consumer(topic, type="Failover", name="b")
    for partition in range(3):
        cell.send(f"{topic}-partition-{partition}", [str(partition)])
    assert sorted(message.value for message in take_and_ack(first, 2)) == ["0", "2"]
    assert values(take_and_ack(second, 1)) == ["1"]
    first.close()
    for partition in range(3):
        cell.send(f"{topic}-partition-{partition}", [str(partition)])
    assert sorted(take_values(second, 3)) == ["0", "1", "2"]


def test_one_exclusive_consumer_has_all_partitions(cell: Cell) -> None:
    """2.2.2 (1.2.4): and nobody else gets any."""
    topic = cell.topic(partitions=3)
    consumer = cell.consumer(topic)
    with pytest.raises(RefusedError):
        cell.consumer(topic)
    for partition in range(3):
        cell.send(f"{topic}-partition-{partition}", [str(partition)])
    taken = take(consumer, 3)
    assert sorted(values(taken)) == ["0", "1", "2"]
    assert sorted(message.message_id.partition for message in taken) == [0, 1, 2]


def test_shared_consumers_share_and_nobody_gets_anything_twice(cell: Cell) -> None:
    """2.4.1, 4.8: each message is with one consumer; all get some; nothing comes again by itself."""
    topic = cell.topic()
    consumers = [cell.consumer(topic, type="Shared", queue_size=10, name=name) for name in "ab"]
    words = [str(number) for number in range(60)]
    cell.send(topic, words)
    got: list[list[str]] = [[], []]
    while sum(map(len, got)) < len(words):
        for mine, consumer in zip(got, consumers, strict=True):
            message = consumer.receive(SILENCE_MS)
            if message is not None:
                mine.append(message.value)
                consumer.ack(message)
    assert sorted(got[0] + got[1]) == sorted(words)
    assert min(map(len, got)) >= 10
    assert [take_all(consumer) for consumer in consumers] == [[], []]


def test_a_better_priority_is_served_first(cell: Cell) -> None:
    """2.4.2 (2.1.6): a lower one gets something only when no better one has room."""
    topic = cell.topic()
    worse = cell.consumer(topic, type="Shared", priority=1, queue_size=10)
    better = cell.consumer(topic, type="Shared", priority=0, queue_size=4)
    cell.send(topic, "abcdef")
    assert take_values(worse, 2) == ["e", "f"]
    assert take_values(better, 4) == ["a", "b", "c", "d"]


def test_permits_limit_what_is_pushed(cell: Cell) -> None:
    """4.1.1, 4.1.2: a queue of one place takes one message, the rest is for others."""
    topic = cell.topic()
    small = cell.consumer(topic, type="Shared", queue_size=1)
    cell.send(topic, "abcdef")
    large = cell.consumer(topic, type="Shared", queue_size=100)
    assert take_values(large, 5) == ["b", "c", "d", "e", "f"]
    assert take_values(small, 1) == ["a"]


def test_without_a_queue_each_receive_gets_one(cell: Cell) -> None:
    """4.1.4: and nothing is fetched ahead."""
    topic = cell.topic()
    idle = cell.consumer(topic, type="Shared", queue_size=0)
    cell.send(topic, "abc")
    busy = cell.consumer(topic, type="Shared")
    assert take_values(busy, 3) == ["a", "b", "c"]
    cell.send(topic, "d")
    busy.close()
    assert sorted(take_values(idle, 4)) == ["a", "b", "c", "d"]


def test_a_paused_consumer_takes_no_more(cell: Cell) -> None:
    """4.1.6: what it has room for already still comes; resuming gives what is owed."""
    topic = cell.topic()
    first = cell.consumer(topic, type="Shared", queue_size=2)
    cell.send(topic, "-")
    take_and_ack(first, 1)  # the Java client asks for messages only after subscribing, and not at all if paused by then
    first.pause()
    cell.send(topic, "abcd")
    assert take_values(first, 2) == ["a", "b"]
    second = cell.consumer(topic, type="Shared")
    assert take_values(second, 2) == ["c", "d"]
    second.close()
    first.resume()
    assert sorted(take_values(first, 2)) == ["c", "d"]


def test_a_vanished_consumers_messages_go_to_others(cell: Cell) -> None:
    """2.4.9: what it had acknowledged does not come again."""
    topic = cell.topic()
    going = cell.new_client()
    first = cell.consumer(topic, type="Shared", client=going)
    cell.send(topic, "abcd")
    first.ack(take(first, 4)[1])
    second = cell.consumer(topic, type="Shared")
    going.close()
    assert sorted(take_values(second, 3)) == ["a", "c", "d"]


def test_a_vanished_consumers_messages_are_counted(cell: Cell) -> None:
    """2.4.9, 4.4.3: as redelivered once, so that one that kills its consumers becomes a dead letter."""
    topic = cell.topic()
    going = cell.new_client()
    first = cell.consumer(topic, type="Shared", client=going)
    cell.send(topic, "a")
    take(first, 1)
    second = cell.consumer(topic, type="Shared")
    going.close()
    assert take(second, 1)[0].redelivery_count == 1


def test_counts_begin_anew_when_everybody_had_left(cell: Cell) -> None:
    """2.4.10 (4.4.3): they are kept in memory, for as long as there are consumers."""
    topic = cell.topic()
    first = cell.consumer(topic, type="Shared", nack_delay_ms=100)
    cell.send(topic, "a")
    first.nack(take(first, 1)[0])
    assert take(first, 1)[0].redelivery_count == 1
    first.close()
    assert take(cell.consumer(topic, type="Shared"), 1)[0].redelivery_count == 0


def test_a_message_that_comes_again_has_the_same_id(cell: Cell) -> None:
    """1.9.4, 1.9.2: also for another consumer later."""
    topic = cell.topic()
    first = cell.consumer(topic)
    sent = [each[:2] for each in cell.send(topic, "abc")]
    ids = [message.message_id[:2] for message in take(first, 3)]
    first.close()
    again = [message.message_id[:2] for message in take(cell.consumer(topic), 3)]
    assert sent == ids == again


def test_messages_come_in_order_through_any_queue(cell: Cell) -> None:
    """2.3.5.1, 4.1.3: whatever its size, batches and single messages, nothing twice and nothing missing."""
    topic = cell.topic()
    words = [str(number) for number in range(40)]
    for first in range(0, 40, 20):
        cell.send(topic, words[first : first + 10])
        cell.send_batch(topic, words[first + 10 : first + 20])
    for size in (1, 3, 1000):
        consumer = cell.consumer(topic, f"queue-{size}", initial_position="Earliest", queue_size=size)
        assert values(take_and_ack(consumer, 40)) == words
        assert consumer.receive(SILENCE_MS) is None


def test_several_topics_are_one_consumer(cell: Cell) -> None:
    """7.12 (1.4.2): messages say where they are from, and acknowledgements find their way back."""
    topics = [cell.topic(), cell.topic()]
    consumer = cell.consumer(topics)
    for topic in topics:
        cell.send(topic, [topic])
    taken = take_and_ack(consumer, 2)
    assert sorted(values(taken)) == sorted(topics)
    assert all(message.topic == message.value for message in taken)
    consumer.close()
    assert cell.consumer(topics).receive(SILENCE_MS) is None


def test_a_pattern_finds_its_topics(cell: Cell) -> None:
    """7.12: all that match and no others."""
    base = cell.topic()
    for end in ("x1", "x2", "y"):
        cell.send(f"{base}-{end}", [end])
    consumer = cell.consumer([], pattern=f"{base}-x.*", initial_position="Earliest", type="Shared")
    assert sorted(take_values(consumer, 2)) == ["x1", "x2"]
    assert take_all(consumer) == []


def test_a_pattern_finds_topics_that_come_later(cell: Cell) -> None:
    """7.12: and misses none of their messages."""
    base = cell.topic()
    cell.send(f"{base}-x1", "a")
    consumer = cell.consumer([], pattern=f"{base}-x.*", initial_position="Earliest", type="Shared")
    assert take_values(consumer, 1) == ["a"]
    cell.send(f"{base}-x2", "b")
    assert take_values(consumer, 1) == ["b"]


def test_a_broker_tells_of_topics_that_match_a_pattern(cell: Cell) -> None:
    """7.12: nobody looks for them, and still none of their messages is missed."""
    base = cell.topic()
    cell.send(f"{base}-x1", "a")
    pattern = f"{base}-x.*".removeprefix("persistent://")
    consumer = cell.consumer([], pattern=pattern, initial_position="Earliest", type="Shared", looks=False)
    assert take_values(consumer, 1) == ["a"]
    cell.send(f"{base}-y", "b")
    cell.send(f"{base}-x2", "cd")
    assert take_values(consumer, 2) == ["c", "d"]


def test_a_pattern_may_be_of_a_namespace_that_is_not_there(cell: Cell) -> None:
    """7.12: it matches nothing yet."""
    pattern = f"{cell.topic().replace('/default/', '/nowhere/')}.*"
    assert cell.consumer([], pattern=pattern).receive(SILENCE_MS) is None


def test_a_subscription_needs_a_name(cell: Cell) -> None:
    """1.9.3: whoever has none is told at once, not when the client has lost its patience."""
    with pytest.raises(RefusedError) as refused:
        cell.consumer(cell.topic(), "")
    kinds = ("InvalidTopicName", "InvalidConfiguration", "IllegalArgument", "SubscriptionNotFound", "ProducerBusy")
    assert refused.value.kind in kinds


def test_partitions_of_a_topic_without_any_are_not_allowed(cell: Cell) -> None:
    """1.1.4, 1.2.1: nobody makes them by using them."""
    topic = cell.topic()
    cell.send(topic, "a")
    for use in (cell.producer, cell.consumer):
        with pytest.raises(RefusedError) as refused:
            use(f"{topic}-partition-0")
        assert refused.value.kind == "NotAllowed"


def test_readers_count_among_the_subscriptions_of_a_topic(cell: Cell) -> None:
    """1.1.5, 1.9.2: where they are limited no reader comes beyond the limit."""
    topic = cell.topic()
    cell.reader(topic)
    cell.admin("POST", topic, "maxSubscriptionsPerTopic", "1")

    def refused() -> bool:
        try:
            cell.reader(topic).close()
        except RefusedError:
            return True
        return False

    eventually(refused, "one more reader is refused, once the topic has taken the limit in")


@pytest.mark.parametrize("partitions", [1, 2])
def test_partitions_need_a_queue(cell: Cell, partitions: int) -> None:
    """4.1.4 (4.1.5): without one nobody knows which partition to ask, and even a single one may become several."""
    topic = cell.topic(partitions=partitions)
    with pytest.raises(RefusedError):
        cell.consumer(topic, queue_size=0)


def test_several_topics_need_a_queue(cell: Cell) -> None:
    """4.1.4 (4.1.5): without one nobody knows which topic to ask."""
    with pytest.raises(RefusedError):
        cell.consumer([cell.topic(), cell.topic()], queue_size=0)
