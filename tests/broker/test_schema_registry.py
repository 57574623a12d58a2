# SPDX-License-Identifier: Apache-2.0
"""The registry: versions, what may be added and used, deletion, policies, many clients at once."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from broker_core.base.errors import IncompatibleSchemaError
from broker_core.base.names import NamespaceName, TopicName
from broker_core.base.policies import Policies
from broker_core.base.steps import drained
from broker_core.broker.broker import is_idle
from broker_core.broker.schema_registry import HISTORY_BYTES_MAX, Admission, schema_id
from broker_core.schemas.definition import InvalidSchemaError
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.schemas.strategies import Strategy
from tests.broker.schema_work import NAME, Running, admitting, done, join, live, put
from tests.broker.world import World
from tests.schemas.infos import INT32, STRING, avro, key_value

NAMESPACE = NamespaceName("public", "default")
A, B, C = avro("a"), avro("a", "b=0"), avro("a", "b=0", "c=0")
V0, V1, V2 = avro("a"), avro("a", "b=0"), avro("a", "b")
"""The lists of which one strategy takes one and not the other: V2 reads data of V1, and not of V0."""


def set_topic(world: World, **policies: Any) -> None:
    of = world.broker.policies.of_topic(NAME)
    drained(world.broker.set_topic_policies(NAME, msgspec.structs.replace(of, **policies)))


def set_namespace(world: World, **policies: Any) -> None:
    drained(world.broker.set_namespace_policies(NAMESPACE, Policies(**policies)))


def test_versions_rise_and_an_equal_schema_has_the_one_it_got() -> None:
    """10.10, 10.5, 10.8: going back to an old version is always allowed, in any form of the text."""
    world = World()
    assert [put(world, each) for each in (A, B, A, B)] == [0, 1, 0, 1]
    assert put(world, SchemaInfo(SchemaType.AVRO, A.data.replace(b" ", b"\n  "))) == 0
    for strategy in Strategy:
        set_topic(world, schema_compatibility_strategy=strategy.value)
        assert put(world, A) == 0


def test_entry_says_who_added_it_and_when() -> None:
    """10.10: and is what the client brought, byte for byte."""
    world = World()
    put(world, SchemaInfo(A.type, A.data, {"of": "users"}), role="app")
    entry = world.broker.schemas.latest(NAME)
    assert entry is not None
    assert entry.info is not None
    assert (entry.info.data, entry.info.properties) == (A.data, {"of": "users"})
    assert (entry.version, entry.user, entry.added_ms) == (0, "app", world.clock.now_ms())


def test_partitions_and_both_domains_share_a_history() -> None:
    """10.1: S-ID-1, S-ID-2; a topic that is named alike in another namespace has its own."""
    world = World()
    put(world, A, TopicName.parse("persistent://public/default/t-partition-3"))
    for name in ("persistent://public/default/t", "non-persistent://public/default/t-partition-0"):
        assert put(world, A, TopicName.parse(name)) == 0
    assert live(world, TopicName.parse("persistent://public/other/t")) == []
    assert schema_id(TopicName.parse("persistent://public/default/a b~é")) == "public/default/a+b%7E%C3%A9"


def test_deletion_leaves_numbers_and_old_versions() -> None:
    """10.11, 10.12: S-DEL-1 to S-DEL-4, the story of Pulsar, but that a deletion of nothing stores nothing."""
    world = World()
    schemas = world.broker.schemas
    assert schemas.delete(NAME, "") is None
    assert [put(world, each) for each in (A, B, A)] == [0, 1, 0]
    assert schemas.delete(NAME, "") == 2
    assert schemas.delete(NAME, "") is None
    assert schemas.latest(NAME) is None
    assert put(world, STRING) == 3
    assert live(world) == [3]
    assert schemas.version(NAME, 0, live=True) is None
    assert schemas.version(NAME, 2) is None
    old = schemas.version(NAME, 0)
    assert old is not None
    assert old.info == A
    schemas.forget(NAME)
    assert schemas.version(NAME, 0) is None
    assert put(world, B) == 0


def test_schemas_go_with_their_topic_as_a_whole() -> None:
    """10.11: not with a partition, and not while the namesake in the other domain is left."""
    world = World()
    name, partition = TopicName.parse("persistent://public/default/p"), "persistent://public/default/p-partition-0"
    world.broker.create_partitioned(name, 2)
    world.topic(partition)
    put(world, A, name)
    world.broker.deletion.delete_topic(TopicName.parse(partition))
    assert live(world, name) == [0]
    world.broker.deletion.delete_partitioned(name)
    assert live(world, name) == []
    passing = TopicName.parse("non-persistent://public/default/t")
    world.topic()
    world.broker.create_topic(passing)
    put(world, A)
    world.broker.deletion.delete_topic(passing)
    assert live(world) == [0]
    world.broker.deletion.delete_topic(NAME)
    assert live(world) == []


def test_schemas_of_topics_that_are_not_stored_go_when_these_are_forgotten() -> None:
    """10.11: nothing is left of a topic that nobody uses; one that has a namesake leaves the schema to it."""
    world = World()
    for local in ("alone", "named-alike"):
        name = TopicName.parse(f"non-persistent://public/default/{local}")
        world.broker.any_topic(name, create=True)
        put(world, A, name)
    world.topic("persistent://public/default/named-alike")
    world.clock.advance(61_000)
    world.settle()
    assert live(world, TopicName.parse("persistent://public/default/alone")) == []
    assert live(world, TopicName.parse("persistent://public/default/named-alike")) == [0]


def test_schemas_go_with_their_namespace() -> None:
    """10.11: those of topics that never existed, too, and no others."""
    world = World()
    for name in (NamespaceName("public", "one"), NamespaceName("public", "one-more")):
        world.broker.namespaces.create(name)
        put(world, A, TopicName.parse(f"persistent://{name}/t"))
    world.broker.deletion.delete_namespace(NamespaceName("public", "one"))
    assert live(world, TopicName.parse("persistent://public/one/t")) == []
    assert live(world, TopicName.parse("persistent://public/one-more/t")) == [0]


@pytest.mark.parametrize(
    ("policies_of_topic", "policies_of_namespace", "broker", "found"),
    [
        ({}, {}, "FULL", "FULL"),
        ({}, {"schema_auto_update_compatibility_strategy": "Backward"}, "FULL", "BACKWARD"),
        ({}, {"schema_auto_update_compatibility_strategy": "AutoUpdateDisabled"}, "FULL", "ALWAYS_INCOMPATIBLE"),
        (
            {},
            {
                "schema_auto_update_compatibility_strategy": "Backward",
                "schema_compatibility_strategy": "FORWARD_TRANSITIVE",
            },
            "FULL",
            "FORWARD_TRANSITIVE",
        ),
        ({}, {"schema_compatibility_strategy": "UNDEFINED"}, "FORWARD", "FORWARD"),
        (
            {"schema_compatibility_strategy": "BACKWARD"},
            {"schema_compatibility_strategy": "FORWARD"},
            "FULL",
            "BACKWARD",
        ),
        (
            {"schema_compatibility_strategy": "UNDEFINED"},
            {"schema_compatibility_strategy": "FORWARD"},
            "FULL",
            "FORWARD",
        ),
    ],
)
def test_strategy_is_that_of_the_nearest_level(
    policies_of_topic: dict[str, Any], policies_of_namespace: dict[str, Any], broker: str, found: str
) -> None:
    """10.7: UNDEFINED says nothing, and the older name less than the new one."""
    world = World(schema_compatibility_strategy=broker)
    world.topic()
    set_namespace(world, **policies_of_namespace)
    set_topic(world, **policies_of_topic)
    assert world.broker.schemas.strategy(NAME) is Strategy[found]


def test_system_topics_have_their_own_strategy_and_take_what_comes() -> None:
    """10.7, 10.13: a policy goes before it."""
    world = World(is_allow_auto_update_schema_enabled=False)
    system = TopicName.parse("persistent://public/default/__change_events")
    assert [put(world, each, system) for each in (A, STRING)] == [0, 1]
    set_namespace(world, schema_compatibility_strategy="FULL")
    with pytest.raises(IncompatibleSchemaError):
        put(world, A.__class__(SchemaType.INT8), system)


@pytest.mark.parametrize(
    ("history", "new", "refusing"),
    [
        ([V0, V1], V2, {"BACKWARD_TRANSITIVE", "FULL_TRANSITIVE", "ALWAYS_INCOMPATIBLE"}),
        ([V2, V1], V0, {"FORWARD_TRANSITIVE", "FULL_TRANSITIVE", "ALWAYS_INCOMPATIBLE"}),
        ([V0, V1], V0, set()),
        ([], STRING, set()),
        ([STRING], INT32, {each.value for each in Strategy} - {"ALWAYS_COMPATIBLE", "UNDEFINED"}),
        ([STRING, V1], V0, {each.value for each in Strategy if each.is_transitive} | {"ALWAYS_INCOMPATIBLE"}),
    ],
)
def test_transitive_strategies_look_at_all_versions(
    history: list[SchemaInfo], new: SchemaInfo, refusing: set[str]
) -> None:
    """10.8: all others at the last one; the first schema is taken by each."""
    for strategy in Strategy:
        world = World(schema_compatibility_strategy="ALWAYS_COMPATIBLE")
        for each in history:
            put(world, each)
        if strategy is Strategy.UNDEFINED:
            continue
        world.topic()
        set_topic(world, schema_compatibility_strategy=strategy.value)
        before = live(world)
        if strategy.value in refusing:
            with pytest.raises(IncompatibleSchemaError):
                put(world, new)
            assert live(world) == before
        else:
            put(world, new)


def test_without_auto_update_only_live_schemas_come_in() -> None:
    """10.13, 10.19: for producers and consumers; an administrator adds what he likes, by the strategy."""
    world = World()
    put(world, A)
    set_namespace(world, is_allow_auto_update_schema=False)
    assert put(world, A) == 0
    refusal = "Schema not found and schema auto updating is disabled"
    with pytest.raises(IncompatibleSchemaError, match=refusal):
        put(world, B)
    with pytest.raises(IncompatibleSchemaError, match=refusal):
        join(world, B, name=TopicName.parse("persistent://public/default/u"))
    schemas = world.broker.schemas
    assert schemas.admit(done(schemas.posted(NAME, B)), "") == 1
    with pytest.raises(IncompatibleSchemaError, match="not compatible"):
        done(schemas.posted(NAME, STRING))


@pytest.mark.parametrize(
    ("broker", "namespace", "topic", "enforced"),
    [
        (False, None, None, False),
        (True, None, None, True),
        (True, False, False, True),
        (False, True, None, True),
        (False, True, False, False),
        (False, False, True, True),
    ],
)
def test_producers_without_a_schema_are_refused_where_that_is_enforced(
    broker: bool, namespace: bool | None, topic: bool | None, enforced: bool
) -> None:
    """10.14: by the broker, or else by the topic before the namespace; only where there is a schema."""
    world = World(is_schema_validation_enforced=broker)
    world.topic()
    set_namespace(world, schema_validation_enforced=namespace)
    set_topic(world, schema_validation_enforced=topic)
    schemas = world.broker.schemas
    schemas.check_schemaless(NAME)
    put(world, A)
    if enforced:
        with pytest.raises(IncompatibleSchemaError, match="without a schema to topics with a schema"):
            schemas.check_schemaless(NAME)
        schemas.delete(NAME, "")
    schemas.check_schemaless(NAME)


# -- consumers


def test_first_consumer_of_an_idle_topic_brings_its_schema() -> None:
    """10.15: S-CON-1, S-CON-2; later ones are compared, and nothing is added."""
    world = World()
    assert join(world, A) == 0
    assert join(world, A) is None
    assert join(world, avro("a", "b=0", "c=0")) is None
    assert live(world) == [0]
    with pytest.raises(IncompatibleSchemaError, match="not compatible with version 0"):
        join(world, V2)


def test_topic_is_idle_without_producers_entries_and_consumers_of_one_schema() -> None:
    """10.15: S-CON-3, who takes any schema does not count; a producer, a consumer or an entry does."""
    world = World()
    topic = world.topic()
    assert is_idle(topic)
    taker, _ = world.subscribe(any_schema=True)
    assert is_idle(topic)
    taker.close()
    consumer, _ = world.subscribe()
    assert not is_idle(topic)
    consumer.close()
    producer, _ = world.produce()
    assert not is_idle(topic)
    producer.close()
    assert is_idle(topic)
    world.publish(1)
    assert not is_idle(topic)


def test_consumer_of_an_active_topic_without_a_schema_is_refused() -> None:
    """10.15: S-CON-4, S-CON-5; ALWAYS_COMPATIBLE takes it, and adds nothing."""
    world = World()
    with pytest.raises(IncompatibleSchemaError, match=r"active topic with empty.BYTES. schema: new schema type AVRO"):
        join(world, A, idle=False)
    world.topic()
    set_topic(world, schema_compatibility_strategy="ALWAYS_COMPATIBLE")
    assert join(world, A, idle=False) is None
    assert live(world) == []


@pytest.mark.parametrize(
    ("strategy", "v2_fits"),
    [
        *((each, True) for each in ("BACKWARD", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "ALWAYS_COMPATIBLE")),
        *((each, False) for each in ("BACKWARD_TRANSITIVE", "FULL_TRANSITIVE", "ALWAYS_INCOMPATIBLE")),
    ],
)
def test_consumer_reads_the_last_version_or_all(strategy: str, v2_fits: bool) -> None:
    """10.15: S-CON-6, whatever direction the strategy has; a live schema is always taken, another type nearly never."""
    world = World()
    put(world, V0)
    put(world, V1)
    world.topic()
    set_topic(world, schema_compatibility_strategy=strategy)
    if v2_fits:
        assert join(world, V2) is None
    else:
        with pytest.raises(IncompatibleSchemaError):
            join(world, V2)
    assert join(world, V1) is None
    if strategy != "ALWAYS_COMPATIBLE":
        with pytest.raises(IncompatibleSchemaError, match=r"exists schema type AVRO, new schema type STRING|no other"):
            join(world, STRING)
    assert live(world) == [0, 1]


def test_consumer_whose_topic_is_taken_into_use_meanwhile_is_compared() -> None:
    """10.15: a producer came while the schema was looked at."""
    world = World()
    idle = True
    schemas = world.broker.schemas
    running: Running[Admission | None] = Running(schemas.for_consumer(NAME, avro("a", "x"), lambda: idle))
    put(world, A)
    idle = False
    while not running.is_over:
        running.run_job()
    assert running.error is not None
    assert live(world) == [0]


# -- bounds


def test_schemas_have_a_size_and_topics_a_number_of_them() -> None:
    """10.3: by settings, with their names in the refusal."""
    world = World(max_schema_bytes=1000, max_schema_versions_per_topic=2)
    with pytest.raises(IncompatibleSchemaError, match="maxSchemaBytes"):
        put(world, avro("a", doc="d" * 1000))
    with pytest.raises(IncompatibleSchemaError, match="maxSchemaBytes"):
        put(world, SchemaInfo(SchemaType.STRING, b"", {"k": "v" * 1000}))
    assert [put(world, each) for each in (A, B)] == [0, 1]
    with pytest.raises(IncompatibleSchemaError, match="maxSchemaVersionsPerTopic"):
        put(world, C)
    assert put(world, A) == 0


def test_history_of_a_topic_has_a_size() -> None:
    """10.3: for the catalogue is in memory."""
    world = World(schema_compatibility_strategy="ALWAYS_COMPATIBLE")
    size = 1024 * 1024
    for number in range(HISTORY_BYTES_MAX // size):
        put(world, SchemaInfo(SchemaType.EXTERNAL, number.to_bytes(4) + b"x" * (size - 4)))
    with pytest.raises(IncompatibleSchemaError, match="takes no more"):
        put(world, SchemaInfo(SchemaType.EXTERNAL, b"x"))


def test_invalid_schema_is_refused_by_everybody() -> None:
    """10.3, 10.13: before it is compared, and nothing is stored."""
    world = World()
    bad = SchemaInfo(SchemaType.AVRO, b"x")
    schemas = world.broker.schemas
    for work in (
        schemas.for_producer(NAME, bad),
        schemas.for_consumer(NAME, bad, lambda: True),
        schemas.posted(NAME, bad),
        schemas.version_of(NAME, bad),
        schemas.check(NAME, bad),
    ):
        with pytest.raises(InvalidSchemaError):
            done(work)
    assert live(world) == []


def test_version_of_a_schema_is_found_by_what_it_says() -> None:
    """10.19, 10.6: S-REST-6, in any form of its text; KEY_VALUE by types and encoding, too."""
    world = World(schema_compatibility_strategy="ALWAYS_COMPATIBLE")
    put(world, A)
    put(world, key_value(STRING, STRING))
    schemas = world.broker.schemas
    assert done(schemas.version_of(NAME, SchemaInfo(SchemaType.AVRO, A.data.replace(b" ", b"\n")))) == 0
    assert done(schemas.version_of(NAME, key_value(STRING, INT32))) is None
    assert done(schemas.version_of(NAME, key_value(STRING, STRING, "INLINE"))) == 1


def test_known_schema_needs_no_job() -> None:
    """10.21: a client that comes back waits for nobody."""
    world = World()
    put(world, A)
    running = Running(world.broker.schemas.for_producer(NAME, A))
    assert (running.is_over, running.jobs) == (True, 0)


def test_comparison_with_very_many_versions_is_many_jobs() -> None:
    """10.21: each of a few versions, whose sizes count."""
    world = World(schema_compatibility_strategy="FULL_TRANSITIVE")
    versions = [avro("a", {"name": f"b{number}", "type": "int", "default": 0}) for number in range(1000)]
    for number, each in enumerate(versions):
        row = Admission(schema_id(NAME), number, each, number.to_bytes(32), is_new=True)
        world.broker.schemas.admit(row, "")
    running = Running(world.broker.schemas.for_producer(NAME, avro("a", "z=0")))
    while not running.is_over:
        running.run_job()
    assert running.jobs >= 1000 // 64
    assert running.result is not None
    assert running.result.version == 1000


# -- many clients at once, crashes


@pytest.mark.parametrize("seed", range(10))
def test_many_clients_at_once_make_one_version_of_each_schema(seed: int) -> None:
    """10.10: S-RACE-1, 64 producers whose jobs run in any order."""
    world = World(schema_compatibility_strategy="ALWAYS_COMPATIBLE")
    chance = random.Random(seed)
    brought = [chance.choice((A, B, C, STRING)) for _ in range(64)]
    clients = [Running(world.broker.schemas.for_producer(NAME, each), admitting(world)) for each in brought]
    while waiting := [each for each in clients if not each.is_over]:
        chance.choice(waiting).run_job()
    versions: dict[bytes, set[int]] = {}
    for info, client in zip(brought, clients, strict=True):
        assert client.result is not None
        versions.setdefault(info.data + info.type.name.encode(), set()).add(client.result.version)
    assert all(len(each) == 1 for each in versions.values())
    assert live(world) == list(range(len(versions)))


def test_clients_at_once_are_compared_with_each_other() -> None:
    """10.10, 10.8: each fits what was there, and they do not fit one another."""
    world = World()
    one, other = avro("a=0", {"name": "b", "type": "int", "default": 0}), avro("a=0", _text("b"))
    schemas = world.broker.schemas
    put(world, avro("a=0"))
    clients = [Running(schemas.for_producer(NAME, each), admitting(world)) for each in (one, other)]
    for _ in range(10):
        for each in clients:
            if not each.is_over:
                each.run_job()
    assert [each.error is None for each in clients] == [True, False]
    assert live(world) == [0, 1]


def _text(name: str) -> dict[str, str]:
    return {"name": name, "type": "string", "default": ""}


@pytest.mark.parametrize("seed", range(20))
def test_what_was_answered_is_there_after_a_crash(seed: int) -> None:
    """10.10: S-STORE-2, byte for byte, and numbers go on."""
    world = World()
    put(world, A)
    put(world, B)
    world.broker.schemas.delete(NAME, "")
    put(world, STRING, role="app")
    world.crash(seed)
    schemas = world.broker.schemas
    assert [schemas.version(NAME, number) is not None for number in range(4)] == [True, True, False, True]
    latest = schemas.latest(NAME)
    assert latest is not None
    assert (latest.version, latest.info, latest.user) == (3, STRING, "app")
    world.restart()
    assert live(world) == [3]
    assert put(world, STRING) == 3
