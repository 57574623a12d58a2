# SPDX-License-Identifier: Apache-2.0
"""``SchemaRegistry``: the schemas of all topics. Which one a topic has, which versions there were, what may be added.

A topic, its partitions and its namesake of the other domain share one history. To parse a schema, and to compare it
with others, takes long if it is large: so a question about one is *work*, a generator that yields jobs, which may be
run on other threads, small and large ones apart, and is sent their results. Jobs read values that nobody changes.
Between them the history may have grown: work ends with an answer that holds in that moment, and must be acted on at
once (``admit``).

Rules: semantics 10. Source: Pulsar docs, "Schema evolution and compatibility".
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote_plus

from broker_core.base.clock import Clock
from broker_core.base.errors import IncompatibleSchemaError, ServerError, ServiceNotReadyError
from broker_core.base.invariants import invariant
from broker_core.base.names import NamespaceName, TopicName
from broker_core.broker.policy_book import PolicyBook
from broker_core.schemas.compatibility import LARGE_BYTES, Candidate, Entry
from broker_core.schemas.definition_cache import DefinitionCache
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.schemas.strategies import Strategy
from broker_core.storage.catalogue import Catalogue
from broker_core.storage.catalogue.schemas import SchemaRow

T = TypeVar("T")


class Job(NamedTuple):
    """A part of some work, for another thread. ``is_large``: it may take seconds, others some milliseconds."""

    run: Callable[[], Any]
    is_large: bool


Work: TypeAlias = Generator[Job, Any, T]

HISTORY_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of all versions of a topic. Of all topics together there is a setting."""

_ROWS_A_JOB: Final = 64
_BYTES_A_JOB: Final = 64 * 1024
"""Versions that one job compares with: some milliseconds, then others have their turn on the thread."""

_OF_A_LARGE_ONE: Final = 16
"""Factor by which more versions are compared with a large schema in one job, as that is parsed in each."""

