# SPDX-License-Identifier: Apache-2.0
"""Topics, and partitioned topics. A partition is a topic of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from broker_core.base.positions import Position
from broker_core.storage.catalogue.database import Database, Json
from broker_core.storage.catalogue.ledgers import LEDGER_CLOSED, LEDGER_OPEN
from broker_core.storage.catalogue.named_values import Numbers

INTERNAL_PREFIX: Final = "pulsar."
"""Begin of the names of properties and cursors that are the broker's own (semantics 1.1.6)."""

_OF_USERS: Final = "\x1b"
"""Put before the name of a user's property that begins like the broker's own, or with this."""

_NAMES_AT_A_TIME: Final = 256

_SELECT: Final = (
    "SELECT id, name, created_ms, properties, trimmed_ledger, trimmed_entry, trimmed_next_index FROM topics"
)
_INSERT: Final = "INSERT INTO topics (id, name, created_ms, properties) VALUES (?, ?, ?, ?)"
_NAMES_BETWEEN: Final = "SELECT name FROM topics WHERE name > ? AND name < ? ORDER BY name LIMIT ?"
_NAMES_NEAR: Final = (
    "SELECT name FROM topics WHERE name >= ? ORDER BY name LIMIT ?",
    "SELECT name FROM topics WHERE name < ? ORDER BY name DESC LIMIT ?",
    "SELECT name FROM partitioned_topics WHERE name >= ? ORDER BY name LIMIT ?",
    "SELECT name FROM partitioned_topics WHERE name < ? ORDER BY name DESC LIMIT ?",
)
_WITH_LEDGERS: Final = (
    "SELECT id, name FROM topics WHERE id > ?"
    " AND id IN (SELECT topic_id FROM ledgers WHERE state IN (?, ?)) ORDER BY id LIMIT ?"
)


class TopicRow(NamedTuple):
    """One topic (of a partitioned topic: one partition). ``trimmed`` is the last entry that retention deleted.

    ``properties`` are the broker's own and the users', as they are stored; ``of_users`` has the users'.
    """

    id: int
    name: str
    created_ms: int
    properties: Json
    trimmed: Position
    trimmed_next_index: int

    @property
    def of_users(self) -> Json:
        """The properties that users gave the topic, whatever their names."""
        own = INTERNAL_PREFIX
        return {name.removeprefix(_OF_USERS): v for name, v in self.properties.items() if not name.startswith(own)}


