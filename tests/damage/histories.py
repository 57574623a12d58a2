# SPDX-License-Identifier: Apache-2.0
"""Data directories to be damaged: random lives of a broker, and exactly what each had confirmed when it ended.

A history ends by a kill (all that was written is there), by a clean stop, or by a power loss a second after the last
write (what was not synced is gone, in whole or in part). Everything in it was settled, so all of it is confirmed.
Beside the last state of every file it keeps some older ones, for damages by old copies.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final, Literal

from broker_core.base.names import TopicName
from broker_core.base.policies import Policies
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.base.settings import Settings
from broker_core.base.steps import drained
from broker_core.broker.requests import AckId, AckKind
from broker_core.broker.upkeep import trim
from broker_core.storage.catalogue import Catalogue
from broker_core.storage.cursor_state import CursorState
from broker_core.storage.ledger import UnreadableEntryError
from broker_core.storage.topic_log import TopicLog
from broker_core.storage.views import View
from broker_core.testing.sim_disk import POLICIES, SimDisk
from broker_core.testing.virtual_timers import VirtualTimers
from broker_core.wire.heads import SendHead
from tests.broker.compacted import single
from tests.broker.delayed.entries import publish_delayed
from tests.broker.schema_work import put
from tests.broker.world import SHARED, World, body
from tests.schemas.infos import avro

TOPICS: Final = tuple(f"persistent://public/default/{name}" for name in "abc")
DELAYED: Final = "persistent://public/default/delayed"
"""Has messages that are delivered at a time of their own, and so files of delayed messages."""

COMPACTED: Final = tuple(f"persistent://public/default/keyed-{name}" for name in "ab")
"""Have keys, no subscriptions, and so views of compaction, of which the log may have lost what they were made of."""

LATEST_DELAY_MS: Final = 3_600_000
SUBSCRIPTIONS: Final = ("s", "t")
SETTINGS: Final = Settings(
    managed_ledger_max_entries_per_ledger=6,
    managed_ledger_min_ledger_rollover_time_minutes=0,
    managed_ledger_cache_size_mbytes=0,
    acknowledgment_at_batch_index_level_enabled=True,
    is_delayed_delivery_deliver_at_time_strict=True,
    delayed_delivery_tick_time_millis=1,
    delayed_delivery_min_index_count_per_bucket=4,
    delayed_delivery_max_indexes_per_bucket_snapshot_segment=2,
)
STEPS: Final = 30

End = Literal["kill", "clean stop", "power loss"]
ENDS: Final[tuple[End, ...]] = ("kill",) * 5 + ("clean stop",) * 3 + ("power loss",) * 2

Files = dict[str, bytes]
Acked = tuple[Position, frozenset[Position]]

_TABLES: Final = {
    "values_by_name": "name, value", "tenants": "name, config", "namespaces": "name, policies",
    "partitioned_topics": "name, partitions, properties", "topics": "id, name, properties",
    "subscriptions": "id, topic_id, name, properties", "topic_policies": "name, policies",
    "ledgers": "id, topic_id, first_index", "schemas": "id, version, type, data",
}  # fmt: skip
_COUNTERS: Final = "broker starts", "cursor_log"
"""Numbers that differ after each start."""


def catalogue(catalogue: Catalogue) -> dict[str, list[tuple[object, ...]]]:
    """All names that a catalogue knows, and what is said of them."""
    found = {table: list(catalogue.rows(f"SELECT {names} FROM {table}")) for table, names in _TABLES.items()}
    found["values_by_name"] = [row for row in found["values_by_name"] if row[0] not in _COUNTERS]
    return {table: sorted(rows) for table, rows in found.items()}


def acked(state: CursorState) -> Acked:
    """What a cursor has acknowledged: all through a position, and single entries behind it."""
    single = {Position(ledger, entry) for ledger, entries in state.deleted.items() for entry in entries}
    return state.mark_delete, frozenset(single)


def readable(log: TopicLog) -> tuple[dict[Position, bytes], list[Position]]:
    """All entries of a log that can be read, and the positions of those that cannot."""
    found: dict[Position, bytes] = {}
    lost: list[Position] = []
    position = log.next_valid(POSITION_EARLIEST)
    while log.contains(position):
        try:
            for each in log.read(position, 100, 1 << 20):
                found[each.position] = position_body = each.body
                position = each.position
                assert position_body
        except UnreadableEntryError:
            lost.append(position)
        position = log.next_valid(position)
    return found, lost


def kept(view: View) -> tuple[dict[Position, bytes], list[Position]]:
    """As ``readable``, of a compacted view."""
    found: dict[Position, bytes] = {}
    lost: list[Position] = []
    start: Position | None = POSITION_EARLIEST
    while start is not None:
        last = start
        try:
            for each in view.read(start, 100, 1 << 20):
                found[each.position] = each.body
                last = each.position
        except UnreadableEntryError as error:
            lost.append(error.position)
            last = error.through
        start = view.first_after(last)
    return found, lost


class JudgementError(AssertionError):
    """The broker was silent about a damage, or served or removed what it must not."""


@dataclass
class History:
    """A data directory and what was confirmed in it.

    Attributes:
        files: By path, as the end left them. ``folders`` are the directories.
        older: Earlier states of the files.
        entries: Of each topic, by position.
        cursors: By topic and subscription, what was acknowledged.
        views: Of each compacted topic what its view has, by position.
        rows: The catalogue.
        real: Of real processes.
        now_ms: What the clock showed when it ended.
        delays: When each entry of the topic DELAYED may be delivered.
    """

    seed: int
    end: End
    real: bool = False
    now_ms: int = 0
    delays: dict[Position, int] = field(default_factory=dict)
    files: Files = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    older: list[Files] = field(default_factory=list)
    entries: dict[str, dict[Position, bytes]] = field(default_factory=dict)
    cursors: dict[tuple[str, str], Acked] = field(default_factory=dict)
    views: dict[str, dict[Position, bytes]] = field(default_factory=dict)
    rows: dict[str, list[tuple[object, ...]]] = field(default_factory=dict)

    def disk(self, files: Files | None = None, *, without: str = "-", made: str = "") -> SimDisk:
        """A disk with ``files``, or those of the end; folders that begin with ``without`` are gone with all in them,
        and ``made`` is one more."""
        disk = SimDisk()
        for folder in [*self.folders, *([made] if made else [])]:
            if not folder.startswith(without):
                disk.mkdir(folder)
        for path, data in (self.files if files is None else files).items():
            if not path.startswith(without):
                disk.replace(path, data)
        return disk


class WorldAt(World):
    """A broker that starts at the time that the clock of a history showed."""

    def __init__(self, disk: SimDisk, now_ms: int) -> None:
        self._now_ms = now_ms
        super().__init__(SETTINGS, disk)

    def open(self) -> None:
        self.clock = VirtualTimers(self._now_ms)
        super().open()


def contents(disk: SimDisk) -> Files:
    """Every file of a disk."""
    return {path: bytes(node.data) for path, node in disk._names.items() if node is not None}


class Life:
    """One random life of a broker."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.history = History(seed, self.chance.choice(ENDS))
        self.world = World(SETTINGS)
        self.serial = 0

    def live(self) -> History:
        """All of it, to its end."""
        for topic in TOPICS:
            self.world.topic(topic)
            for name in SUBSCRIPTIONS:
                self.world.topic(topic).create_subscription(name, POSITION_EARLIEST)
            self._publish(topic)
            self._bring_schema()
        self._publish_delayed()
        for topic in COMPACTED:
            self._publish_keyed(topic)
        actions = (
            [self._publish_somewhere] * 6 + [self._acknowledge] * 6 + [self._policy] * 2 + [self._publish_delayed] * 2
            + [self._compact_topic] * 3 + [self._bring_schema] * 3
            + [self._seek, self._compact, self._restart, self._kill, self._delete, self._remember, self._retain]
        )  # fmt: skip
        for _ in range(STEPS):
            self.chance.choice(actions)()
            self.world.settle()
        self._publish_somewhere()
        self._acknowledge()
        self.world.settle()
        self._end()
        return self.history

    def _publish(self, topic: str) -> None:
        producer, answers = self.world.produce(topic)
        for number in range(self.chance.randint(1, 5)):
            self.serial += 1
            text = f"<{self.history.seed}/{self.serial}>" + "x" * self.chance.choice((0, 10, 700))
            size = self.chance.randint(1, 4)
            producer.send(SendHead(0, number, size), body(text, messages=size))
        self.world.settle()
        assert not answers.errors
        producer.close()

    def _publish_delayed(self) -> None:
        """Some messages with times, and a consumer who keeps what is due and acknowledges some of it."""
        delays = [self.chance.randint(1, LATEST_DELAY_MS) for _ in range(self.chance.randint(4, 9))]
        times = [self.world.clock.now_ms() + delay for delay in delays]
        self.history.delays.update(zip(publish_delayed(self.world, times, DELAYED), times, strict=True))
        self._consume(DELAYED, "s")

    def _publish_keyed(self, topic: str) -> None:
        """Values of few keys, some of them deletions."""
        producer, answers = self.world.produce(topic)
        for number in range(self.chance.randint(1, 6)):
            self.serial += 1
            value = self.chance.choice(("", f"{self.serial}", f"{self.serial}" + "x" * 700))
            producer.send(SendHead(0, number, 1), single(f"k{self.chance.randrange(4)}={value}"))
        self.world.settle()
        assert not answers.errors
        producer.close()

    def _compact_topic(self) -> None:
        """A run over what has come, after which the log may be trimmed, or more comes."""
        topic = self.world.topic(self.chance.choice(COMPACTED))
        topic.compaction.request()
        self.world.settle()
        if self.chance.random() < 0.5:
            topic.log.roll()
            self.world.settle()
            trim(topic, retained=False)
            self.world.settle()
        if self.chance.random() < 0.7:
            self._publish_keyed(str(topic.name))

    def _publish_somewhere(self) -> None:
        self._publish(self.chance.choice(TOPICS))

    def _acknowledge(self) -> None:
        self._consume(self.chance.choice(TOPICS), self.chance.choice(SUBSCRIPTIONS))

    def _consume(self, topic: str, name: str) -> None:
        consumer, mailbox = self.world.subscribe(SHARED, name, topic)
        self.world.settle()
        for position in mailbox.positions:
            if self.chance.random() < 0.5:
                consumer.ack(AckKind.INDIVIDUAL, [AckId(position)], lambda _error: None)
                if self.chance.random() < 0.3:
                    self.world.settle()
        self.world.settle()
        consumer.close()

    def _policy(self) -> None:
        self.serial += 1
        name = TopicName.parse(self.chance.choice(TOPICS))
        drained(self.world.broker.set_topic_policies(name, Policies(message_ttl_in_seconds=1_000_000 + self.serial)))
        self.world.store.catalogue.tenants.put(f"tenant-{self.serial % 5}", {"number": self.serial})

    def _bring_schema(self) -> None:
        """A new schema for a topic, most often; or its schemas are deleted, at times all of them."""
        name, chance = TopicName.parse(self.chance.choice(TOPICS)), self.chance.random()
        self.serial += 1
        if chance < 0.1:
            self.world.broker.schemas.forget(name)
        elif chance < 0.25:
            self.world.broker.schemas.delete(name, "")
        else:
            put(self.world, avro(f"f{self.serial}=0", doc="x" * self.chance.choice((0, 10, 700))), name)

    def _seek(self) -> None:
        topic = self.chance.choice(TOPICS)
        subscription = self.world.subscription(self.chance.choice(SUBSCRIPTIONS), topic)
        log = self.world.topic(topic).log
        subscription.seek(log.first_position, None, lambda _error: None)

    def _compact(self) -> None:
        self.world.store.cursors.compact()

    def _restart(self) -> None:
        self.world.restart()

    def _kill(self) -> None:
        self.world.crash(policy="all")

    def _delete(self) -> None:
        """A topic of its own comes and goes."""
        name = "persistent://public/default/passing"
        self.world.topic(name)
        self._publish(name)
        if self.chance.random() < 0.7:
            self.world.broker.deletion.delete_topic(TopicName.parse(name), force=True)

    def _remember(self) -> None:
        self.history.older.append(contents(self.world.disk))

    def _retain(self) -> None:
        self.world.clock.advance(self.world.settings.retention_check_interval_in_seconds * 1000)

    def _end(self) -> None:
        history, world = self.history, self.world
        note_confirmed(history, world)
        if history.end == "clean stop":
            world.broker.close()
            world.settle()
        else:
            world.store.catalogue.flush()
        history.rows = catalogue(world.store.catalogue)
        disk = world.disk
        if history.end == "clean stop":
            world.store.close()
        elif history.end == "power loss":
            world.store.sync_due()
            world.store.commits.commit_now()
            disk = world.disk.crash(history.seed, self.chance.choice(POLICIES))
        history.files = contents(disk)
        history.folders = [path for path, node in disk._names.items() if node is None]
        if history.end != "clean stop":
            world.abandon()
        World.running.remove(world)


def note_confirmed(history: History, world: World) -> None:
    """Write down what a broker has, all of which it has confirmed."""
    history.now_ms = world.clock.now_ms()
    for row in world.store.catalogue.topics.all():
        topic = world.topic(row.name)
        history.entries[row.name], lost = readable(topic.log)
        assert not lost
        if topic.compaction.has_view:
            history.views[row.name], lost = kept(topic.compaction.view)
            assert not lost
        for name, each in topic.subscriptions.items():
            history.cursors[row.name, name] = acked(each.cursor.state())
    world.settle()


def make_history(seed: int) -> History:
    """The history of a seed, always the same."""
    return Life(seed).live()
