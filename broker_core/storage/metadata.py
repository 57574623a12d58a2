# SPDX-License-Identifier: Apache-2.0
"""The catalogue: what exists. Tenants, namespaces, topics, ledgers, subscriptions and durable counters, as SQL tables.

They are in memory, where every question is answered and every change is made at once; ``catalogue_file`` keeps them.
What was changed goes there with the next group commit, before the writes of its files (``take_changes``). So whatever a
receipt stands for, the changes before it are durable as well; any other answer waits (``GroupCommit.when_recorded``).
The catalogue does not know what names mean, nor of entries; ledger rows are written by ``topic_log`` only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from broker_core.base.invariants import invariant
from broker_core.base.positions import Position
from broker_core.storage.catalogue_file import CatalogueFile, Change
from broker_core.storage.disk import Disk

Json = dict[str, Any]
"""A JSON object; its meaning belongs to whoever stores it."""

LEDGER_CREATING: Final = 0
LEDGER_OPEN: Final = 1
LEDGER_CLOSED: Final = 2
LEDGER_DELETING: Final = 3

INTERNAL_PREFIX: Final = "pulsar."
"""What names of properties and cursors begin with that are the broker's own (semantics 1.1.6)."""

_OF_USERS: Final = "\x1b"
"""Put before the name of a user's property that begins like the broker's own, or with this."""

_UNUSED_SINCE: Final = "unused since, subscription "
"""What the names of those numbers begin with."""

_NUMBERS_RESERVED_AT_ONCE: Final = 100


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


class LedgerRow(NamedTuple):
    """One ledger. What follows ``first_index`` is known when ``state`` is LEDGER_CLOSED, else 0; but ``footer_offset``
    of an open ledger is where its newest synced INDEX record is. ``lost``: how many of ``entries`` were known to be
    damaged or gone when it was closed."""

    id: int
    topic_id: int
    state: int
    created_ms: int
    first_index: int
    next_index: int
    entries: int
    footer_offset: int
    size_bytes: int
    first_ms: int
    last_ms: int
    lost: int = 0


class SubscriptionRow(NamedTuple):
    """One durable subscription. ``id`` is also the cursor id. ``initial`` is the mark-delete position it began with."""

    id: int
    topic_id: int
    name: str
    initial: Position
    properties: Json
    created_ms: int


