# SPDX-License-Identifier: Apache-2.0
"""The scenarios of ``takeover``: what befalls a cluster of two brokers, and who reads or writes meanwhile.

All ways to read run side by side, on one topic, under one trouble, beside a consumer of the official client. Owns the
troubles, and what each waits for; what is promised is ``cluster_findings``'s.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from tests.apache_pulsar.cluster import BROKERS
from tests.spark.cluster_findings import Found, Seconds, compared
from tests.spark.cluster_parts import PARTITIONS, WATCHED_PARTITION, Death, Hold, Move, Rig, killed, send, sending
from tests.spark.cluster_watching import (
    MODES,
    POSITIONS,
    RIVAL_S,
    Event,
    Mode,
    Watched,
    consuming,
    streaming,
    subscription,
)

ROWS: Final = 60_000
VALUE_BYTES: Final = 2000
"""So that what one task of a batch reads is more than it can have fetched when its broker dies."""

HOLD_BEHIND: Final = 10
"""Batches of Spark: it passes the first ones on only when more have filled its buffers."""

WARM_ROWS: Final = 100

STOP_S_MAX: Final = 15.0
"""A query that is stopped has ended by then, whatever its brokers do."""

OFFICIAL_S_MAX: Final = 60.0
"""For so long the official client is waited for when rows have come here."""

Queries: TypeAlias = Sequence[Watched]
Trouble: TypeAlias = Callable[[Rig, str, Queries], Iterator[Move | Death]]
Scenario: TypeAlias = Callable[[Rig], Mapping[str, Found]]
"""What was found in each way to read or write."""


# -- troubles: each is told of while it lasts, and is over when the next one is asked for


def moved(rig: Rig, topic: str, _queries: Queries) -> Iterator[Move]:
    """Every bundle to and fro."""
    for _ in range(BROKERS):
        yield Move(rig, f"{topic}-partition-{WATCHED_PARTITION}")
        for number in range(PARTITIONS):
            if number != WATCHED_PARTITION:
                rig.cluster.move(f"{topic}-partition-{number}")


def killed_in_turn(rig: Rig, topic: str, _queries: Queries) -> Iterator[Death]:
    """Each broker dies, for good as far as anybody can tell, and is started when the other one has taken over."""
    for _ in range(BROKERS):
        with killed(rig, topic) as death:
            yield death


def moved_and_killed(rig: Rig, topic: str, _queries: Queries) -> Iterator[Move | Death]:
    """A bundle is given away, then the broker that has it dies."""
    yield Move(rig, f"{topic}-partition-{WATCHED_PARTITION}")
    with killed(rig, topic) as death:
        yield death


def restarted_in_turn(rig: Rig, topic: str, _queries: Queries) -> Iterator[Death]:
    """Each broker dies and is back in seconds, and refuses what lookups send to it until its former session ended."""
    for _ in range(BROKERS):
        with killed(rig, topic, comes_back=True) as death:
            yield death


def killed_and_stopped(rig: Rig, topic: str, queries: Queries) -> Iterator[Death]:
    """A broker dies, and while its bundles are nobody's the queries are stopped and started again.

    In queue mode they do not know then what the broker had confirmed and not written.
    """
    with killed(rig, topic) as death:
        for query in queries:
            took_s = query.stop()
            assert took_s <= STOP_S_MAX, f"{query.mode.name} needed {took_s:.1f} s to stop"
        for query in queries:
            query.start()
        yield death


# -- streams


class Company:
    """Queries in several modes, the rivals of some, a consumer of the official client, and who sends to them all."""

    def __init__(self, rig: Rig, topic: str, modes: Sequence[Mode], running: ExitStack) -> None:
        """What it starts ends with ``running``; each query has read some rows."""
        self._rivals = {
            mode.name: running.enter_context(consuming(rig, topic, subscription(mode, topic), work_s=RIVAL_S))
            for mode in modes
            if mode.has_rival
        }
        self._official = running.enter_context(consuming(rig, topic, "official"))
        self.sender = running.enter_context(sending(rig, topic))
        self.queries: list[Watched] = []
        for mode in modes:  # One after the other: Spark waits ten seconds for the Python of each, and no longer.
            query = running.enter_context(streaming(rig, topic, mode))
            query.wait(partial(query.rows.are, WARM_ROWS), f"{WARM_ROWS} rows have come")
            self.queries.append(query)
        self._events: list[tuple[Move | Death, Event]] = []

    def wait_for_all(self, stored: Counter[int]) -> None:
        """Return when all that is stored was delivered to each query or its rival."""
        for query in self.queries:
            query.wait(partial(self._has_all, query, stored), "everything has come")

    def pause(self) -> None:
        """Send nothing more until the next blow; return when everything has come."""
        self.sender.pause()
        self.wait_for_all(Counter(range(self.sender.sent)))

    def wait_after(self, blow: Move | Death) -> None:
        """Send; return when each query was given something that was sent after the blow.

        The official client is waited for a while only: with two addresses to choose from, it may ask the dead broker
        again and again, a minute apart.
        """
        event = Event(blow.at, self.sender.sent)
        self.sender.go_on()
        self._events.append((blow, event))
        for query in self.queries:
            query.wait(partial(query.rows.have_come_after, event), "rows come again")
        with suppress(TimeoutError):
            official = self._official.rows
            official.wait(
                partial(official.have_come_after, event), "the official client reads", within_s=OFFICIAL_S_MAX
            )

    def found(self, stored: Counter[int]) -> Mapping[str, Found]:
        """What each query was given, of all that is stored."""
        return {query.mode.name: self._found(query, stored) for query in self.queries}

    def _found(self, query: Watched, stored: Counter[int]) -> Found:
        rival = self._rivals.get(query.mode.name)
        theirs = None if rival is None else rival.rows.all()
        found = compared(query.rows.all(), theirs, stored, keeps_order=query.mode.keeps_order)
        seconds = [
            Seconds(blow.failover_s, self._official.rows.first_after(event), query.rows.first_after(event))
            for blow, event in self._events
        ]
        return replace(found, seconds=seconds)

    def _has_all(self, query: Watched, stored: Counter[int]) -> bool:
        rival = self._rivals.get(query.mode.name)
        return not stored - query.rows.values() - (Counter() if rival is None else rival.rows.values())


def under(
    trouble: Trouble, rig: Rig, *, idle: bool = False, restarts: bool = False, modes: Sequence[Mode] = MODES
) -> Mapping[str, Found]:
    """All modes beside each other under one trouble. ``idle``: there is nothing to read when it begins. ``restarts``:
    queries are stopped and started meanwhile."""
    name = f"{trouble.__name__}{'_idle' if idle else ''}".replace("_", "-")
    topic = rig.make_topic(name, kept=True)
    with ExitStack() as running:
        company = Company(rig, topic, modes, running)
        if idle:
            company.pause()
        for blow in trouble(rig, topic, company.queries):
            company.wait_after(blow)
            if idle:
                company.pause()
        company.sender.stop()
        stored = Counter(rig.stored(topic))
        lost = company.sender.confirmed - stored.keys()
        assert not lost, f"{len(lost)} confirmed messages are not stored"
        company.wait_for_all(stored)
        found = company.found(stored)
    if not restarts:
        return found
    return {
        mode: replace(each, is_only_failover=False, may_be_twice=mode != POSITIONS.name) for mode, each in found.items()
    }


# -- batch jobs


def killed_under_a_batch_write(rig: Rig) -> Mapping[str, Found]:
    """The broker of a partition dies while tasks write; each waits for that before its last rows."""
    topic = rig.make_topic("written", kept=True)
    hold = Hold(rig, topic, HOLD_BEHIND)
    rows = rig.spark.range(0, ROWS, 1, PARTITIONS).selectExpr(
        "string(id) key", f"rpad(string(id), {VALUE_BYTES}, ' ') value"
    )
    first = f"{topic}-partition-{WATCHED_PARTITION}"
    with rig.client() as client, hold.killing(lambda: client.last_entry(first).position.entry >= 0) as death:
        hold.applied_to(rows).write.format("pulsarish").options(**rig.options).mode("append").save(topic)
        done_at = time.monotonic()
    stored = Counter(rig.stored(topic))
    seconds = [Seconds(death().failover_s, None, done_at - death().at)]
    found = Found(ROWS, len(set(range(ROWS)) - stored.keys()), stored.total() - len(stored))
    return {"write": replace(found, seconds=seconds, is_only_failover=False, may_be_twice=True)}


def killed_under_a_batch_read(rig: Rig) -> Mapping[str, Found]:
    """The broker of a partition dies while tasks read; each waits for that behind its first rows."""
    topic = rig.make_topic("read", kept=True)
    send(rig, topic, range(ROWS), VALUE_BYTES)
    stored = Counter(rig.stored(topic))
    hold = Hold(rig, topic, HOLD_BEHIND)
    rows = rig.spark.read.format("pulsarish").options(**rig.options).load(topic)
    held = hold.applied_to(rows.selectExpr("string(key) key", "string(value) value"))
    with hold.killing(lambda: hold.is_reached) as death:
        read = Counter(int(row.key) for row in held.select("key").collect())
        done_at = time.monotonic()
    seconds = [Seconds(death().failover_s, None, done_at - death().at)]
    found = Found(read.total(), (stored - read).total(), (read - stored).total())
    return {"read": replace(found, seconds=seconds, is_only_failover=False)}


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "moved-idle": partial(under, moved, idle=True),
    "moved": partial(under, moved),
    "killed-idle": partial(under, killed_in_turn, idle=True),
    "killed": partial(under, killed_in_turn),
    "restarted": partial(under, restarted_in_turn),
    "stopped": partial(under, killed_and_stopped, restarts=True),
    "batch-write": killed_under_a_batch_write,
    "batch-read": killed_under_a_batch_read,
}
