# SPDX-License-Identifier: Apache-2.0
"""The registry: namespaces, names, auto-creation, partitions, deletion, unloading, restart."""

from __future__ import annotations

import gc
import itertools
import sys
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.errors import (
    InvalidTopicNameError,
    NotAllowedError,
    ServiceNotReadyError,
    StorageError,
    TopicNotFoundError,
)
from broker_core.base.names import NamespaceName, TopicName
from broker_core.base.steps import drained
from broker_core.broker.directory.topic_registry import TopicsMode
from broker_core.wire.heads import SendHead
from tests.broker.world import EARLIEST, TOPIC, World, ack, body

DEFAULT = NamespaceName("public", "default")


def name(text: str) -> TopicName:
    return TopicName.parse(text)


class TestNamespaces:
    """1.1.5 Tenants and namespaces."""

    def test_public_default_exists_from_the_first_start(self) -> None:
        """1.1.1 Made once, and there after a crash right away."""
        world = World()
        assert (world.broker.namespaces.tenants(), world.broker.namespaces.namespaces("public")) == (
            ["public"],
            [DEFAULT],
        )
        world.crash(policy="none")
        assert world.broker.namespaces.namespaces("public") == [DEFAULT]

    def test_others_are_made_by_name(self) -> None:
        """1.1.5 A namespace needs its tenant; both survive a restart; nothing is made twice."""
        world = World()
        registry = world.broker.namespaces
        registry.create_tenant("acme")
        registry.create(NamespaceName("acme", "sales"))
        world.restart()
        registry = world.broker.namespaces
        assert registry.namespaces("acme") == [NamespaceName("acme", "sales")]
        with pytest.raises(NotAllowedError, match="exists already"):
            registry.create_tenant("acme")
        with pytest.raises(NotAllowedError, match="exists already"):
            registry.create(NamespaceName("acme", "sales"))
        with pytest.raises(NotAllowedError, match="not valid"):
            registry.create_tenant("a/b")
        for refused in (lambda: registry.create(NamespaceName("no", "x")), lambda: registry.namespaces("no")):
            with pytest.raises(TopicNotFoundError, match="tenant 'no' does not exist"):
                refused()
        world.publish(1, "persistent://acme/sales/t")

    def test_a_topic_needs_its_namespace(self) -> None:
        """1.1.5 No topic is made in a namespace that does not exist."""
        world = World()
        for refused in (
            lambda: world.topic("no/where/t"),
            lambda: world.broker.partitions_of(name("no/where/t"), create=True),
            lambda: world.broker.create_topic(name("no/where/t")),
            lambda: world.broker.registry.topics_of(NamespaceName("no", "where")),
        ):
            with pytest.raises(TopicNotFoundError, match="namespace 'no/where' does not exist"):
                refused()


