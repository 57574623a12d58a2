# SPDX-License-Identifier: Apache-2.0
"""What became of a damage: without effect, told everywhere, or a reason to mend the broker.

The doctor looks first and must change nothing. Then a broker starts on the directory, every topic is loaded and read,
and what it says is held against what was confirmed. Whatever is missing must be told in the log, in the health check,
in the statistics of its topic and by the doctor, each time with the name of the file; what was not missing must be
right. At last a second start must still know of what is lost.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import msgspec

from broker_core.base.errors import PersistenceServerError, PulsarishError, StorageError
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.base.runtime import RUNTIME_FILE, RuntimeInfo
from broker_core.storage.check import verify_directory
from broker_core.testing.sim_disk import SimDisk
from tests.broker.schema_work import put
from tests.broker.world import EARLIEST, World, topic_stats
from tests.damage.damages import Damage
from tests.damage.delays import judge_delays
from tests.damage.histories import (
    SETTINGS,
    Files,
    History,
    JudgementError,
    acked,
    catalogue,
    contents,
    kept,
    readable,
)

RUNTIME_PATH = f"/data/{RUNTIME_FILE}"
FORMAT_PATH = "/data/FORMAT"


@dataclass
class Verdict:
    """``outcome``: no effect, refused to start, mended, or what is lost."""

    outcome: str
    lost_entries: int = 0
    forgotten: int = 0


@dataclass
class Tally:
    """How many verdicts of each kind there were, and what went wrong."""

    outcomes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    lost_entries: int = 0
    forgotten: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        self.outcomes[verdict.outcome] += 1
        self.lost_entries += verdict.lost_entries
        self.forgotten += verdict.forgotten

    def merge(self, other: Tally) -> None:
        self.outcomes += other.outcomes
        self.kinds += other.kinds
        self.places += other.places
        self.ends += other.ends
        self.lost_entries += other.lost_entries
        self.forgotten += other.forgotten
        self.failures += other.failures

    @property
    def damages(self) -> int:
        return self.outcomes.total() + len(self.failures)


@contextmanager
def _log_lines() -> Iterator[list[str]]:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler, root = Keep(logging.WARNING), logging.getLogger("broker_core")
    root.addHandler(handler)
    propagate, root.propagate = root.propagate, False
    try:
        yield lines
    finally:
        root.removeHandler(handler)
        root.propagate = propagate


def judge(history: History, damage: Damage, *, skip: bool) -> Verdict:
    """JudgementError unless the damage had no effect or is told. ``skip``: autoSkipNonRecoverableData."""
    judge_runtime_file(history, damage)
    if damage.delayed and FORMAT_PATH not in damage.paths:
        judge_delays(history, damage)
    disk = history.disk(damage.files, without=damage.gone, made=damage.made)
    problems = _ask_doctor(disk)
    before = contents(disk)
    with _log_lines() as lines:
        try:
            world = World(msgspec.structs.replace(SETTINGS, auto_skip_non_recoverable_data=skip), disk=disk)
        except StorageError as error:
            return _refused(error, problems, before, contents(disk))
        look = Look(world, history, damage, lines, problems)
        try:
            verdict = look.verdict()
            world.broker.close()
            world.settle()
            world.store.close()
        finally:
            world.disk.fail(1, forever=True)
            with suppress(PulsarishError):
                world.store.close()
            World.running.remove(world)
    disk.heal()
    _nothing_removed(history, before, contents(disk))
    if verdict.lost_entries:
        _ask_again(disk, look.lost)
    return verdict


def judge_runtime_file(history: History, damage: Damage) -> None:
    """``broker.json`` leads to no other broker than before."""
    original, found = history.files.get(RUNTIME_PATH), damage.files.get(RUNTIME_PATH)
    if original is not None and found is not None and found != original:
        number = int(msgspec.json.decode(original)["file_number"])
        if RuntimeInfo.decode(found, number) not in (None, RuntimeInfo.decode(original, number)):
            raise JudgementError(f"{RUNTIME_PATH} names another broker now")


def _ask_doctor(disk: SimDisk) -> list[str]:
    before = disk.fingerprint()
    try:
        problems = verify_directory(disk, "/data").problems
    except StorageError as error:
        problems = [str(error)]
    if disk.fingerprint() != before:
        raise JudgementError("the doctor has changed something")
    return problems


def _refused(error: StorageError, problems: list[str], before: Files, after: Files) -> Verdict:
    """It does not start, and says why: the doctor must say so too, and no data may have been touched."""
    if "/data" not in str(error):
        raise JudgementError(f"the refusal to start names no file: {error}")
    if not problems:
        raise JudgementError(f"the doctor finds nothing where the broker does not start: {error}")
    for path, data in before.items():
        if path.startswith(("/data/ledgers", "/data/cursors")) and after.get(path) != data:
            raise JudgementError(f"a broker that did not start has changed {path}")
    return Verdict("refused to start")


def _nothing_removed(history: History, before: Files, after: Files) -> None:
    """Every confirmed entry that was still in some file is still in one."""
    there, left = b"".join(before.values()), b"".join(after.values())
    for topic, entries in [*history.entries.items(), *history.views.items()]:
        for position, body in entries.items():
            if body in there and body not in left:
                raise JudgementError(f"entry {position} of {topic} was in a file, and is in none any more")


def _ask_again(disk: SimDisk, lost: dict[str, list[Position]]) -> None:
    """A second start reports what was lost as well."""
    with _log_lines() as lines:
        world = World(SETTINGS, disk=disk)
        try:
            for topic in lost:
                _, unreadable = readable(world.topic(topic).log)
                if not unreadable:
                    raise JudgementError(f"entries of {topic} were lost, and are forgotten at the second start")
                if not topic_stats(world.topic(topic)).damages or not lines:
                    raise JudgementError(f"entries of {topic} were lost, and the second start does not say so")
        finally:
            world.abandon()
            World.running.remove(world)


class Look:
    """One look at a broker that started on a damaged directory. ``lost``: positions of each topic."""

    def __init__(self, world: World, history: History, damage: Damage, lines: list[str], problems: list[str]) -> None:
        self.world = world
        self.history = history
        self.damage = damage
        self.lines = lines
        self.problems = problems
        self.lost: dict[str, list[Position]] = {}

    def verdict(self) -> Verdict:
        """What the damage has done; JudgementError if that is not told."""
        rows = catalogue(self.world.store.catalogue)
        for table, expected in self.history.rows.items():
            if rows[table] != expected:
                raise JudgementError(f"{table} of the catalogue differ: {set(expected) ^ set(rows[table])}")
        self._schemas(rows["schemas"])
        forgotten = 0
        for topic, entries in self.history.entries.items():
            self._entries(topic, entries)
            forgotten += self._cursors(topic)
        views_lost = [topic for topic, entries in self.history.views.items() if self._view_lost(topic, entries)]
        for topic, positions in self.lost.items():
            self._reader(topic, positions)
        self.world.settle()
        lost = sum(map(len, self.lost.values()))
        if lost:
            return Verdict("entries lost, told", lost, forgotten)
        if views_lost:
            return Verdict("views lost, told", 0, forgotten)
        if forgotten:
            return Verdict("acknowledgements lost, told", 0, forgotten)
        return Verdict("mended or noted" if self.world.broker.damages else "no effect")

    def _schemas(self, rows: list[tuple[object, ...]]) -> None:
        """Clients get each version, and the number of one that is there when they bring it again."""
        schemas = self.world.broker.schemas
        for of, version, kind, data in rows:
            name, number = TopicName.parse(f"persistent://{of}"), int(str(version))
            entry = schemas.version(name, number)
            if (None if entry is None or entry.info is None else entry.info.data) != (None if kind is None else data):
                raise JudgementError(f"version {number} of the schema of {name} is not what it was")
            latest = schemas.latest(name)
            if latest is None or latest.version != number or latest.info is None:
                continue
            if put(self.world, latest.info, name) != number:
                raise JudgementError(f"the schema of {name} is version {number}, and is added again")

    def _entries(self, topic: str, expected: dict[Position, bytes]) -> None:
        found, unreadable = readable(self.world.topic(topic).log)
        for position, body in found.items():
            if expected.get(position) != body:
                raise JudgementError(f"entry {position} of {topic} is not what was stored there")
        missing = sorted(expected.keys() - found.keys())
        if silent := [each for each in missing if each not in unreadable and self._unacknowledged(topic, each)]:
            raise JudgementError(f"entries {silent} of {topic} are passed over as if there were none")
        if missing:
            self.lost[topic] = missing
            self._told(topic, {f"/data/ledgers/{each.ledger}.log" for each in missing})

    def _unacknowledged(self, topic: str, position: Position) -> bool:
        """Whether a subscription may still want an entry."""
        wanted = [acks for (name, _), acks in self.history.cursors.items() if name == topic]
        return any(position > through and position not in single for through, single in wanted)

    def _cursors(self, topic: str) -> int:
        """How many acknowledgements are forgotten."""
        forgotten = 0
        for name, subscription in self.world.topic(topic).subscriptions.items():
            through, single = self.history.cursors[topic, name]
            now, now_single = acked(subscription.cursor.state())
            entries = self.history.entries[topic]
            was = {each for each in entries if each <= through} | single
            is_now = {each for each in entries if each <= now} | now_single
            skipped = set(self.lost.get(topic, ())) if self.world.settings.auto_skip_non_recoverable_data else set()
            if invented := {each for each in is_now - was - skipped if each > through}:
                raise JudgementError(f"{name} of {topic} has {sorted(invented)} acknowledged and never did")
            if was - is_now:
                forgotten += len(was - is_now)
                self._told(topic, set(self.damage.paths))
        return forgotten

    def _reader(self, topic: str, lost: list[Position]) -> None:
        """Who reads a topic from its beginning gets what is in front of the first lost entry, or is refused with its
        name; with the setting that gives lost entries up, all others."""
        known = [each for each in lost if self.world.topic(topic).log.contains(each)]
        skip = self.world.settings.auto_skip_non_recoverable_data
        expected = sorted(
            each for each in self.history.entries[topic]
            if each not in lost and (skip or not known or each < known[0])
        )  # fmt: skip
        try:
            _, mailbox = self.world.subscribe(subscription="reader", topic=topic, durable=False)
        except PersistenceServerError as error:
            if expected or skip or str(known[0]) not in str(error):
                raise JudgementError(f"a reader of {topic} is refused, lost is {lost}: {error}") from error
            return
        self.world.settle()
        if mailbox.positions != expected:
            raise JudgementError(f"a reader of {topic} gets {mailbox.positions}, not {expected}")

    def _view_lost(self, topic: str, expected: dict[Position, bytes]) -> bool:
        """Whether something of a compacted view is lost. Its readers get what is in front of that, or are refused."""
        compaction = self.world.topic(topic).compaction
        found, lost = kept(compaction.view)
        for position, body in found.items():
            if expected.get(position) != body:
                raise JudgementError(f"entry {position} of the view of {topic} is not what was kept")
        missing = sorted(expected.keys() - found.keys())
        if missing and not lost and compaction.damage is None:
            raise JudgementError(f"entries {missing} of the view of {topic} are passed over as if there were none")
        try:
            _, mailbox = self.world.subscribe(
                subscription="compacted", topic=topic, durable=False, initial_position=EARLIEST, read_compacted=True
            )
            self.world.settle()
        except PersistenceServerError:
            is_in_front = missing[:1] == sorted(expected)[:1] if expected else topic in self.lost
            if compaction.damage is None and not is_in_front:
                raise
        else:
            if compaction.damage is not None:
                raise JudgementError(f"the view of {topic} is lost, and its readers are not refused")
            in_view = [each for each in mailbox.positions if each <= compaction.horizon]
            if in_view != [each for each in sorted(expected) if not missing or each < missing[0]]:
                raise JudgementError(f"a reader of the view of {topic} gets {in_view}; lost is {missing}")
        if not missing and compaction.damage is None:
            return False
        self._told(topic, set(self.damage.paths))
        return True

    def _told(self, topic: str, paths: set[str]) -> None:
        stats = topic_stats(self.world.topic(topic)).damages
        health = list(map(str, self.world.broker.damages))
        paths = paths | set(self.damage.paths)
        for place, said in (("log", self.lines), ("health", health), ("stats", stats), ("doctor", self.problems)):
            if not any(path in line for line in said for path in paths):
                raise JudgementError(f"the {place} says nothing of what is lost of {topic} in {sorted(paths)}")