class Topics:
    """The table ``topics``."""

    def __init__(self, database: Database, numbers: Numbers) -> None:
        self._database = database
        self._numbers = numbers

    def all(self) -> list[TopicRow]:
        """All topics by name."""
        return [_row(row) for row in self._database.rows(_SELECT + " ORDER BY name")]

    def find(self, name: str) -> TopicRow | None:
        """The topic of a full name."""
        row = self._database.row(_SELECT + " WHERE name = ?", (name,))
        return None if row is None else _row(row)

    def by_id(self, topic_id: int) -> TopicRow | None:
        """The topic of an id."""
        row = self._database.row(_SELECT + " WHERE id = ?", (topic_id,))
        return None if row is None else _row(row)

    def name_of(self, topic_id: int) -> str:
        """The full name of a topic, empty if there is none."""
        return self._database.value("SELECT name FROM topics WHERE id = ?", (topic_id,)) or ""

    def names(self, prefix: str) -> Iterator[str]:
        """The names of all topics that begin with ``prefix`` and are longer, in order. Topics may be created and
        deleted while the caller iterates."""
        behind = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        last = prefix
        while some := self._database.rows(_NAMES_BETWEEN, (last, behind, _NAMES_AT_A_TIME)):
            for (last,) in some:
                yield last

    def names_near(self, name: str, count: int) -> list[str]:
        """Names of topics near ``name`` in the alphabet: of topics and of partitioned topics each, up to ``count`` from
        ``name`` on and up to ``count`` before it."""
        return [found for sql in _NAMES_NEAR for (found,) in self._database.rows(sql, (name, count))]

    def with_ledgers(self, after: int, count: int) -> list[tuple[int, str]]:
        """Id and name of the first ``count`` topics with an id above ``after`` that have a ledger, by id."""
        rows = self._database.rows(_WITH_LEDGERS, (after, LEDGER_OPEN, LEDGER_CLOSED, count))
        return [(topic_id, name) for topic_id, name in rows]

    def create(self, name: str, created_ms: int, properties: Mapping[str, Any] | None = None) -> TopicRow:
        """Create a topic that does not exist. Its id is never used again."""
        with self._database.transaction():
            topic_id = self._numbers.next("topics")
            self._database.change(_INSERT, (topic_id, name, created_ms, json.dumps(properties or {})))
        return TopicRow(topic_id, name, created_ms, dict(properties or {}), Position(-1, -1), 0)

    def set_properties(self, topic_id: int, properties: Mapping[str, Any]) -> None:
        """Replace the properties that users gave a topic; names may be any, the broker's own stay apart."""
        with self._database.transaction():
            internal = {k: v for k, v in self._properties(topic_id).items() if k.startswith(INTERNAL_PREFIX)}
            marked = (INTERNAL_PREFIX, _OF_USERS)
            users = {_OF_USERS + k if k.startswith(marked) else k: v for k, v in properties.items()}
            self._put_properties(topic_id, {**users, **internal})

    def property(self, topic_id: int, name: str) -> Any:
        """One property of a topic; None if it has none of that name."""
        return self._properties(topic_id).get(name)

    def set_property(self, topic_id: int, name: str, value: Any) -> None:
        """Set one property of a topic and leave the others alone."""
        with self._database.transaction():
            self._put_properties(topic_id, {**self._properties(topic_id), name: value})

    def _properties(self, topic_id: int) -> Json:
        text = self._database.value("SELECT properties FROM topics WHERE id = ?", (topic_id,))
        return {} if text is None else json.loads(text)

    def _put_properties(self, topic_id: int, properties: Mapping[str, Any]) -> None:
        self._database.change("UPDATE topics SET properties = ? WHERE id = ?", (json.dumps(properties), topic_id))

    def set_trimmed(self, topic_id: int, trimmed: Position, next_index: int) -> None:
        """Retention has deleted everything up to ``trimmed``. Used by ``Catalogue.trim_ledgers``."""
        self._database.change(
            "UPDATE topics SET trimmed_ledger = ?, trimmed_entry = ?, trimmed_next_index = ? WHERE id = ?",
            (*trimmed, next_index, topic_id),
        )

    def delete(self, topic_id: int) -> None:
        """Delete the row alone. Used by ``Catalogue.delete_topic``."""
        self._database.change("DELETE FROM topics WHERE id = ?", (topic_id,))


class PartitionedTopics:
    """The table ``partitioned_topics``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> dict[str, int]:
        """Number of partitions of every partitioned topic, by its full name."""
        return dict(self._database.rows("SELECT name, partitions FROM partitioned_topics ORDER BY name"))

    def put(self, name: str, partitions: int, properties: Mapping[str, Any] | None = None) -> None:
        """Create or replace."""
        self._database.change(
            "INSERT OR REPLACE INTO partitioned_topics (name, partitions, properties) VALUES (?, ?, ?)",
            (name, partitions, json.dumps(properties or {})),
        )

    def properties(self, name: str) -> Json:
        """Properties of a partitioned topic; empty if there is no such topic."""
        text = self._database.value("SELECT properties FROM partitioned_topics WHERE name = ?", (name,))
        return json.loads(text) if text is not None else {}

    def delete(self, name: str) -> bool:
        """Whether it existed. The topics of its partitions are topics of their own and stay."""
        return self._database.change("DELETE FROM partitioned_topics WHERE name = ?", (name,)) > 0


def _row(row: tuple[Any, ...]) -> TopicRow:
    topic_id, name, created_ms, properties, ledger, entry, next_index = row
    return TopicRow(topic_id, name, created_ms, json.loads(properties), Position(ledger, entry), next_index)