class TestAutoCreation:
    """1.1.7 Topics come into being when they are used, if allowed."""

    def test_a_plain_topic_by_default(self) -> None:
        """1.1.7 Looking it up makes nothing, using it does; short and full name are one topic (I1.4)."""
        world = World()
        assert world.broker.partitions_of(name("t"), create=True) == 0
        assert not world.broker.registry.exists(name("t"))
        assert world.topic("t") is world.topic(TOPIC)
        assert world.broker.registry.exists(name("t"))
        assert world.broker.partitions_of(name("t")) == 0

    def test_a_partitioned_topic_if_configured(self) -> None:
        """1.1.7 The first look-up makes it."""
        world = World(allow_auto_topic_creation_type="partitioned", default_num_partitions=3)
        assert world.broker.partitions_of(name("t"), create=True) == 3
        assert world.broker.registry.partitioned_topics_of(DEFAULT) == [TOPIC]

    def test_not_if_it_is_off(self) -> None:
        """1.1.7 The error says so and names what may have been meant."""
        world = World(allow_auto_topic_creation=False)
        world.broker.create_topic(name("orders"))
        with pytest.raises(TopicNotFoundError, match='auto-creation is off; did you mean "orders"'):
            world.topic("ordres")
        with pytest.raises(TopicNotFoundError):
            world.broker.partitions_of(name("ordres"), create=True)
        with pytest.raises(TopicNotFoundError, match="create it first"):
            world.topic("xyz")

    def test_a_misspelt_name_costs_the_same_however_many_topics_there_are(self) -> None:
        """1.1.7: a client asks for it again and again; it is still told which one it may have meant."""

        def calls(topics: int) -> int:
            world = World(allow_auto_topic_creation=False)
            with world.store.catalogue.transaction():
                for number in range(topics):
                    world.store.catalogue.topics.create(f"persistent://public/default/sensor-{number:05d}", 0)
            made = itertools.count()
            sys.setprofile(lambda _frame, _event, _arg: next(made) and None)
            try:
                with pytest.raises(TopicNotFoundError, match='did you mean "sensor-00130"'):
                    world.broker.partitions_of(name("sensor-00130x"))
            finally:
                sys.setprofile(None)
            return next(made)

        assert calls(3000) < 2 * calls(300)

    def test_not_if_nobody_wants_it_made(self) -> None:
        """1.1.7 Administration must not make topics by asking for them."""
        world = World()
        with pytest.raises(TopicNotFoundError):
            world.broker.topic(name("t"))
        with pytest.raises(TopicNotFoundError):
            world.broker.partitions_of(name("t"))

    def test_names_of_partitions_are_not_made_up(self) -> None:
        """1.1.3 A partition exists if its partitioned topic has that many."""
        world = World()
        with pytest.raises(NotAllowedError, match="is not a partitioned topic"):
            world.topic("t-partition-0")
        with pytest.raises(TopicNotFoundError, match="is not a partitioned topic"):
            world.broker.topic(name("t-partition-0"))
        world.broker.create_partitioned(name("t"), 2)
        assert world.topic("t-partition-1").name.partition_index == 1
        with pytest.raises(TopicNotFoundError, match="has 2 partitions"):
            world.topic("t-partition-2")
        with pytest.raises(NotAllowedError, match="named like a partition"):
            world.broker.create_topic(name("other-partition-0"))

    def test_non_persistent_topics_are_refused(self) -> None:
        """1.1.8 Rather than stored by mistake."""
        world = World()
        with pytest.raises(NotAllowedError, match="not persistent"):
            world.topic("non-persistent://public/default/t")
        with pytest.raises(InvalidTopicNameError):
            name("other://public/default/t")


@given(st.text("abz-_.0/:", max_size=30))
def test_parsing_a_name_twice_changes_nothing(text: str) -> None:
    """I1.4 parse(str(parse(x))) = parse(x), so a name always finds the same topic."""
    try:
        parsed = name(text)
    except InvalidTopicNameError:
        return
    assert name(str(parsed)) == parsed
    assert str(name(str(parsed))) == str(parsed)


