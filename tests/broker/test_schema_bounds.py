# SPDX-License-Identifier: Apache-2.0
"""Bounds of the registry as a whole, and numbers of versions where damage has taken some."""

from __future__ import annotations

import time

import pytest

from broker_core.base.errors import IncompatibleSchemaError, ServerError, ServiceNotReadyError
from broker_core.base.names import TopicName
from broker_core.broker.schema_registry import Admission, schema_id
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.testing.sim_disk import SimDisk
from tests.broker.schema_work import NAME, Running, done, live, put
from tests.broker.world import World
from tests.schemas.infos import STRING, avro

A, B, C = avro("a"), avro("a", "b=0"), avro("a", "b=0", "c=0")
FILES = ("/data/catalogue", "/data/catalogue.copy")


def large(number: int) -> SchemaInfo:
    return SchemaInfo(SchemaType.EXTERNAL, number.to_bytes(4) + b"x" * 9_996)


def test_schemas_of_all_topics_have_a_size_together() -> None:
    """10.3: the catalogue is in memory and written as a whole; what is deleted by force makes room, at once and after
    a restart."""
    world = World(max_schema_bytes_in_all=100_000)
    names = [TopicName.parse(f"persistent://public/default/t{number}") for number in range(9)]
    for name in names:
        put(world, large(0), name)
    with pytest.raises(IncompatibleSchemaError, match="maxSchemaBytesInAll"):
        put(world, large(0))
    put(world, large(0), names[0])
    world.restart()
    with pytest.raises(IncompatibleSchemaError, match="maxSchemaBytesInAll"):
        put(world, large(0))
    world.broker.schemas.forget(names[0])
    put(world, large(0))
    world.broker.schemas.forget_namespace(NAME.namespace_name)
    for name in names:
        put(world, large(0), name)


def test_properties_count_in_the_size_of_all_schemas() -> None:
    """10.3: a single schema may not go beyond the bound by them."""
    world = World(max_schema_bytes_in_all=1000)
    with pytest.raises(IncompatibleSchemaError, match="one of 2001 more has no room"):
        put(world, SchemaInfo(SchemaType.STRING, b"", {"k": "v" * 2000}))
    assert put(world, STRING) == 0


def test_schemas_that_come_at_once_stay_below_the_size_of_all() -> None:
    """10.3, 10.21: room that was there when their comparisons began may be gone at their end."""
    world = World(max_schema_bytes_in_all=30_000, schema_compatibility_strategy="BACKWARD")
    schemas = world.broker.schemas
    names = [TopicName.parse(f"persistent://public/default/t{number}") for number in range(3)]
    for name in names:
        put(world, avro("a"), name)

    def store(admission: Admission) -> None:
        schemas.admit(admission, "")

    at_once = [Running(schemas.for_producer(name, avro("a", "b=0", doc="d" * 12_000)), store) for name in names]
    while any(not each.is_over for each in at_once):
        for each in at_once:
            if not each.is_over:
                each.run_job()
    assert [each.error is None for each in at_once] == [True, True, False]


def test_clients_with_large_schemas_come_again_while_very_many_wait() -> None:
    """10.21: small ones are not counted, and one that has gone counts no more."""
    world = World()
    schemas = world.broker.schemas
    works = [schemas.for_producer(NAME, avro("a", doc=f"{number}" + "d" * 900_000)) for number in range(4)]
    for work in works:
        next(work)
    with pytest.raises(ServiceNotReadyError, match="too many large schemas"):
        put(world, avro("a", doc="d" * 900_000))
    put(world, A)
    works[0].close()
    assert put(world, avro("a", doc="d" * 900_000)) == 0


def test_old_versions_are_parsed_once_for_several_comparisons() -> None:
    """10.21: a transitive strategy looks at all of them each time."""
    world = World(schema_compatibility_strategy="FULL_TRANSITIVE")
    fields = [{"name": f"f{number}", "type": "int", "default": 0} for number in range(20)]
    for number in range(300):
        info = avro("a", *fields, {"name": f"b{number}", "type": "int", "default": 0})
        world.broker.schemas.admit(Admission(schema_id(NAME), number, info, number.to_bytes(32), is_new=True), "")
    seconds = []
    for name in ("y=0", "z=0"):
        began = time.thread_time()
        done(world.broker.schemas.check(NAME, avro("a", name)))
        seconds.append(time.thread_time() - began)
    assert seconds[1] < seconds[0] / 2