class Metadata:
    """The catalogue of one data directory.

    Attributes:
        on_change: Called after each change; what was changed can be taken.
        problems: A thorough look at the file, for the doctor.
        findings: What was wrong when it was opened, and is mended now.
        compared: Whether the directory was of a version that has what the catalogue can be compared with.
    """

    def __init__(self, disk: Disk, path: str, *, create: bool, examine: bool = False) -> None:
        """Open the catalogue at ``path``; one of an older version is brought up to date. ``examine``: change nothing.

        Raises:
            DataFormatError: it is missing (unless ``create``), damaged, or not ours.
            DiskFailedError: the disk refused.
        """
        self.on_change: Callable[[], None] | None = None
        self._depth = 0
        self._changes: list[Change] = []
        self._file = CatalogueFile(disk, path, create=create, examine=examine)
        self.problems: Final = self._file.problems
        self.findings: Final = self._file.findings
        self.compared: Final = self._file.compared
        try:
            self._db = self._file.load()
        except BaseException:
            self._file.close(write=False)
            raise

    def close(self, *, write: bool = True) -> None:
        """Close; unless ``write`` is false, what was changed is made durable first. StorageError: that failed."""
        try:
            if write:
                self.flush()
        except BaseException:
            self._file.close(write=False)
            raise
        self._file.close(write=write)
        self._db.close()

    # -- changes

    @property
    def changed(self) -> bool:
        """Whether there is something to take."""
        return bool(self._changes)

    def take_changes(self) -> Callable[[], None] | None:
        """What makes the changes since the last call durable, all or none, on any one thread; None if there are none.

        The results of several calls must be run in that order. They raise StorageError.
        """
        invariant(self._depth == 0, "changes are taken inside of a transaction")
        changes, self._changes = self._changes, []
        return partial(self._file.apply, changes) if changes else None

    @property
    def copy_unsynced(self) -> bool:
        """Whether changes that are durable are not yet durable a second time (``sync_copy``)."""
        return self._file.unsynced

    def sync_copy(self) -> None:
        """What the worker calls to make the second copy of the newest changes durable. OSError: the disk refused."""
        self._file.sync_journal()

    def flush(self) -> None:
        """Make all changes durable here and now: for start and end, while no commit is in flight. StorageError."""
        apply = self.take_changes()
        if apply is not None:
            apply()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all changes inside one: all of them or none. May be nested; only the outermost commits."""
        made = len(self._changes)
        if self._depth == 0:
            self._db.execute("BEGIN")
        self._depth += 1
        try:
            yield
        except BaseException:
            self._depth -= 1
            if self._depth == 0:
                self._db.execute("ROLLBACK")
                del self._changes[made:]
            raise
        self._depth -= 1
        if self._depth == 0:
            self._db.execute("COMMIT")
            if len(self._changes) > made:
                self._tell()

    def _change(self, sql: str, values: tuple[Any, ...] = ()) -> int:
        """Make a change; how many rows it touched."""
        self._db.execute(sql, values)
        rows = self._db.changes()
        if rows:
            self._changes.append(Change(sql, values, rows))
            if self._depth == 0:
                self._tell()
        return rows

    def _tell(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def _one(self, sql: str, values: tuple[Any, ...] = ()) -> Any:
        row = self._row(sql, values)
        return None if row is None else row[0]

    def _row(self, sql: str, values: tuple[Any, ...] = ()) -> tuple[Any, ...] | None:
        return self._db.execute(sql, values).fetchone()

    def _rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self._db.execute(sql, values).fetchall()

    # -- counters

    def number(self, name: str, default: int = 0) -> int:
        """The value kept under ``name``."""
        value = self._one("SELECT value FROM values_by_name WHERE name = ?", (name,))
        return default if value is None else int(value)

    def set_number(self, name: str, value: int) -> None:
        self._change("INSERT OR REPLACE INTO values_by_name (name, value) VALUES (?, ?)", (name, value))

    def reserve_numbers(self, name: str, count: int = _NUMBERS_RESERVED_AT_ONCE) -> range:
        """``count`` numbers of the counter ``name`` that nobody was or will be given. From 1 on.

        A crash may give out again what was not yet durable; nobody has heard of that, nor is it in any file.
        """
        with self.transaction():
            first = self.number(name, 1)
            self.set_number(name, first + count)
        return range(first, first + count)

    # -- tenants and namespaces

    def tenants(self) -> dict[str, Json]:
        """Config of every tenant, by name."""
        return {name: json.loads(text) for name, text in self._rows("SELECT name, config FROM tenants ORDER BY name")}

    def put_tenant(self, name: str, config: Mapping[str, Any]) -> None:
        """Create or replace."""
        self._change("INSERT OR REPLACE INTO tenants (name, config) VALUES (?, ?)", (name, json.dumps(config)))

    def delete_tenant(self, name: str) -> bool:
        """Whether it existed. The caller has made sure that no namespace is left in it."""
        return self._change("DELETE FROM tenants WHERE name = ?", (name,)) > 0

    def namespaces(self) -> dict[str, Json]:
        """Policies of every namespace, by its name ``tenant/namespace``."""
        rows = self._rows("SELECT name, policies FROM namespaces ORDER BY name")
        return {name: json.loads(text) for name, text in rows}

    def put_namespace(self, name: str, policies: Mapping[str, Any]) -> None:
        """Create or replace."""
        self._change("INSERT OR REPLACE INTO namespaces (name, policies) VALUES (?, ?)", (name, json.dumps(policies)))

    def delete_namespace(self, name: str) -> bool:
        """Whether it existed. The caller has made sure that no topic is left in it."""
        return self._change("DELETE FROM namespaces WHERE name = ?", (name,)) > 0

    # -- policies of topics, by the name of the topic without its partition

    def topic_policies(self) -> dict[str, Json]:
        """What is set for each topic; topics for which nothing is set are absent."""
        rows = self._rows("SELECT name, policies FROM topic_policies ORDER BY name")
        return {name: json.loads(text) for name, text in rows}

    def put_topic_policies(self, name: str, policies: Mapping[str, Any]) -> None:
        """Create or replace."""
        values = (name, json.dumps(policies))
        self._change("INSERT OR REPLACE INTO topic_policies (name, policies) VALUES (?, ?)", values)

    def delete_topic_policies(self, name: str) -> bool:
        """Whether there were any."""
        return self._change("DELETE FROM topic_policies WHERE name = ?", (name,)) > 0

    # -- topics

    def partitioned_topics(self) -> dict[str, int]:
        """Number of partitions of every partitioned topic, by its full name."""
        return dict(self._rows("SELECT name, partitions FROM partitioned_topics ORDER BY name"))

    def put_partitioned_topic(self, name: str, partitions: int, properties: Mapping[str, Any] | None = None) -> None:
        """Create or replace."""
        self._change(
            "INSERT OR REPLACE INTO partitioned_topics (name, partitions, properties) VALUES (?, ?, ?)",
            (name, partitions, json.dumps(properties or {})),
        )

    def partitioned_topic_properties(self, name: str) -> Json:
        """Properties of a partitioned topic; empty if there is no such topic."""
        text = self._one("SELECT properties FROM partitioned_topics WHERE name = ?", (name,))
        return json.loads(text) if text is not None else {}

    def delete_partitioned_topic(self, name: str) -> bool:
        """Whether it existed. The topics of its partitions are topics of their own and stay."""
        return self._change("DELETE FROM partitioned_topics WHERE name = ?", (name,)) > 0

    def topics(self) -> list[TopicRow]:
        """All topics by name."""
        return [_topic(row) for row in self._rows(_TOPICS + " ORDER BY name")]

    def topic_names(self, prefix: str) -> Iterator[str]:
        """The names of all topics that begin with ``prefix`` and are longer, in order. Topics may come and go while
        the caller goes through them."""
        behind = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        last = prefix
        while some := self._rows(_NAMES_BETWEEN, (last, behind, _NAMES_AT_A_TIME)):
            for (last,) in some:
                yield last

    def names_near(self, name: str, count: int) -> list[str]:
        """Of topics and of partitioned topics, up to ``count`` names from ``name`` on and as many before it each."""
        return [found for sql in _NAMES_NEAR for (found,) in self._rows(sql, (name, count))]

    def topics_with_closed_ledgers(self, after: int, count: int) -> list[tuple[int, str]]:
        """Id and name of the first ``count`` topics with an id above ``after`` of which a ledger is closed, by id."""
        return [(row_id, name) for row_id, name in self._rows(_WITH_CLOSED_LEDGERS, (after, LEDGER_CLOSED, count))]

    def topic(self, name: str) -> TopicRow | None:
        """The topic of a full name."""
        row = self._row(_TOPICS + " WHERE name = ?", (name,))
        return None if row is None else _topic(row)

    def topic_name(self, topic_id: int) -> str:
        """The full name of a topic, empty if there is none."""
        return self._one("SELECT name FROM topics WHERE id = ?", (topic_id,)) or ""

    def topic_by_id(self, topic_id: int) -> TopicRow | None:
        row = self._row(_TOPICS + " WHERE id = ?", (topic_id,))
        return None if row is None else _topic(row)

    def create_topic(self, name: str, created_ms: int, properties: Mapping[str, Any] | None = None) -> TopicRow:
        """Create a topic that does not exist. Its id is never used again."""
        with self.transaction():
            topic_id = self.reserve_numbers("topics", 1)[0]
            self._change(
                "INSERT INTO topics (id, name, created_ms, properties) VALUES (?, ?, ?, ?)",
                (topic_id, name, created_ms, json.dumps(properties or {})),
            )
        return TopicRow(topic_id, name, created_ms, dict(properties or {}), Position(-1, -1), 0)

    def set_topic_properties(self, topic_id: int, properties: Mapping[str, Any]) -> None:
        """Replace the properties that users gave a topic; names may be any, the broker's own stay apart."""
        with self.transaction():
            internal = {k: v for k, v in self._topic_properties(topic_id).items() if k.startswith(INTERNAL_PREFIX)}
            marked = (INTERNAL_PREFIX, _OF_USERS)
            users = {_OF_USERS + k if k.startswith(marked) else k: v for k, v in properties.items()}
            self._put_topic_properties(topic_id, {**users, **internal})

    def topic_property(self, topic_id: int, name: str) -> Any:
        """One property of a topic; None if it has none of that name."""
        return self._topic_properties(topic_id).get(name)

    def set_topic_property(self, topic_id: int, name: str, value: Any) -> None:
        """Set one property of a topic and leave the others alone."""
        with self.transaction():
            self._put_topic_properties(topic_id, {**self._topic_properties(topic_id), name: value})

    def _topic_properties(self, topic_id: int) -> Json:
        text = self._one("SELECT properties FROM topics WHERE id = ?", (topic_id,))
        return {} if text is None else json.loads(text)

    def _put_topic_properties(self, topic_id: int, properties: Mapping[str, Any]) -> None:
        self._change("UPDATE topics SET properties = ? WHERE id = ?", (json.dumps(properties), topic_id))

    def delete_topic(self, topic_id: int) -> None:
        """Forget a topic and its subscriptions; its ledgers become LEDGER_DELETING. Used by ``TopicLog.delete``."""
        with self.transaction():
            self._change("UPDATE ledgers SET state = ? WHERE topic_id = ?", (LEDGER_DELETING, topic_id))
            self._change(
                "DELETE FROM cursor_epochs WHERE cursor_id IN (SELECT id FROM subscriptions WHERE topic_id = ?)",
                (topic_id,),
            )
            self._change(
                "DELETE FROM values_by_name WHERE name IN (SELECT ? || id FROM subscriptions WHERE topic_id = ?)",
                (_UNUSED_SINCE, topic_id),
            )
            self._change("DELETE FROM subscriptions WHERE topic_id = ?", (topic_id,))
            self._change("DELETE FROM topics WHERE id = ?", (topic_id,))

    # -- subscriptions

    def subscriptions(self, topic_id: int) -> list[SubscriptionRow]:
        """The durable subscriptions of a topic, by name, without the broker's own (INTERNAL_PREFIX)."""
        rows = self._rows(_SUBSCRIPTIONS + " WHERE topic_id = ? ORDER BY name", (topic_id,))
        return [_subscription(row) for row in rows if not row[2].startswith(INTERNAL_PREFIX)]

    def internal_cursor(self, topic_id: int, name: str) -> SubscriptionRow | None:
        """A cursor of the broker's own, made by ``create_subscription`` like any other."""
        row = self._row(_SUBSCRIPTIONS + " WHERE topic_id = ? AND name = ?", (topic_id, name))
        return None if row is None else _subscription(row)

    def initial_positions(self) -> dict[int, Position]:
        """Where the cursor of each subscription of any topic began, by id."""
        rows = self._rows("SELECT id, initial_ledger, initial_entry FROM subscriptions")
        return {row_id: Position(ledger, entry) for row_id, ledger, entry in rows}

    def initial_position(self, subscription_id: int) -> Position | None:
        """The same of one subscription; None if there is no such."""
        row = self._row("SELECT initial_ledger, initial_entry FROM subscriptions WHERE id = ?", (subscription_id,))
        return None if row is None else Position(*row)

    def create_subscription(
        self, topic_id: int, name: str, initial: Position, created_ms: int, properties: Mapping[str, Any] | None = None
    ) -> SubscriptionRow:
        """Create a subscription that does not exist. Its id, which is its cursor id, is never used again."""
        with self.transaction():
            row_id = self.reserve_numbers("subscriptions", 1)[0]
            self._change(
                _INSERT_SUBSCRIPTION,
                (row_id, topic_id, name, *initial, json.dumps(properties or {}), created_ms),
            )
        return SubscriptionRow(row_id, topic_id, name, initial, dict(properties or {}), created_ms)

    def set_subscription_properties(self, subscription_id: int, properties: Mapping[str, Any]) -> None:
        """Replace all properties of a subscription."""
        self._change("UPDATE subscriptions SET properties = ? WHERE id = ?", (json.dumps(properties), subscription_id))

    def delete_subscription(self, subscription_id: int) -> bool:
        """Whether it existed. The caller also drops the cursor of the same id."""
        with self.transaction():
            self._change("DELETE FROM cursor_epochs WHERE cursor_id = ?", (subscription_id,))
            self.set_unused_since(subscription_id, None)
            return self._change("DELETE FROM subscriptions WHERE id = ?", (subscription_id,)) > 0

    def unused_since(self, subscription_id: int) -> int | None:
        """When the last consumer of a subscription left, milliseconds; None: it has one, or nobody knows."""
        since_ms = self.number(f"{_UNUSED_SINCE}{subscription_id}", -1)
        return None if since_ms < 0 else since_ms

    def set_unused_since(self, subscription_id: int, since_ms: int | None) -> None:
        """As ``unused_since`` says from now on."""
        name = f"{_UNUSED_SINCE}{subscription_id}"
        if since_ms is not None:
            self.set_number(name, since_ms)
        else:
            self._change("DELETE FROM values_by_name WHERE name = ?", (name,))

    # -- epochs of cursors, for CursorStore

    def cursor_epochs(self) -> dict[int, int]:
        """How often each cursor was reset; cursors that never were are absent."""
        return dict(self._rows("SELECT cursor_id, epoch FROM cursor_epochs"))

    def set_cursor_epoch(self, cursor_id: int, epoch: int) -> None:
        self._change("INSERT OR REPLACE INTO cursor_epochs (cursor_id, epoch) VALUES (?, ?)", (cursor_id, epoch))

    # -- ledgers, for TopicLog and Store

    def ledgers(self, topic_id: int) -> list[LedgerRow]:
        """The ledgers of a topic that hold or may hold entries, oldest first."""
        rows = self._rows(
            _LEDGERS + " WHERE topic_id = ? AND state IN (?, ?) ORDER BY id",
            (topic_id, LEDGER_OPEN, LEDGER_CLOSED),
        )
        return [LedgerRow(*row) for row in rows]

    def all_ledgers(self) -> list[LedgerRow]:
        """Every row of every topic in every state, by id."""
        return [LedgerRow(*row) for row in self._rows(_LEDGERS + " ORDER BY id")]

    def create_ledger(self, topic_id: int, created_ms: int, first_index: int) -> LedgerRow:
        """A new row in state LEDGER_CREATING. Ledger ids grow over the whole store and are never used again."""
        with self.transaction():
            ledger = self.reserve_numbers("ledgers", 1)[0]
            row = LedgerRow(ledger, topic_id, LEDGER_CREATING, created_ms, first_index, 0, 0, 0, 0, 0, 0)
            self._change(_INSERT_LEDGER, row)
        return row

    def open_ledger(self, ledger: int) -> None:
        """The file of a LEDGER_CREATING row is durable now."""
        changed = self._change(
            "UPDATE ledgers SET state = ? WHERE id = ? AND state = ?", (LEDGER_OPEN, ledger, LEDGER_CREATING)
        )
        invariant(changed == 1, "ledger %s was not being created", ledger)

    def note_index_record(self, ledger: int, offset: int) -> None:
        """The INDEX record at ``offset`` of an open ledger is durable."""
        self._change("UPDATE ledgers SET footer_offset = ? WHERE id = ? AND state = ?", (offset, ledger, LEDGER_OPEN))

    def close_ledger(self, row: LedgerRow) -> None:
        """The ledger's footer is durable now; ``row`` has the summary."""
        self._change(
            "UPDATE ledgers SET state = ?, next_index = ?, entries = ?, footer_offset = ?, size_bytes = ?,"
            " first_ms = ?, last_ms = ?, lost = ? WHERE id = ? AND state = ?",
            (LEDGER_CLOSED, *row[5:], row.id, LEDGER_OPEN),
        )

    def trim_ledgers(self, topic_id: int, ledgers: list[int], trimmed: Position, next_index: int) -> None:
        """Retention deletes ``ledgers``; the topic remembers where its data begins."""
        with self.transaction():
            for ledger in ledgers:
                self._change("UPDATE ledgers SET state = ? WHERE id = ?", (LEDGER_DELETING, ledger))
            self._change(
                "UPDATE topics SET trimmed_ledger = ?, trimmed_entry = ?, trimmed_next_index = ? WHERE id = ?",
                (*trimmed, next_index, topic_id),
            )

    def forget_ledgers(self, ledgers: list[int]) -> None:
        """The files of these ledgers are gone for good."""
        with self.transaction():
            for ledger in ledgers:
                self._change("DELETE FROM ledgers WHERE id = ?", (ledger,))