class TestPartitions:
    """1.2 Partitioned topics."""

    def test_the_base_name_holds_no_data(self) -> None:
        """1.2.1 It can only be looked up."""
        world = World()
        world.broker.create_partitioned(name("t"), 4)
        assert world.broker.partitions_of(name("t")) == 4
        assert world.broker.partitions_of(name("t-partition-3")) == 0
        with pytest.raises(NotAllowedError, match="has 4 partitions"):
            world.topic("t")

    def test_they_survive_a_crash_and_are_listed_one_by_one(self) -> None:
        """1.2.1 (1.1.6) All partitions are there from the start, used or not; system topics are not shown."""
        world = World()
        world.broker.create_partitioned(name("t"), 2)
        world.broker.create_topic(name("plain"))
        world.broker.create_topic(name("__system"))
        world.publish(1, "t-partition-0")
        world.crash(policy="none")
        full = [f"persistent://public/default/{local}" for local in ("plain", "t-partition-0", "t-partition-1")]
        assert world.broker.registry.topics_of(DEFAULT) == full
        assert world.broker.registry.topics_of(DEFAULT, TopicsMode.ALL) == full
        assert world.broker.registry.topics_of(DEFAULT, TopicsMode.NON_PERSISTENT) == []

    def test_a_namespace_has_only_its_own_topics(self) -> None:
        """1.1.1, 1.1.4: whatever its neighbours in the alphabet are called, and partitions of no partitioned topic."""
        world = World()
        neighbours = [NamespaceName("public", local) for local in ("default0", "default-", "default.x", "defaul")]
        for each in neighbours:
            world.broker.namespaces.create(each)
            world.topic(f"persistent://{each}/other")
            world.broker.create_partitioned(name(f"{each}/parted"), 1)
        world.broker.create_partitioned(name("é"), 2)
        world.topic("persistent://public/default/é-partition-1")
        world.topic("persistent://public/default/a-partition-x")
        world.topic("persistent://public/default/~")
        found = ["a-partition-x", "~", "é-partition-0", "é-partition-1"]
        assert world.broker.registry.topics_of(DEFAULT) == [f"persistent://public/default/{local}" for local in found]
        for each in neighbours:
            assert world.broker.registry.topics_of(each) == [
                f"persistent://{each}/other",
                f"persistent://{each}/parted-partition-0",
            ]

    def test_nothing_is_made_twice(self) -> None:
        """1.2.1 A name is a plain or a partitioned topic."""
        world = World()
        world.broker.create_partitioned(name("t"), 2)
        world.broker.create_topic(name("plain"))
        for taken in ("t", "plain"):
            with pytest.raises(NotAllowedError, match="exists already"):
                world.broker.create_topic(name(taken))
            with pytest.raises(NotAllowedError, match="exists already"):
                world.broker.create_partitioned(name(taken), 3)
        for count in (0, 10_001):
            with pytest.raises(NotAllowedError, match="use 1 to 10000"):
                world.broker.create_partitioned(name("x"), count)

    def test_growth_that_would_leave_a_subscription_out_is_refused(self) -> None:
        """1.2.2: each partition has the subscription that it may have; a new one may not have both. Nothing changes."""
        world = World(max_subscriptions_per_topic=1)
        world.broker.create_partitioned(name("t"), 2)
        for index in range(2):
            world.topic(f"{TOPIC}-partition-{index}").create_subscription(f"s{index}")
        with pytest.raises(NotAllowedError, match="maxSubscriptionsPerTopic"):
            drained(world.broker.growth.grow(name("t"), 3))
        assert world.broker.partitions_of(name("t")) == 2
        world.topic(f"{TOPIC}-partition-0").delete_subscription("s0")
        drained(world.broker.growth.grow(name("t"), 3))
        assert list(world.topic(f"{TOPIC}-partition-2").subscriptions) == ["s1"]

    def test_their_number_only_grows(self) -> None:
        """1.2.2 New partitions get a cursor of every subscription, so that nothing is missed."""
        world = World()
        world.broker.create_partitioned(name("t"), 1)
        world.subscribe(topic="t-partition-0", properties={"a": "b"})
        drained(world.broker.growth.grow(name("t"), 3))
        with pytest.raises(NotAllowedError, match="cannot shrink"):
            drained(world.broker.growth.grow(name("t"), 2))
        assert world.broker.partitions_of(name("t")) == 3
        positions = world.publish(2, "t-partition-2")
        _, mailbox = world.subscribe(topic="t-partition-2", initial_position=EARLIEST)
        world.settle()
        assert mailbox.positions == positions
        assert dict(world.subscription("s", "t-partition-2").properties) == {"a": "b"}
        with pytest.raises(TopicNotFoundError):
            drained(world.broker.growth.grow(name("nothing"), 3))

    def test_they_grow_in_steps_that_are_whole(self) -> None:
        """1.2.2: whoever sends to a new partition between two steps finds every subscription on it."""
        world = World()
        world.broker.create_partitioned(name("t"), 1)
        world.subscribe(topic="t-partition-0")
        counts = []
        for _ in world.broker.growth.grow(name("t"), 50):
            counts.append(world.broker.partitions_of(name("t")))
            partitions = [world.topic(f"{TOPIC}-partition-{index}") for index in range(counts[-1])]
            assert all(list(each.subscriptions) == ["s"] for each in partitions)
        assert len(set(counts)) > 3
        assert world.broker.partitions_of(name("t")) == 50

    def test_a_topic_that_is_deleted_while_it_grows_is_not_made_anew(self) -> None:
        world = World()
        world.broker.create_partitioned(name("t"), 1)
        world.subscribe(topic="t-partition-0")
        growing = world.broker.growth.grow(name("t"), 50)
        next(growing)
        world.broker.deletion.delete_partitioned(name("t"), force=True)
        with pytest.raises(TopicNotFoundError):
            drained(growing)
        assert not world.broker.registry.exists(name("t"))