def test_version_beside_very_many_is_added_as_fast_as_beside_a_few() -> None:
    """10.21: what the loop does for one does not grow with their number."""
    world = World(max_schema_versions_per_topic=100_000)
    seconds = []
    for first in (0, 20_000):
        began = time.thread_time()
        for number in range(first, first + 100):
            put(world, avro("a", f"b{number}=0"))
        seconds.append(time.thread_time() - began)
        for number in range(first + 100, 20_000):
            world.broker.schemas.admit(Admission(schema_id(NAME), number, A, number.to_bytes(32), is_new=True), "")
    assert seconds[1] < 3 * seconds[0]


def test_topic_that_begins_anew_meanwhile_is_looked_at_again() -> None:
    """10.10: its last version has the number of the one before, and the schema itself is there by now."""
    world = World()
    put(world, A)
    running: Running[Admission] = Running(world.broker.schemas.for_producer(NAME, B))
    while running.jobs < 1:
        running.run_job()
    world.broker.schemas.forget(NAME)
    put(world, B)
    while not running.is_over:
        running.run_job()
    assert running.result is not None
    assert (running.result.version, running.result.is_new) == (0, False)


def lost(world: World, disk: SimDisk, places: dict[str, tuple[int, int]]) -> World:
    """A broker on a disk whose catalogue files have other bytes in a range of each."""
    for path, (start, end) in places.items():
        data = bytearray(disk.contents(path))
        data[start:end] = bytes(255 - each for each in data[start:end])
        disk.replace(path, bytes(data))
    return World(world.settings, disk=disk)


def test_versions_that_are_lost_in_both_files_are_never_given_out_again() -> None:
    """S-STORE-1, 10.10: the loss is told, clients that ask for what is lost are told, older versions are there, and no
    number below is given to another schema, of any topic."""
    world = World(schema_compatibility_strategy="ALWAYS_COMPATIBLE")
    put(world, A)
    world.settle()
    start = len(world.disk.contents(FILES[0]))
    put(world, B)
    put(world, STRING, TopicName.parse("persistent://public/default/u"))
    world.settle()
    end = len(world.disk.contents(FILES[0]))
    put(world, C)
    world.settle()
    damaged = lost(world, world.disk.crash(1, "all"), dict.fromkeys(FILES, (start, end)))
    for _ in range(2):
        schemas = damaged.broker.schemas
        first = schemas.version(NAME, 0)
        assert first is not None
        assert first.info == A
        for version in (1, 2, 7):
            with pytest.raises(ServerError, match=f"version {version} of the schema .* damaged"):
                schemas.version(NAME, version)
        damaged.restart()
    assert [put(damaged, each) for each in (A, C, B, C)] == [0, 1_000_000, 1_000_001, 1_000_000]
    other = TopicName.parse("persistent://public/default/v")
    assert put(damaged, STRING, other) == 1_000_000
    assert damaged.broker.schemas.delete(other, "") == 1_000_001
    assert live(damaged) == [0, 1_000_000, 1_000_001]


def test_damage_that_both_files_have_is_told() -> None:
    """S-STORE-1: in the health of the broker, with the file and what is lost."""
    world = World()
    world.settle()
    start = len(world.disk.contents(FILES[0]))
    put(world, A)
    world.settle()
    end = len(world.disk.contents(FILES[0]))
    put(world, B)
    world.settle()
    damaged = lost(world, world.disk.crash(1, "all"), dict.fromkeys(FILES, (start, end)))
    told = [each for each in map(str, damaged.broker.damages) if "are lost: names, settings and schemas" in each]
    assert told
    assert FILES[0] in told[0]


def test_row_that_is_missing_is_told() -> None:
    """S-STORE-1: by the doctor, and to clients who ask for that version; no other is given its number."""
    world = World()
    assert [put(world, each) for each in (A, B, C)] == [0, 1, 2]
    catalogue = world.store.catalogue
    assert catalogue.contradictions() == []
    catalogue.change("DELETE FROM schemas WHERE version = 1", ())
    assert catalogue.contradictions() == ["a version of a schema that is missing: public/default/t 1"]
    with pytest.raises(ServerError, match="version 1 of the schema"):
        world.broker.schemas.version(NAME, 1)
    assert put(world, B) == 3
