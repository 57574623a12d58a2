# SPDX-License-Identifier: Apache-2.0
"""Non-persistent topics: offered to who is there and can take it, dropped otherwise, never stored."""

from __future__ import annotations

import pytest

from broker_core.base.errors import (
    ConsumerBusyError,
    MetadataServerError,
    NotAllowedError,
    ProducerBusyError,
    ProducerFencedError,
    ServerError,
    TopicNotFoundError,
)
from broker_core.base.names import NamespaceName, TopicName
from broker_core.base.policies import Policies
from broker_core.base.positions import Position
from broker_core.base.steps import drained
from broker_core.broker.consumer import Consumer
from broker_core.broker.directory.topic_registry import TopicsMode
from broker_core.broker.non_persistent.topic import NonPersistentTopic
from broker_core.broker.publishing.producer import Producer
from broker_core.broker.requests import AccessMode, AckId, AckKind, ProducerRequest, SubscribeRequest, SubscriptionType
from broker_core.broker.stats import non_persistent_topic_stats
from broker_core.wire.entry import seal_entry
from broker_core.wire.heads import SendHead
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata
from tests.broker.world import EXCLUSIVE, FAILOVER, SHARED, Answers, Mailbox, World, body

NAME = TopicName.parse("non-persistent://public/default/n")
KEY_SHARED = SubscriptionType.KEY_SHARED


def topic_of(world: World, name: TopicName = NAME) -> NonPersistentTopic:
    topic = world.broker.any_topic(name, create=True)
    assert isinstance(topic, NonPersistentTopic)
    return topic


def produce(world: World, **request: object) -> tuple[Producer, Answers]:
    answers = Answers()
    return topic_of(world).add_producer(ProducerRequest(**request), answers), answers  # type: ignore[arg-type]


def subscribe(
    world: World,
    kind: SubscriptionType = EXCLUSIVE,
    subscription: str = "s",
    *,
    name: str = "c",
    permits: int = 1000,
    priority: int = 0,
) -> tuple[Consumer, Mailbox]:
    mailbox = Mailbox()
    request = SubscribeRequest(subscription=subscription, kind=kind, consumer_name=name, priority=priority)
    consumer = topic_of(world).subscribe(request, mailbox)
    consumer.flow(permits)
    return consumer, mailbox


def send(producer: Producer, *numbers: int, messages: int = 1) -> None:
    for number in numbers:
        producer.send(SendHead(0, number, messages), body(str(number), messages=messages))


def numbers(mailbox: Mailbox) -> list[int]:
    """What arrived, by the position that the topic gave it."""
    return [position.entry for position in mailbox.take()]


def test_messages_reach_every_subscription_at_once() -> None:
    """1.1.8: offered to connected consumers; receipts come in order, with rising ids (1.7.7)."""
    world = World()
    _, one = subscribe(world, subscription="one")
    _, two = subscribe(world, subscription="two")
    producer, answers = produce(world)
    send(producer, 0, 1, 2)
    assert (numbers(one), numbers(two), answers.order) == ([0, 1, 2], [0, 1, 2], [])
    world.settle()
    assert answers.receipts == [(number, Position(0, number)) for number in range(3)]
    assert producer.pending_entries == 0


def test_nothing_is_stored() -> None:
    """1.1.8: who comes later gets nothing of before; a restart forgets the topic."""
    world = World()
    producer, answers = produce(world)
    send(producer, 0)
    _, late = subscribe(world)
    send(producer, 1)
    world.settle()
    assert (numbers(late), len(answers.receipts)) == ([1], 2)
    world.restart()
    assert not world.broker.registry.exists(NAME)
    assert world.store.catalogue.topics.all() == []