_TOPICS: Final = (
    "SELECT id, name, created_ms, properties, trimmed_ledger, trimmed_entry, trimmed_next_index FROM topics"
)
_NAMES_AT_A_TIME: Final = 256

_NAMES_BETWEEN: Final = "SELECT name FROM topics WHERE name > ? AND name < ? ORDER BY name LIMIT ?"

_NAMES_NEAR: Final = (
    "SELECT name FROM topics WHERE name >= ? ORDER BY name LIMIT ?",
    "SELECT name FROM topics WHERE name < ? ORDER BY name DESC LIMIT ?",
    "SELECT name FROM partitioned_topics WHERE name >= ? ORDER BY name LIMIT ?",
    "SELECT name FROM partitioned_topics WHERE name < ? ORDER BY name DESC LIMIT ?",
)
_SUBSCRIPTIONS: Final = (
    "SELECT id, topic_id, name, initial_ledger, initial_entry, properties, created_ms FROM subscriptions"
)
_INSERT_SUBSCRIPTION: Final = (
    "INSERT INTO subscriptions (id, topic_id, name, initial_ledger, initial_entry, properties, created_ms)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_WITH_CLOSED_LEDGERS: Final = (
    "SELECT id, name FROM topics WHERE id > ?"
    " AND id IN (SELECT topic_id FROM ledgers WHERE state = ?) ORDER BY id LIMIT ?"
)
_LEDGERS: Final = (
    "SELECT id, topic_id, state, created_ms, first_index, next_index, entries, footer_offset, size_bytes,"
    " first_ms, last_ms, lost FROM ledgers"
)
_INSERT_LEDGER: Final = (
    "INSERT INTO ledgers (id, topic_id, state, created_ms, first_index, next_index, entries, footer_offset,"
    " size_bytes, first_ms, last_ms, lost) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def _topic(row: tuple[Any, ...]) -> TopicRow:
    topic_id, name, created_ms, properties, ledger, entry, next_index = row
    return TopicRow(topic_id, name, created_ms, json.loads(properties), Position(ledger, entry), next_index)


def _subscription(row: tuple[Any, ...]) -> SubscriptionRow:
    row_id, topic_id, name, ledger, entry, properties, created_ms = row
    return SubscriptionRow(row_id, topic_id, name, Position(ledger, entry), json.loads(properties), created_ms)
