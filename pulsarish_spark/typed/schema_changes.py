# SPDX-License-Identifier: Apache-2.0
"""Changes of the topics' schemas while a query runs: told once each, field by field, in log and progress reports.

The columns of a query that runs never change. So a newer version is a message to its user: which columns a new
DataFrame will have, and whether rows of that version can be read meanwhile. Must not fail a query.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker_core.base.clock import Clock
from broker_core.base.errors import PulsarishError
from broker_core.schemas.compatibility import objections
from broker_core.schemas.definition import definition_of
from broker_core.schemas.info import SchemaInfo, SchemaType, VersionedSchema
from broker_core.schemas.strategies import Strategy
from pulsarish_spark.connecting.side_by_side import side_by_side
from pulsarish_spark.options import ReadOptions
from pulsarish_spark.rows.typed_values import TypedValues
from pulsarish_spark.typed.target_schema import are_equal, topics_of

if TYPE_CHECKING:
    import pyarrow as pa

    from broker_core.client import Client

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 10.0
"""Seconds between two looks: a question for each topic."""

_TOPICS_A_LOOK: Final = 100
"""Topics that are asked about at once; a pattern may match thousands, which take turns."""

_TOLD_MAX: Final = 20
"""Fields that a line of the log names."""


class SchemaChange(NamedTuple):
    """A newer version of a topic's schema, beside the schema that a query reads by.

    ``added`` and ``removed``: paths of fields that only the newer one has, or only the query's; ``changed``: those with
    another type, as ``path: type -> type``. ``objections``: why rows of that version may be bad records; none if the
    query's schema reads them all.
    """

    topic: str
    version: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    objections: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return self._asdict()

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SchemaChange:
        """Read ``to_json()`` back; KeyError, TypeError or ValueError for anything else."""
        fields = ("added", "removed", "changed", "objections")
        return cls(str(document["topic"]), int(document["version"]), *(tuple(document[each]) for each in fields))


class SchemaWatch:
    """Follows the newest schemas of the topics of a query. Used by one thread."""

    def __init__(self, client: Client, options: ReadOptions, typed: TypedValues, clock: Clock) -> None:
        self._client = client
        self._options = options
        self._typed = typed
        self._clock = clock
        self._due = 0.0
        self._turn = 0
        self._known: dict[str, tuple[int, int]] = {}
        self._newest: dict[str, SchemaChange] = {}

    @property
    def changes(self) -> list[SchemaChange]:
        """The newest change of each topic whose newest schema is not that of the query."""
        return [change for _, change in sorted(self._newest.items())]

    def look(self) -> None:
        """Ask for the newest schemas, if it is time to."""
        if self._clock.monotonic() < self._due:
            return
        self._due = self._clock.monotonic() + LOOK_EVERY_S
        try:
            topics = self._next_topics()
            found = side_by_side(self._client.get_schema, topics)
        except PulsarishError as error:
            logger.info("the newest schemas are not known error=%s", error)
            return
        for topic, newest in zip(topics, found, strict=True):
            if newest is not None:
                self._see(topic, newest)

    def _next_topics(self) -> list[str]:
        topics = topics_of(self._options, self._client)
        start = self._turn if self._turn < len(topics) else 0
        self._turn = start + _TOPICS_A_LOOK
        return topics[start : self._turn]

    def _see(self, topic: str, newest: VersionedSchema) -> None:
        before = self._known.get(topic)
        # A topic that was deleted and made anew counts its versions anew.
        found = self._known[topic] = newest.version, hash(newest.info.data)
        if found == before:
            return
        if are_equal(newest.info, self._typed.schema):
            self._newest.pop(topic, None)
        elif before is not None or self._follows_newest:
            self._tell(topic, newest)

    @property
    def _follows_newest(self) -> bool:
        """Whether the query's schema was the newest one when its DataFrame was made."""
        return self._options.values.schema is None and self._options.values.version is None

    def _tell(self, topic: str, newest: VersionedSchema) -> None:
        change = self._newest[topic] = change_of(topic, newest, self._typed)
        logger.warning(
            "topic has a newer schema topic=%s version=%d query_version=%s added=%s removed=%s changed=%s rows=%s "
            "advice=%s",
            topic,
            newest.version,
            "of the user" if self._typed.version is None else self._typed.version,
            *(_listed(each) for each in (change.added, change.removed, change.changed)),
            f"some may be bad records: {_listed(change.objections)}" if change.objections else "they can be read",
            "the columns of a running query stay; start it again with a new DataFrame for the new ones",
        )


def change_of(topic: str, newest: VersionedSchema, typed: TypedValues) -> SchemaChange:
    """The difference between a version and the schema of a query, by the columns that values have."""
    before, now = _fields(typed.schema, typed), _fields(newest.info, typed)
    return SchemaChange(
        topic,
        newest.version,
        added=tuple(path for path in now if path not in before),
        removed=tuple(path for path in before if path not in now),
        changed=tuple(
            f"{path}: {kind} -> {now[path]}" for path, kind in before.items() if path in now and now[path] != kind
        ),
        objections=_objections(newest.info, typed.schema) or _other_meanings(newest.info, typed),
    )


def _objections(writer: SchemaInfo, reader: SchemaInfo) -> tuple[str, ...]:
    try:
        return tuple(objections(definition_of(writer), definition_of(reader), Strategy.BACKWARD))
    except PulsarishError as error:
        return (error.message,)


def _other_meanings(writer: SchemaInfo, typed: TypedValues) -> tuple[str, ...]:
    """Why values are bad records though their type may be read: logical types that mean something else."""
    from broker_core.values.programs import unreadable_parts
    from broker_core.values.targets import targets_of

    now, before = definition_of(writer), definition_of(typed.schema)
    if writer.type is not SchemaType.AVRO or now.avro is None or before.avro is None:
        return ()
    target = targets_of(before.avro, recursive_depth=typed.rules.recursive_depth)
    return tuple(unreadable_parts(now.avro, before.avro, target))


def _fields(schema: SchemaInfo, typed: TypedValues) -> dict[str, str]:
    """The types of all fields in Spark's words, by their paths; none where values can have no columns."""
    try:
        columns = TypedValues(schema, rules=typed.rules).columns()
    except PulsarishError:
        return {}
    return dict(part for name in columns for field in columns[name] for part in _parts(field.name, field.type))


def _parts(path: str, kind: pa.DataType) -> Iterator[tuple[str, str]]:
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_type

    if pa.types.is_struct(kind):
        for field in kind:
            yield from _parts(f"{path}.{field.name}", field.type)
    elif pa.types.is_list(kind):
        yield from _parts(f"{path}[]", kind.value_type)
    elif pa.types.is_map(kind):
        yield from _parts(f"{path}{{}}", kind.item_type)
    else:
        yield path, from_arrow_type(kind, True).simpleString()


def _listed(parts: tuple[str, ...]) -> str:
    more = f" and {len(parts) - _TOLD_MAX} more" if len(parts) > _TOLD_MAX else ""
    return (", ".join(parts[:_TOLD_MAX]) or "none") + more