def test_what_nobody_can_take_is_dropped() -> None:
    """1.1.8: no permits or an unread connection: dropped for good, confirmed all the same, and counted."""
    world = World()
    consumer, mailbox = subscribe(world, permits=2)
    producer, answers = produce(world)
    send(producer, 0, 1, 2)
    consumer.flow(1)
    mailbox.writable = False
    send(producer, 3)
    mailbox.writable = True
    consumer.writable_again()
    send(producer, 4)
    world.settle()
    assert (numbers(mailbox), len(answers.receipts)) == ([0, 1, 4], 5)
    stats = non_persistent_topic_stats(topic_of(world))
    assert (stats.msg_in_counter, stats.msg_out_counter, stats.msg_drop_counter) == (5, 3, 2)
    assert stats.subscriptions["s"].msg_drop_counter == 2
    assert stats.subscriptions["s"].consumers[0].available_permits == 0


def test_permits_count_the_messages_of_a_batch() -> None:
    """1.1.8, 2.4.6: as anywhere."""
    world = World()
    consumer, mailbox = subscribe(world, permits=4)
    producer, _ = produce(world)
    send(producer, 0, 1, 2, messages=3)
    assert (numbers(mailbox), consumer.permits) == ([0, 1], -2)


def test_shared_takes_turns() -> None:
    """1.1.8, 2.4.2: round robin among the best priority; the next priority gets what those cannot take."""
    world = World()
    boxes = [subscribe(world, SHARED, name=f"c{number}", permits=2)[1] for number in range(2)]
    _, spare = subscribe(world, SHARED, name="spare", priority=1)
    producer, _ = produce(world)
    send(producer, *range(6))
    assert [numbers(box) for box in boxes] == [[0, 2], [1, 3]]
    assert numbers(spare) == [4, 5]


def test_failover_has_one_active_consumer() -> None:
    """1.1.8, 2.3: the next one takes over when it leaves; what was published between is not sent again."""
    world = World()
    first, one = subscribe(world, FAILOVER, name="a")
    _, two = subscribe(world, FAILOVER, name="b")
    producer, _ = produce(world)
    send(producer, 0)
    first.close()
    send(producer, 1)
    assert (numbers(one), numbers(two), two.activity) == ([0], [1], [False, True])


def test_key_shared_keeps_a_key_with_its_consumer() -> None:
    """1.1.8, 2.6: the owner of the key gets it or nobody does."""
    world = World()
    members = [subscribe(world, KEY_SHARED, name=f"c{number}") for number in range(3)]
    producer, _ = produce(world)
    owners: dict[str, set[int]] = {}
    for number in range(60):
        key = f"key-{number % 6}"
        metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1, partition_key=key)
        producer.send(SendHead(0, number), seal_entry(metadata.SerializeToString(), b"x"))
        for index, (_, mailbox) in enumerate(members):
            if mailbox.take():
                owners.setdefault(key, set()).add(index)
    assert all(len(each) == 1 for each in owners.values())
    assert len(set.union(*owners.values())) > 1


def test_types_do_not_mix() -> None:
    """1.1.8, 2.1: the first consumer fixes the type; an exclusive one is alone; the last one frees the name."""
    world = World()
    consumer, _ = subscribe(world)
    with pytest.raises(ConsumerBusyError, match="exclusive"):
        subscribe(world)
    with pytest.raises(ConsumerBusyError, match="different type"):
        subscribe(world, SHARED)
    consumer.close()
    assert topic_of(world).subscriptions == {}
    subscribe(world, SHARED)


def test_acks_mean_nothing_and_positions_do_not_exist() -> None:
    """1.1.8: acks and seeks are accepted, redelivery does nothing, there is no last message id."""
    world = World()
    consumer, mailbox = subscribe(world)
    producer, _ = produce(world)
    send(producer, 0)
    done: list[ServerError | None] = []
    consumer.ack(AckKind.INDIVIDUAL, [AckId(Position(0, 0))], done.append)
    consumer.redeliver()
    consumer.seek(Position(0, 0), None, done.append)
    consumer.seek_to_time(0, done.append)
    assert (numbers(mailbox), done) == ([0], [None] * 3)
    with pytest.raises(NotAllowedError, match="no last message"):
        consumer.last_message_id()
    with pytest.raises(NotAllowedError, match="only while it has consumers"):
        topic_of(world).create_subscription("s")
    consumer.unsubscribe(done.append)
    assert (done[-1], topic_of(world).subscriptions) == (None, {})