WAITING_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of all large schemas that are looked at, or wait for it, some seconds; a client with one more is to come again:
else it would wait long, with all others behind it."""

_KNOWN_MAX: Final = 4096
"""Fingerprints that are remembered: clients that come back bring the schema that they brought before."""

_ALL_ARE_READ: Final = (Strategy.BACKWARD_TRANSITIVE, Strategy.FULL_TRANSITIVE, Strategy.ALWAYS_INCOMPATIBLE)
"""Strategies by which the schema of a consumer is held against all versions."""


@dataclass(frozen=True, slots=True)
class Admission:
    """A schema that may be used: its version, and what is to be stored if that is a new one."""

    id: str
    version: int
    info: SchemaInfo
    fingerprint: bytes
    is_new: bool


def schema_id(name: TopicName) -> str:
    """The name of a topic's history, in Pulsar's form."""
    return f"{name.namespace_name}/{quote_plus(name.base.local, safe='*').replace('~', '%7E')}"


class SchemaRegistry:
    """The schemas of one catalogue."""

    def __init__(self, catalogue: Catalogue, policies: PolicyBook, clock: Clock) -> None:
        self._table = catalogue.schemas
        self._policies = policies
        self._clock = clock
        self._known: OrderedDict[bytes, bytes] = OrderedDict()
        self._definitions = DefinitionCache()
        self._waiting_bytes = 0

    # -- what there is

    def latest(self, name: TopicName) -> Entry | None:
        """The schema that a topic has; None if it has none."""
        return self._latest(schema_id(name))

    def version(self, name: TopicName, version: int, *, live: bool = False) -> Entry | None:
        """A version, also one from before a deletion, unless it has to be ``live``. ServerError: damage took it."""
        of = schema_id(name)
        row = self._table.get(of, version)
        if row is None and 0 <= version < max(self._table.lost_below, self._table.last_version(of)):
            raise ServerError(
                f"version {version} of the schema of {name.base} is unknown: the catalogue was damaged and has lost "
                "changes, this version perhaps among them",
                hint="let whoever wrote the messages say which schema that was; pulsarish doctor tells of the damage",
            )
        if row is None or row.type is None or (live and version < self._table.live_from(of)):
            return None
        return _entry(row)

    def live(self, name: TopicName, times: int = 1) -> Generator[list[Entry], None, None]:
        """All versions that are live, oldest first, some at a time, or ``times`` as many."""
        of = schema_id(name)
        first = self._table.live_from(of)
        while rows := self._table.some(of, first, times * _ROWS_A_JOB, times * _BYTES_A_JOB):
            yield [_entry(row) for row in rows]
            first = rows[-1].version + 1

    def strategy(self, name: TopicName) -> Strategy:
        """The strategy that holds for a topic (semantics 10.7)."""
        return Strategy[self._policies.settings_of(name).schema_compatibility_strategy]

    # -- what may be used

    def check_schemaless(self, name: TopicName) -> None:
        """IncompatibleSchemaError unless a producer without a schema may join (semantics 10.14)."""
        if self._policies.settings_of(name).is_schema_validation_enforced and self.latest(name) is not None:
            raise IncompatibleSchemaError(
                f"Producers cannot connect or send message without a schema to topics with a schema: {name} has one, "
                "and schemaValidationEnforced is set",
                hint="give the producer the topic's schema",
            )

    def for_producer(self, name: TopicName, info: SchemaInfo) -> Work[Admission]:
        """The version with which a producer may send; IncompatibleSchemaError."""
        return self._counted(info, self._admission(name, info, self._may_add(name)))

    def for_consumer(self, name: TopicName, info: SchemaInfo, is_idle: Callable[[], bool]) -> Work[Admission | None]:
        """Whether a consumer may use a schema; what is to be added if it is the first that comes to an idle topic.
        IncompatibleSchemaError if it may not (semantics 10.15)."""
        return self._counted(info, self._for_consumer(name, info, is_idle))

    def _for_consumer(self, name: TopicName, info: SchemaInfo, is_idle: Callable[[], bool]) -> Work[Admission | None]:
        while self.latest(name) is None and is_idle():
            admission = yield from self._admission(name, info, self._may_add(name))
            if not admission.is_new or is_idle():
                return admission
        yield from self._check_consumer(name, Candidate(info))
        return None

    def posted(self, name: TopicName, info: SchemaInfo) -> Work[Admission]:
        """The version of a schema that an administrator adds; IncompatibleSchemaError."""
        return self._counted(info, self._admission(name, info, lambda: True))

    def version_of(self, name: TopicName, info: SchemaInfo) -> Work[int | None]:
        """The version that a schema has; None if the topic has it not. InvalidSchemaError."""
        fingerprint = yield from self._counted(info, self._fingerprint(Candidate(info)))
        return self._table.find(schema_id(name), fingerprint)

    def _counted(self, info: SchemaInfo, work: Work[T]) -> Work[T]:
        """``work``, while which a large schema counts as waiting; ServiceNotReadyError if there are too many."""
        size = len(info.data) if len(info.data) > LARGE_BYTES else 0
        if size and self._waiting_bytes and self._waiting_bytes + size > WAITING_BYTES_MAX:
            raise ServiceNotReadyError(
                "too many large schemas are looked at already",
                hint="try again; the official clients do so by themselves",
            )
        self._waiting_bytes += size
        try:
            return (yield from work)
        finally:
            self._waiting_bytes -= size

    def _may_add(self, name: TopicName) -> Callable[[], bool]:
        return lambda: name.is_system or self._policies.settings_of(name).is_allow_auto_update_schema_enabled

    def _admission(self, name: TopicName, info: SchemaInfo, may_add: Callable[[], bool]) -> Work[Admission]:
        self._check_size(name, info)
        of, candidate = schema_id(name), Candidate(info)
        fingerprint = yield from self._fingerprint(candidate)
        while True:
            found = self._table.find(of, fingerprint)
            if found is not None:
                return Admission(of, found, info, fingerprint, is_new=False)
            if not may_add():
                raise IncompatibleSchemaError(
                    "Schema not found and schema auto updating is disabled.",
                    hint="let an administrator add the schema, or set isAllowAutoUpdateSchema",
                )
            before = self._state(of)
            self._check_room(name, info)
            yield from self._check_new(name, candidate)
            if self._state(of) == before:
                self._check_room(name, info)  # Schemas of other topics may have taken it.
                return Admission(of, self._table.next_version(of), info, fingerprint, is_new=True)

    def _state(self, of: str) -> tuple[int, int]:
        """Numbers that differ when the versions of a topic do: versions behind a deletion of all have old numbers."""
        return self._table.last_version(of), self._table.deletions

    def _check_size(self, name: TopicName, info: SchemaInfo) -> None:
        most = self._policies.settings_of(name).max_schema_bytes
        size = _size_bytes(info)
        if size > most:
            raise IncompatibleSchemaError(
                f"a schema of {size} bytes is larger than the {most} that are kept", hint="shorten it (maxSchemaBytes)"
            )

    def _check_room(self, name: TopicName, info: SchemaInfo) -> None:
        settings = self._policies.settings_of(name)
        rows, size_bytes = self._table.size(schema_id(name))
        if rows >= settings.max_schema_versions_per_topic or size_bytes + len(info.data) > HISTORY_BYTES_MAX:
            raise IncompatibleSchemaError(
                f"{name.base} has {rows} versions of its schema, of {size_bytes} bytes, and takes no more",
                hint="delete its schema by force if no stored message needs it, or raise maxSchemaVersionsPerTopic",
            )
        most, size = settings.max_schema_bytes_in_all, _size_bytes(info)
        if self._table.stored_bytes + size > most:
            raise IncompatibleSchemaError(
                f"the schemas of all topics have {self._table.stored_bytes} bytes of the {most} that are kept, and "
                f"one of {size} more has no room",
                hint="delete schemas by force that no stored message needs, or raise maxSchemaBytesInAll",
            )

    def _fingerprint(self, candidate: Candidate) -> Work[bytes]:
        text = _text_hash(candidate.info)
        known = self._known.get(text)
        if known is None:
            known = yield Job(lambda: candidate.definition.fingerprint, candidate.is_large)
            self._known[text] = known
            if len(self._known) > _KNOWN_MAX:
                self._known.popitem(last=False)
        return known

    def _check_new(self, name: TopicName, candidate: Candidate) -> Work[None]:
        latest, strategy = self.latest(name), self.strategy(name)
        if latest is None or strategy is Strategy.ALWAYS_COMPATIBLE:
            return
        if strategy.is_transitive:
            yield from self._check_beside_all(name, candidate, strategy)
        else:
            yield self._comparison(candidate, (latest,), strategy)

    def _check_beside_all(self, name: TopicName, candidate: Candidate, strategy: Strategy) -> Work[None]:
        for entries in self.live(name, _OF_A_LARGE_ONE if candidate.is_large else 1):
            yield self._comparison(candidate, entries, strategy)

    def _comparison(self, candidate: Candidate, entries: Sequence[Entry], strategy: Strategy) -> Job:
        if candidate.is_large or any(each.info is not None and len(each.info.data) > LARGE_BYTES for each in entries):
            return Job(partial(candidate.check_beside, entries, strategy), is_large=True)
        parsed = self._definitions.definition_of  # of the thread of small ones
        return Job(partial(candidate.check_beside, entries, strategy, parsed), is_large=False)

    def _check_consumer(self, name: TopicName, candidate: Candidate) -> Work[None]:
        strategy = self.strategy(name)
        fingerprint = yield from self._fingerprint(candidate)
        latest = self.latest(name)
        if strategy is Strategy.ALWAYS_COMPATIBLE:
            return
        if latest is None:
            kind = candidate.info.type.name
            raise IncompatibleSchemaError(
                f"Failed to add schema to an active topic with empty(BYTES) schema: new schema type {kind}",
                hint="let a producer or an administrator add the schema",
            )
        found = self._table.find(schema_id(name), fingerprint)
        if strategy not in _ALL_ARE_READ:
            if found != latest.version:
                yield self._comparison(candidate, (latest,), Strategy.BACKWARD)
        elif found is None or strategy is not Strategy.ALWAYS_INCOMPATIBLE:
            yield from self._check_beside_all(name, candidate, strategy)

    def check(self, name: TopicName, info: SchemaInfo) -> Work[None]:
        """IncompatibleSchemaError unless a topic would take a schema as its next one."""
        candidate = Candidate(info)
        yield from self._counted(info, self._fingerprint(candidate))
        yield from self._counted(info, self._check_new(name, candidate))

    # -- changes

    def admit(self, admission: Admission, role: str) -> int:
        """Store an admitted schema if it is new, in the moment in which the work has ended; its version."""
        if admission.is_new:
            invariant(self._table.next_version(admission.id) == admission.version, "a version was given out twice")
            info = admission.info
            row = SchemaRow(
                *(admission.version, info.type.value, info.data, dict(info.properties), role, self._clock.now_ms())
            )
            self._table.add(admission.id, row, admission.fingerprint)
        return admission.version

    def delete(self, name: TopicName, role: str) -> int | None:
        """Delete the schema of a topic; the version of its tombstone, None if there was no schema (semantics 10.11).
        Versions before it are kept for the messages that were written with them."""
        of = schema_id(name)
        if self._latest(of) is None:
            return None
        version = self._table.next_version(of)
        self._table.add_tombstone(of, version, role, self._clock.now_ms())
        return version

    def forget(self, name: TopicName) -> None:
        """Delete all versions, those of stored messages too: the topic is gone, or an administrator insists."""
        self._table.delete(schema_id(name))

    def forget_namespace(self, name: NamespaceName) -> None:
        """Delete the schemas of all topics of a namespace, also of those that never existed."""
        self._table.delete_below(f"{name}/")

    def _latest(self, of: str) -> Entry | None:
        row = self._table.get(of, self._table.last_version(of))
        return None if row is None or row.type is None else _entry(row)


def _size_bytes(info: SchemaInfo) -> int:
    properties = sum(len(key.encode()) + len(value.encode()) for key, value in info.properties.items())
    return len(info.data) + properties


def _text_hash(info: SchemaInfo) -> bytes:
    """A hash of everything that may count in a schema, as the client wrote it."""
    properties = sorted(info.properties.items()) if info.type is SchemaType.KEY_VALUE else ()
    text = hashlib.sha256(repr((info.type.value, len(info.data), properties)).encode())
    text.update(info.data)
    return text.digest()


def _entry(row: SchemaRow) -> Entry:
    info = None if row.type is None else SchemaInfo(SchemaType(row.type), row.data, row.properties)
    return Entry(row.version, info, row.role, row.added_ms)