class TestDeletion:
    """Topics are deleted with everything in them."""

    def test_not_while_they_are_in_use(self) -> None:
        """1.3.4 Its clients protect it, unless it is forced."""
        world = World()
        world.publish(3)
        _, mailbox = world.subscribe()
        producer, answers = world.produce()
        with pytest.raises(NotAllowedError, match="1 producers and 1 consumers"):
            world.broker.deletion.delete_topic(name("t"))
        world.broker.deletion.delete_topic(name("t"), force=True)
        assert (mailbox.closed, answers.closed, producer.closed) == (True, True, True)
        assert not world.broker.registry.exists(name("t"))
        world.settle()
        world.crash(policy="none")
        assert not world.broker.registry.exists(name("t"))
        assert world.topic("t").log.entries_count == 0
        assert world.topic("t").subscriptions == {}

    def test_an_idle_topic_goes_without_force(self) -> None:
        """1.3.4 Nobody is connected; subscriptions alone do not keep it, as in Pulsar."""
        world = World()
        world.publish(1)
        consumer, _ = world.subscribe()
        with pytest.raises(NotAllowedError, match="0 producers and 1 consumers"):
            world.broker.deletion.delete_topic(name("t"))
        consumer.close()
        world.broker.deletion.delete_topic(name("t"))
        assert not world.broker.registry.exists(name("t"))
        with pytest.raises(TopicNotFoundError):
            world.broker.deletion.delete_topic(name("t"))

    def test_sends_in_flight_are_answered_with_silence(self) -> None:
        """1.7.7 A deleted topic confirms nothing any more."""
        world = World()
        producer, answers = world.produce()
        producer.send(SendHead(0, 0), body())
        world.broker.deletion.delete_topic(name("t"), force=True)
        world.settle()
        assert (answers.receipts, answers.closed, producer.pending_bytes) == ([], True, 0)

    def test_partitioned_topics_go_with_all_partitions(self) -> None:
        """1.2.1 All or nothing."""
        world = World()
        world.broker.create_partitioned(name("t"), 3)
        world.subscribe(topic="t-partition-1")
        with pytest.raises(NotAllowedError, match="0 producers and 1 consumers"):
            world.broker.deletion.delete_partitioned(name("t"))
        world.broker.deletion.delete_partitioned(name("t"), force=True)
        assert world.broker.registry.topics_of(DEFAULT) == []
        with pytest.raises(TopicNotFoundError):
            world.broker.deletion.delete_partitioned(name("t"))

    def test_no_client_comes_while_partitions_are_deleted_one_by_one(self) -> None:
        """1.2.1: as in Pulsar it is told to try again, so what it sends is neither lost nor brings a partition back."""
        world = World()
        broker, parted = world.broker, name("t")
        broker.create_partitioned(parted, 3)
        world.subscribe(topic="t-partition-1")
        broker.deletion.begin(parted)
        with pytest.raises(ServiceNotReadyError, match="is being deleted"):
            broker.any_topic(parted.partition(0), create=True)
        with pytest.raises(NotAllowedError, match="already"):
            broker.deletion.begin(parted)
        with pytest.raises(NotAllowedError, match="1 consumers"):
            list(broker.deletion.check_deletable(parted))
        broker.deletion.give_up(parted)
        assert broker.any_topic(parted.partition(0), create=True).name == parted.partition(0)
        broker.deletion.begin(parted)
        assert broker.registry.partitions_used(parted) == [parted.partition(0), parted.partition(1)]
        broker.deletion.delete_topic(parted.partition(0), force=True)
        broker.deletion.finish(parted)
        assert broker.registry.topics_of(DEFAULT) == []
        assert broker.registry.partitions_used(parted) == []
        assert broker.any_topic(parted, create=True).name == parted

    def test_what_is_named_nearly_like_a_partition_stays(self) -> None:
        """1.2.1: another topic, or the partition of another."""
        world = World()
        others = ["t-partition-x", "t-partition-01", "-partition-1", "tt-partition-1", "t-partition-1-partition-0"]
        world.broker.create_partitioned(name("t"), 2)
        world.broker.create_partitioned(name("tt"), 2)
        world.broker.create_partitioned(name("t-partition-y"), 1)
        for other in ("t-partition-x", "t-partition-01", "-partition-1"):
            world.broker.topic(name(other), create=True)
        for index in range(2):
            world.topic(f"t-partition-{index}")
        world.topic("tt-partition-1")
        world.topic("t-partition-y-partition-0")
        assert len(world.broker.registry.topics_of(DEFAULT)) == 8
        world.broker.deletion.delete_partitioned(name("t"))
        local = {each.rpartition("/")[2] for each in world.broker.registry.topics_of(DEFAULT)}
        assert local == {*others[:3], "tt-partition-0", "tt-partition-1", "t-partition-y-partition-0"}