def test_a_subscription_is_deleted_by_force() -> None:
    """2.1.8, 1.1.8: refused while there are others, whom force disconnects."""
    world = World()
    consumer, mailbox = subscribe(world, SHARED)
    other, others = subscribe(world, SHARED)
    done: list[ServerError | None] = []
    consumer.unsubscribe(done.append)
    consumer.unsubscribe(done.append, force=True)
    assert (type(done[0]), done[1], topic_of(world).subscriptions) == (MetadataServerError, None, {})
    assert (mailbox.closed, other.closed, others.closed) == (False, True, True)


def test_types_are_not_limited_here() -> None:
    """2.1.9: as in Pulsar, the policy is for stored topics."""
    world = World(subscription_types_enabled=("Failover",))
    subscribe(world, SHARED)


def test_limits_and_access_modes_hold() -> None:
    """1.1.8, 1.3.5, 1.7.4: too large a message is refused in order; exclusive producers are alone."""
    world = World(max_message_size=1024)
    producer, answers = produce(world, access_mode=AccessMode.EXCLUSIVE)
    with pytest.raises(ProducerFencedError):
        produce(world, access_mode=AccessMode.EXCLUSIVE)
    send(producer, 0)
    producer.send(SendHead(0, 1), body("x" * 1025))
    send(producer, 2)
    world.settle()
    assert answers.order == [0, 1, 2]
    assert isinstance(answers.outcomes[1], NotAllowedError)


def test_they_are_listed_apart_and_may_have_partitions() -> None:
    """1.1.1, 1.2.1: the domain is part of the name."""
    world = World()
    world.topic()
    subscribe(world)
    parted = TopicName.parse("non-persistent://public/default/parted")
    world.broker.create_partitioned(parted, 2)
    names = NamespaceName.parse("public/default")
    assert world.broker.registry.topics_of(names) == ["persistent://public/default/t"]
    others = [str(NAME), str(parted.partition(0)), str(parted.partition(1))]
    assert world.broker.registry.topics_of(names, TopicsMode.NON_PERSISTENT) == others
    assert world.broker.registry.topics_of(names, TopicsMode.ALL) == [*others, "persistent://public/default/t"]
    assert (world.broker.partitions_of(parted), world.broker.partitions_of(NAME)) == (2, 0)
    topic_of(world, parted.partition(1))
    for wrong in (parted, parted.partition(2)):
        with pytest.raises((NotAllowedError, TopicNotFoundError)):
            world.broker.any_topic(wrong, create=True)
    world.broker.deletion.delete_partitioned(parted)
    assert parted.partition(1) not in world.broker.non_persistent


def test_a_partition_in_use_keeps_all_partitions() -> None:
    """1.2.1: who deletes a partitioned topic without force deletes all of it or nothing."""
    world = World()
    parted = TopicName.parse("non-persistent://public/default/parted")
    world.broker.create_partitioned(parted, 3)
    first = topic_of(world, parted.partition(0))
    topic_of(world, parted.partition(1)).subscribe(
        SubscribeRequest(subscription="s", kind=SHARED, consumer_name="c"), Mailbox()
    )
    with pytest.raises(NotAllowedError, match="partition-1 is in use"):
        world.broker.deletion.delete_partitioned(parted)
    assert world.broker.non_persistent.get(parted.partition(0)) is first
    assert world.broker.partitions_of(parted) == 3
    world.broker.deletion.delete_partitioned(parted, force=True)
    assert not world.broker.registry.exists(parted)


def test_an_unused_one_is_forgotten_after_a_while() -> None:
    """7.6: a minute after the last client has left; one that is used again stays."""
    world = World()
    consumer, _ = subscribe(world)
    consumer.close()
    world.clock.advance(59_000)
    producer, _ = produce(world)
    world.clock.advance(10_000)
    assert world.broker.registry.exists(NAME)
    producer.close()
    world.clock.advance(61_000)
    assert not world.broker.registry.exists(NAME)


