# SPDX-License-Identifier: Apache-2.0
"""Policies: topic over namespace over broker, kept in the catalogue, in force at once."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.errors import ConsumerBusyError, NotAllowedError, ProducerBusyError
from broker_core.base.names import NamespaceName, TopicName
from broker_core.base.policies import (
    NO_POLICIES,
    AutoSubscriptionCreation,
    AutoTopicCreation,
    BacklogQuota,
    Policies,
    Retention,
    quotas_under,
    settings_under,
)
from broker_core.base.settings import Settings
from broker_core.base.steps import drained
from broker_core.broker.directory.topic_registry import NamespaceFullError
from tests.broker.world import EXCLUSIVE, FAILOVER, SHARED, TOPIC, World

NAMESPACE = NamespaceName("public", "default")
NAME = TopicName.parse(TOPIC)


def test_the_topic_goes_before_the_namespace_and_that_before_the_broker() -> None:
    """1.1.5: topic > namespace > broker, for each policy by itself."""
    broker = Settings(ttl_duration_default_in_seconds=1, max_producers_per_topic=1)
    namespace = Policies(message_ttl_in_seconds=2, max_consumers_per_topic=2)
    topic = Policies(message_ttl_in_seconds=3)
    found = settings_under(broker, namespace, topic)
    assert found.ttl_duration_default_in_seconds == 3
    assert (found.max_consumers_per_topic, found.max_producers_per_topic) == (2, 1)
    assert settings_under(broker, namespace).ttl_duration_default_in_seconds == 2
    assert settings_under(broker) is broker


def test_a_zero_is_a_value_and_not_its_absence() -> None:
    """1.1.5: a topic can switch off what its namespace has on."""
    namespace = Policies(message_ttl_in_seconds=60, deduplication_enabled=True)
    found = settings_under(Settings(), namespace, Policies(message_ttl_in_seconds=0))
    assert found.ttl_duration_default_in_seconds == 0


@pytest.mark.parametrize(("policy", "found"), [(2000, 2000), (0, 5 * 1024 * 1024), (2**31 - 1, 5 * 1024 * 1024)])
def test_messages_of_a_topic_can_be_limited_further(policy: int, found: int) -> None:
    """1.3.5, 1.1.5: a topic may allow less than the broker, never more; 0 says nothing."""
    assert settings_under(Settings(), Policies(max_message_size=policy)).max_message_size == found


def test_the_two_quotas_are_layered_apart() -> None:
    """1.1.5, 7.3: a topic's size quota leaves the namespace's age quota in force."""
    age = BacklogQuota(limit_s=60, policy="consumer_backlog_eviction")
    size = BacklogQuota(limit_bytes=10, policy="producer_exception")
    namespace = Policies(backlog_quota_map={"message_age": age})
    topic = Policies(backlog_quota_map={"destination_storage": size})
    found = quotas_under(Settings(backlog_quota_default_limit_bytes=99), namespace, topic)
    assert (found.size, found.age) == (size, age)
    assert quotas_under(Settings(backlog_quota_default_limit_bytes=99)).size.limit_bytes == 99


@pytest.mark.parametrize(
    ("retention", "fine"),
    [(pair, True) for pair in ((0, 0), (-1, -1), (10, 20), (-1, 5), (5, -1))]
    + [(pair, False) for pair in ((0, 5), (5, 0), (-2, 5), (5, -2))],
)
def test_a_retention_with_one_limit_of_zero_is_refused(retention: tuple[int, int], fine: bool) -> None:
    """7.1: exactly one of them 0 with the other > 0 is invalid; -1 is no limit."""
    policies = Policies(retention_policies=Retention(*retention))
    if fine:
        policies.check()
    else:
        with pytest.raises(NotAllowedError):
            policies.check()


def test_policies_survive_a_restart_and_end_with_what_they_are_set_for() -> None:
    """1.1.5: both levels are in the catalogue; a topic made anew has none."""
    world = World()
    world.topic()
    drained(world.broker.set_namespace_policies(NAMESPACE, Policies(max_producers_per_topic=7)))
    drained(world.broker.set_topic_policies(NAME, Policies(message_ttl_in_seconds=5)))
    world.restart()
    settings = world.topic().settings
    assert (settings.max_producers_per_topic, settings.ttl_duration_default_in_seconds) == (7, 5)
    world.broker.deletion.delete_topic(NAME, force=True)
    world.restart()
    assert world.broker.policies.of_topic(NAME) == NO_POLICIES


def test_policies_of_a_partitioned_topic_hold_for_its_partitions() -> None:
    """1.1.5, 1.2.1: they are set once, under the name without the partition, and go with the topic."""
    world = World()
    world.broker.create_partitioned(NAME, 2)
    partition = world.topic(f"{TOPIC}-partition-1")
    drained(world.broker.set_topic_policies(NAME, Policies(max_consumers_per_topic=1)))
    assert partition.settings.max_consumers_per_topic == 1
    drained(world.broker.set_topic_policies(NAME.partition(0), NO_POLICIES))
    assert partition.settings.max_consumers_per_topic == 0
    drained(world.broker.set_topic_policies(NAME, Policies(max_consumers_per_topic=1)))
    world.broker.deletion.delete_partitioned(NAME)
    assert world.broker.policies.of_topic(NAME) == NO_POLICIES


def test_limits_of_a_topic_are_kept() -> None:
    """1.1.5: producers, consumers and subscriptions beyond the limits of the topic are refused, also after a change."""
    world = World()
    drained(
        world.broker.set_topic_policies(
            NAME, Policies(max_producers_per_topic=1, max_consumers_per_topic=2, max_subscriptions_per_topic=2)
        )
    )
    world.produce()
    with pytest.raises(ProducerBusyError, match="maxProducersPerTopic"):
        world.produce()
    world.subscribe(SHARED, "a")
    world.subscribe(SHARED, "a")
    with pytest.raises(ConsumerBusyError, match="maxConsumersPerTopic"):
        world.subscribe(SHARED, "a")
    world.topic().create_subscription("b")
    with pytest.raises(NotAllowedError, match="maxSubscriptionsPerTopic"):
        world.topic().create_subscription("c")
    drained(world.broker.set_topic_policies(NAME, NO_POLICIES))
    world.produce()
    world.subscribe(SHARED, "a")
    world.topic().create_subscription("c")


def test_readers_count_among_the_subscriptions() -> None:
    """1.1.5, 1.9.2: for the limit a reader is one more, until it leaves."""
    world = World(max_subscriptions_per_topic=1)
    reader, _ = world.subscribe(subscription="r", durable=False)
    for durable in (True, False):
        with pytest.raises(NotAllowedError, match="maxSubscriptionsPerTopic"):
            world.subscribe(durable=durable)
    reader.close()
    world.subscribe()


def test_a_namespace_has_no_more_topics_than_allowed() -> None:
    """1.1.5, 1.2.1: each partition counts, however a topic comes into being; what is not stored or internal does not,
    and partitions may be added all the same."""
    world = World()
    broker, namespace = world.broker, NAME.namespace_name
    drained(broker.set_namespace_policies(namespace, Policies(max_topics_per_namespace=3)))
    broker.create_topic(TopicName.parse("plain"))
    with pytest.raises(NamespaceFullError, match="has 1 topics and may have 3"):
        broker.create_partitioned(TopicName.parse("many"), 3)
    broker.create_partitioned(TopicName.parse("many"), 2)
    for make in (broker.create_topic, lambda name: broker.topic(name, create=True)):
        with pytest.raises(NamespaceFullError, match="maxTopicsPerNamespace"):
            make(TopicName.parse("other"))
    broker.create_topic(TopicName.parse("__internal"))
    broker.create_topic(TopicName.parse("non-persistent://public/default/passing"))
    broker.topic(TopicName.parse("many-partition-1"))
    drained(broker.growth.grow(TopicName.parse("many"), 3))
    broker.deletion.delete_partitioned(TopicName.parse("many"))
    broker.topic(TopicName.parse("other"), create=True)
    drained(broker.set_namespace_policies(namespace, NO_POLICIES))
    broker.create_partitioned(TopicName.parse("many"), 20)


def test_only_types_that_are_allowed_are_let_in_and_who_is_there_stays() -> None:
    """2.1.9, 1.1.5: readers are Exclusive; with the policy gone everything is allowed again."""
    world = World(subscription_types_enabled=("Shared", "Exclusive"))
    _, mailbox = world.subscribe(SHARED, "before")
    with pytest.raises(NotAllowedError, match="as Failover, which is not allowed here; use Shared or Exclusive"):
        world.subscribe(FAILOVER, "refused")
    drained(world.broker.set_topic_policies(NAME, Policies(subscription_types_enabled=("Failover",))))
    for durable in (True, False):
        with pytest.raises(NotAllowedError, match="subscriptionTypesEnabled"):
            world.subscribe(EXCLUSIVE, "refused", durable=durable)
    assert "refused" not in world.topic().subscriptions
    world.subscribe(FAILOVER, "a")
    assert world.publish(1) == mailbox.take()
    drained(world.broker.set_topic_policies(NAME, Policies(subscription_types_enabled=())))
    world.subscribe(EXCLUSIVE, "b")
    world.subscribe(SHARED, "before")


def test_auto_creation_is_the_namespaces_to_say() -> None:
    """1.1.7, 1.1.5: what is created on first use, topics and subscriptions, can be set for a namespace."""
    world = World()
    creation = AutoTopicCreation(True, "partitioned", 3)
    drained(world.broker.set_namespace_policies(NAMESPACE, Policies(auto_topic_creation=creation)))
    assert world.broker.partitions_of(TopicName.parse("p"), create=True) == 3
    drained(
        world.broker.set_namespace_policies(
            NAMESPACE,
            Policies(
                auto_topic_creation=AutoTopicCreation(False),
                auto_subscription_creation=AutoSubscriptionCreation(False),
            ),
        )
    )
    with pytest.raises(Exception, match="does not exist"):
        world.topic("q")
    world.broker.create_topic(TopicName.parse("q"))
    with pytest.raises(Exception, match="auto-creation is off"):
        world.subscribe(topic="q")


def test_a_namespace_is_deleted_when_it_is_empty_or_by_force() -> None:
    """1.1.5: with its topics, their data and its policies; another one of the same name begins without any."""
    world = World()
    other = NamespaceName("public", "other")
    world.broker.namespaces.create(other)
    drained(world.broker.set_namespace_policies(other, Policies(message_ttl_in_seconds=5)))
    world.broker.create_partitioned(TopicName.parse("public/other/p"), 2)
    world.topic("public/other/t")
    with pytest.raises(NotAllowedError, match="not empty"):
        world.broker.deletion.delete_namespace(other)
    world.broker.deletion.delete_namespace(other, force=True)
    assert not world.broker.namespaces.exists(other)
    world.broker.namespaces.create(other)
    assert world.broker.registry.topics_of(other) == []
    assert world.broker.policies.of_namespace(other) == NO_POLICIES
    world.restart()
    assert world.broker.policies.of_namespace(other) == NO_POLICIES


_COUNTS = st.none() | st.integers(0, 2**31 - 1)
_LEVELS = st.builds(
    Policies,
    message_ttl_in_seconds=_COUNTS,
    max_producers_per_topic=_COUNTS,
    retention_policies=st.none() | st.builds(Retention, st.integers(-1, 9), st.integers(-1, 9)),
    backlog_quota_map=st.none()
    | st.dictionaries(
        st.sampled_from(["destination_storage", "message_age"]),
        st.builds(BacklogQuota, st.integers(-1, 9), st.integers(-1, 9)),
    ),
)


@given(_LEVELS, _LEVELS)
def test_levels_add_up_field_by_field_and_survive_json(namespace: Policies, topic: Policies) -> None:
    """1.1.5: for every combination the strongest level that says something wins; JSON changes nothing."""
    broker = Settings(ttl_duration_default_in_seconds=11, max_producers_per_topic=12)
    found = settings_under(broker, namespace, topic)
    for policy, setting in (
        ("message_ttl_in_seconds", "ttl_duration_default_in_seconds"),
        ("max_producers_per_topic", "max_producers_per_topic"),
    ):
        said = [getattr(level, policy) for level in (topic, namespace) if getattr(level, policy) is not None]
        assert getattr(found, setting) == (said[0] if said else getattr(broker, setting))
    assert msgspec.json.decode(msgspec.json.encode(topic), type=Policies) == topic


def test_a_change_is_applied_in_steps_of_which_the_last_change_wins() -> None:
    """1.1.5: each step sets what is set by then, and what is not loaded any more, or again, is left alone."""
    world = World()
    names = [TopicName.parse(f"persistent://public/default/t{number}") for number in range(4)]
    first, second, third, last = [world.broker.topic(name, create=True) for name in names]
    steps = world.broker.set_namespace_policies(NAMESPACE, Policies(max_producers_per_topic=1))
    next(steps)
    assert [each.settings.max_producers_per_topic for each in (first, second)] == [1, 0]
    world.broker.unload(third.name)
    world.broker.unload(last.name)
    drained(world.broker.set_namespace_policies(NAMESPACE, Policies(max_producers_per_topic=2)))
    again = world.broker.topic(last.name)
    second.apply(world.broker.policies.settings, world.broker.policies.quotas_of(second.name))  # as if it waited still
    drained(steps)
    assert [each.settings.max_producers_per_topic for each in (first, second, again)] == [2, 2, 2]
    assert third.settings.max_producers_per_topic == 0


def test_a_namespace_is_unloaded_in_steps() -> None:
    """One topic in each, stored or not; others stay."""
    world = World()
    local = [
        world.broker.topic(TopicName.parse(f"persistent://public/default/t{number}"), create=True).name
        for number in range(3)
    ]
    passing = TopicName.parse("non-persistent://public/default/t")
    world.broker.create_topic(passing)
    steps = world.broker.unload_namespace(NAMESPACE)
    next(steps)
    assert len(world.broker.registry.loaded_topics()) == len(local) - 1
    assert world.broker.non_persistent.get(passing) is not None
    drained(steps)
    assert not world.broker.registry.loaded_topics()
    assert world.broker.non_persistent.get(passing) is None