class TestUnloading:
    """A topic leaves memory and comes back as it was."""

    def test_clients_are_told_and_find_everything_again(self) -> None:
        """3.6.2 What was acknowledged is written first, sends in flight still become durable."""
        world = World()
        positions = world.publish(6)
        consumer, mailbox = world.subscribe()
        ack(consumer, positions[0], positions[2])
        producer, _ = world.produce()
        producer.send(SendHead(0, 0), body())
        before = world.topic()
        world.broker.unload(before.name)
        assert mailbox.closed
        world.settle()
        assert world.topic() is not before
        _, mailbox = world.subscribe()
        world.settle()
        assert mailbox.positions[:4] == [positions[1], *positions[3:6]]
        assert len(mailbox.positions) == 5
        world.broker.unload(name("never-loaded"))

    def test_it_can_be_used_again_at_once(self) -> None:
        """1.3.2 Also while the last sends of before are on their way to the disk."""
        world = World()
        producer, _ = world.produce()
        producer.send(SendHead(0, 0), body())
        world.broker.unload(world.topic().name)
        _, mailbox = world.subscribe()
        later = world.publish(2)
        assert mailbox.positions[-2:] == later
        assert len(mailbox.positions) == 3

    @pytest.mark.parametrize("how", ["written", "used", "deleted"])
    def test_who_waits_for_it_is_told_once_it_can_be_had(self, how: str) -> None:
        """1.3.2, 1.8 When all of it is written, or before that if nothing is to be waited for any more."""
        world = World()
        told: list[str] = []
        topic = world.topic().name
        world.broker.loader.when_drained(topic, lambda: told.append("loaded"))
        world.broker.loader.when_drained(name("never-made"), lambda: told.append("never made"))
        assert told == ["loaded", "never made"]
        producer, _ = world.produce()
        producer.send(SendHead(0, 0), body())
        world.broker.unload(topic)
        world.broker.loader.when_drained(topic, lambda: told.append(how))
        assert how not in told
        if how == "written":
            world.settle()
        elif how == "used":
            world.topic()
        else:
            world.broker.deletion.delete_topic(topic)
        assert told[2:] == [how]
        world.settle()
        assert told[2:] == [how]

    def test_what_is_unloaded_or_deleted_leaves_no_memory(self) -> None:
        """Neither the topic nor its log is kept, whether its last entries are on their way or on the disk."""
        world = World()
        gone: list[weakref.ref[object]] = []
        for number, end in enumerate((world.broker.unload, world.broker.deletion.delete_topic) * 2):
            topic = f"persistent://public/default/gone-{number}"
            world.publish(3, topic)
            world.topic(topic).create_subscription("s")
            if number < 2:
                world.produce(topic)[0].send(SendHead(0, 0), body())
            world.topic(topic).producers.disconnect_all()
            gone += [weakref.ref(world.topic(topic)), weakref.ref(world.topic(topic).log)]
            end(name(topic))
        world.settle()
        gc.collect()
        assert [each() for each in gone] == [None] * 8

    def test_a_restart_keeps_everything(self) -> None:
        """3.6.4 Topics, entries, cursors; recovery is done when a topic is first used."""
        world = World()
        positions = world.publish(25)
        consumer, _ = world.subscribe()
        ack(consumer, *positions[:7], positions[9], positions[20])
        world.restart()
        assert world.broker.registry.loaded_topics() == []
        _, mailbox = world.subscribe()
        world.settle()
        kept = [p for i, p in enumerate(positions) if not (i < 7 or i in (9, 20))]
        assert mailbox.positions == kept


def test_nobody_hears_of_a_start_whose_number_is_not_durable() -> None:
    """1.7.1 The number of this start must be durable before anybody gets a name from it."""
    world = World()
    world.restart()
    answers: list[StorageError | None] = []
    world.store.commits.when_recorded(answers.append)
    assert answers == []
    world.disk.fail(1, forever=True)
    with pytest.raises(StorageError):
        world.settle()
    assert isinstance(answers[0], StorageError)
