# SPDX-License-Identifier: Apache-2.0
"""Random histories of schemas: clients whose work is interleaved, deletions, restarts and power losses.

A model has the rows that there should be; after a power loss the disk has those of some moment since the last change
that was told to be durable.
"""

from __future__ import annotations

import random
from itertools import combinations, pairwise
from typing import Final

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker_core.base.errors import StorageError
from broker_core.base.settings import SchemaStrategyName
from broker_core.broker.schema_registry import Admission, schema_id
from broker_core.schemas.compatibility import objections
from broker_core.schemas.definition import definition_of
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.schemas.strategies import Strategy
from tests.broker.schema_work import NAME, Running
from tests.broker.world import SMALL, World
from tests.schemas.infos import STRING, avro, key_value

STRATEGIES: Final[tuple[SchemaStrategyName, ...]] = (
    *("BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"),
    *("ALWAYS_COMPATIBLE", "ALWAYS_INCOMPATIBLE"),
)
SCHEMAS: Final = (
    avro("a"),
    SchemaInfo(SchemaType.AVRO, avro("a").data.replace(b" ", b"\n")),
    avro("a", "b"),
    avro("a", "b=0"),
    avro("a", "b=0", "c=0"),
    avro("b=0", "c"),
    STRING,
    key_value(STRING, avro("a")),
    SchemaInfo(SchemaType.AVRO, b"nonsense"),
)

Rows = tuple[tuple[int, SchemaInfo | None], ...]


class SchemaMachine(RuleBasedStateMachine):
    """One topic. ``rows``: what should be stored; ``pictures``: the same after each change, of which those up to
    ``durable`` were told to be."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: list[Running[Admission]] = []
        self.rows: Rows = ()
        self.pictures: list[Rows] = [()]
        self.durable = 0
        self.crashes = 0

    @initialize(strategy=st.sampled_from(STRATEGIES))
    def begin(self, strategy: SchemaStrategyName) -> None:
        self.strategy = Strategy[strategy]
        self.world = World(msgspec.structs.replace(SMALL, schema_compatibility_strategy=strategy))
        self.world.settle()

    def _changed(self, rows: Rows) -> None:
        self.rows = rows
        self.pictures.append(rows)
        number = len(self.pictures) - 1

        def recorded(error: StorageError | None) -> None:
            if error is None:
                self.durable = max(self.durable, number)

        self.world.store.commits.when_recorded(recorded)

    @rule(info=st.sampled_from(SCHEMAS))
    def client_comes(self, info: SchemaInfo) -> None:
        self.clients.append(Running(self.world.broker.schemas.for_producer(NAME, info), self._admitted))

    def _admitted(self, admission: Admission) -> None:
        version = self.world.broker.schemas.admit(admission, "")
        if admission.is_new:
            assert version == (self.rows[-1][0] + 1 if self.rows else 0)
            self._changed((*self.rows, (version, admission.info)))
        else:
            assert dict(self._live)[version].type is admission.info.type

    @rule(several=st.lists(st.sampled_from(SCHEMAS), min_size=2, max_size=4), chance=st.randoms())
    def clients_come_at_once(self, several: list[SchemaInfo], chance: random.Random) -> None:
        for each in several:
            self.client_comes(each)
        while waiting := [each for each in self.clients if not each.is_over]:
            chance.choice(waiting).run_job()

    @rule(data=st.data())
    def job_runs(self, data: st.DataObject) -> None:
        waiting = [each for each in self.clients if not each.is_over]
        if waiting:
            data.draw(st.sampled_from(waiting)).run_job()

    @rule(which=st.sampled_from(("_schema_is_deleted", "_schema_is_forgotten", "_broker_restarts", "_power_is_lost")))
    def something_ends(self, which: str) -> None:
        getattr(self, which)()

    def _schema_is_deleted(self) -> None:
        version = self.world.broker.schemas.delete(NAME, "")
        assert (version is None) is (not self._live)
        if version is not None:
            assert version == self.rows[-1][0] + 1
            self._changed((*self.rows, (version, None)))

    def _schema_is_forgotten(self) -> None:
        self.world.broker.schemas.forget(NAME)
        if self.rows:
            self._changed(())

    @rule()
    def changes_are_committed(self) -> None:
        self.world.settle()
        assert self.durable == len(self.pictures) - 1

    def _broker_restarts(self) -> None:
        self.world.restart()
        self._begin_anew(self.rows)

    def _power_is_lost(self) -> None:
        self.crashes += 1
        image = self.world.disk.crash(self.crashes, "random")
        self.world.abandon()
        self.world.disk, self.world.clock = image, self.world.clock.stopped()
        self.world.open()
        found = self._stored()
        assert found in self.pictures[self.durable :]
        self._begin_anew(found)

    def _begin_anew(self, rows: Rows) -> None:
        self.rows, self.pictures, self.durable, self.clients = rows, [rows], 0, []

    def _stored(self) -> Rows:
        schemas, table = self.world.broker.schemas, self.world.store.catalogue.schemas
        rows: list[tuple[int, SchemaInfo | None]] = []
        for version in range(table.last_version(schema_id(NAME)) + 1):
            entry = schemas.version(NAME, version)
            rows.append((version, None if entry is None else entry.info))
        return tuple(rows)

    @property
    def _live(self) -> list[tuple[int, SchemaInfo]]:
        last = max((at for at, (_, info) in enumerate(self.rows) if info is None), default=-1)
        return [(version, info) for version, info in self.rows[last + 1 :] if info is not None]

    @invariant()
    def registry_has_what_the_model_has(self) -> None:
        schemas = self.world.broker.schemas
        assert self._stored() == self.rows
        listed = [(each.version, each.info) for entries in schemas.live(NAME) for each in entries]
        assert listed == self._live
        latest = schemas.latest(NAME)
        assert (None if latest is None else latest.version) == (self._live[-1][0] if self._live else None)

    @invariant()
    def live_schemas_differ_and_fit(self) -> None:
        """10.8, 10.10: each with all before it by a transitive strategy, else with its neighbour."""
        definitions = [definition_of(info) for _, info in self._live]
        assert len({each.fingerprint for each in definitions}) == len(definitions)
        held = combinations(definitions, 2) if self.strategy.is_transitive else pairwise(definitions)
        assert all(not objections(old, new, self.strategy) for old, new in held)

    @invariant()
    def refusals_leave_nothing(self) -> None:
        assert all(each.result is None for each in self.clients if each.error is not None)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.abandon()
            World.running.remove(self.world)


TestSchemas = SchemaMachine.TestCase
TestSchemas.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, derandomize=True, print_blob=True
)