def test_one_whose_first_client_was_refused_is_forgotten_too() -> None:
    """1.1.8: what nobody uses stays for the same while, whether somebody was let in or not."""
    world = World()
    name = TopicName.parse("non-persistent://public/default/refused")
    topic = world.broker.any_topic(name, create=True)
    with pytest.raises(NotAllowedError):
        topic.add_producer(ProducerRequest(name="x" * 2000), Answers())
    world.clock.advance(60_000)
    world.settle()
    assert not world.broker.registry.exists(name)


def test_the_while_begins_anew_with_each_client_that_leaves() -> None:
    """7.6: a minute after the last one has left, not after an earlier one."""
    world = World()
    produce(world)[0].close()
    world.clock.advance(50_000)
    produce(world)[0].close()
    world.clock.advance(50_000)
    assert world.broker.registry.exists(NAME)
    world.clock.advance(11_000)
    assert not world.broker.registry.exists(NAME)


def test_deleting_and_unloading_sends_clients_away() -> None:
    """1.1.8: deleting is refused while it is in use, unless forced; both end with the topic gone."""
    world = World()
    _, mailbox = subscribe(world)
    _, answers = produce(world)
    with pytest.raises(NotAllowedError, match="in use"):
        world.broker.deletion.delete_topic(NAME)
    world.broker.deletion.delete_topic(NAME, force=True)
    assert (mailbox.closed, answers.closed, world.broker.registry.exists(NAME)) == (True, True, False)
    with pytest.raises(TopicNotFoundError):
        world.broker.deletion.delete_topic(NAME)
    _, mailbox = subscribe(world)
    world.broker.unload(NAME)
    assert mailbox.closed


def test_a_consumer_limit_holds_without_storage_too() -> None:
    """2.1.7, 1.1.8: maxConsumersPerSubscription."""
    world = World(max_consumers_per_subscription=2)
    subscribe(world, SHARED, name="a")
    second, _ = subscribe(world, SHARED, name="b")
    with pytest.raises(ConsumerBusyError, match="has 2 consumers, the most that are allowed"):
        subscribe(world, SHARED, name="c")
    second.close()
    subscribe(world, SHARED, name="c")


def test_entries_that_come_together_are_passed_on_in_order() -> None:
    """1.1.8: each is offered, and all are confirmed in order."""
    world = World()
    _, mailbox = subscribe(world)
    producer, answers = produce(world)
    heads = [SendHead(0, number) for number in range(3)]
    producer.send_all(heads, [body(str(number)) for number in range(3)])
    world.settle()
    assert [delivery.entry.body for delivery in mailbox.deliveries] == [body(str(number)) for number in range(3)]
    assert answers.order == [0, 1, 2]


def test_limits_of_a_namespace_hold_at_once() -> None:
    """1.1.5, 1.1.8: how many producers and consumers a topic may have, and consumers a subscription."""
    world = World()
    produce(world)
    subscribe(world, SHARED)
    limits = Policies(max_producers_per_topic=2, max_consumers_per_topic=4, max_consumers_per_subscription=2)
    drained(world.broker.set_namespace_policies(NAME.namespace_name, limits))
    produce(world)
    with pytest.raises(ProducerBusyError, match="maxProducersPerTopic"):
        produce(world)
    subscribe(world, SHARED)
    with pytest.raises(ConsumerBusyError, match="maxConsumersPerSubscription"):
        subscribe(world, SHARED)
    for name in ("other", "third"):
        subscribe(world, subscription=name)
    with pytest.raises(ConsumerBusyError, match="maxConsumersPerTopic"):
        subscribe(world, subscription="fourth")
    drained(world.broker.set_namespace_policies(NAME.namespace_name, Policies()))
    produce(world)
    subscribe(world, SHARED)
