# SPDX-License-Identifier: Apache-2.0
"""A topic log against a list: any order of appends, commits, rolls, trims, restarts and crashes."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_core.base.positions import POSITION_EARLIEST, POSITION_LATEST, Position
from broker_core.storage.ledger import StoredEntry
from broker_core.storage.store import Store
from broker_core.testing.sim_disk import SimDisk
from broker_core.testing.virtual_timers import VirtualTimers
from tests.storage.entries import entry
from tests.storage.model import DIRECTORY, SMALL_LEDGERS, discard

MINUTE_MS = 60_000


class TopicLogMachine(RuleBasedStateMachine):
    """``entries`` are all that were appended and not deleted; the first ``durable`` of them are durable."""

    cache_mib: ClassVar[int] = 16

    @initialize()
    def begin(self) -> None:
        self.disk = SimDisk()
        self.clock = VirtualTimers()
        self.entries: list[StoredEntry] = []
        self.durable = 0
        self.answers = 0
        self.asked = 0
        self.messages = 0
        self.told: list[Position] = []
        self.highest = POSITION_EARLIEST
        self.confirmed = POSITION_EARLIEST
        self._open()
        self.trimmed: list[StoredEntry] = []
        self.topic_id = self.store.catalogue.topics.create("t", 1).id
        self.store.commits.commit_now()
        self._load()

    def _open(self) -> None:
        chosen = msgspec.structs.replace(SMALL_LEDGERS, managed_ledger_cache_size_mbytes=self.cache_mib)
        self.store = Store.open(self.disk, DIRECTORY, self.clock, chosen)

    def _load(self) -> None:
        self.log = self.store.open_log(self.topic_id)
        self.log.add_listener(lambda: self.told.append(self.log.last_confirmed))

    # -- what happens

    @rule(size=st.integers(0, 60), messages=st.integers(1, 4))
    def append(self, size: int, messages: int) -> None:
        body = entry(bytes([self.asked % 251]) * size)
        self.asked += 1
        number = self.asked
        assert self.log.next_index == self.messages

        def answer(error: Exception | None) -> None:
            assert error is None
            self.answers += 1
            assert self.answers == number, "answers out of order"
            self.confirmed = position

        position = self.log.append(body, messages, answer)
        assert position > self.highest, "I1.1: ids strictly increase"
        self.highest = position
        self.messages += messages
        self.entries.append(StoredEntry(position, body, messages, self.messages - 1, self.clock.now_ms()))

    @rule()
    def commit(self) -> None:
        before = self.log.last_confirmed
        self.told.clear()
        self.store.commits.commit_now()
        self.durable = len(self.entries)
        assert self.answers == self.asked
        if self.log.last_confirmed != before:
            assert self.told[-1] == self.log.last_confirmed

    @rule(minutes=st.integers(0, 300))
    def time_passes(self, minutes: int) -> None:
        self.clock.advance(minutes * MINUTE_MS)
        self.log.roll_if_due()

    @precondition(lambda self: self.durable)
    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, self.durable - 1), label="trim before entry")
        before = self.entries[at].position
        if data.draw(st.booleans(), label="past it"):
            before = Position(before.ledger, before.entry + 1)
        gone = self.log.trim(before)
        kept = [e for e in self.entries if e.position.ledger not in gone]
        assert all(e.position < before for e in self.entries if e.position.ledger in gone)
        self.durable -= len(self.entries) - len(kept)
        self.trimmed += [e for e in self.entries if e.position.ledger in gone]
        self.entries = kept
        self.store.commits.when_recorded(lambda error: self.trimmed.clear())

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.durable = len(self.entries)
        assert self.answers == self.asked
        self._open()
        self._load()

    @rule(seed=st.integers(0, 2**16))
    def crash(self, seed: int) -> None:
        self.disk = self.disk.crash(seed)
        discard(self.store)
        self._open()
        self._load()
        found = self.log.count_entries(POSITION_EARLIEST, POSITION_LATEST)
        # A deletion that was not durable yet did not happen.
        back = [e for e in self.trimmed if e.position > self.log.first_position]
        self.trimmed.clear()
        self.entries[:0] = back
        self.durable += len(back)
        assert self.durable <= found <= len(self.entries)
        self.entries = self.entries[:found]
        self.durable = found
        self.messages = self.log.next_index
        if self.entries:
            assert self.messages == self.entries[-1].index + 1
        self.asked = self.answers = found
        # A ledger of which nothing had reached the disk may be begun again under its id: nobody has heard of it.
        self.highest = self.confirmed = max([self.confirmed, *(e.position for e in self.entries[-1:])])

    @rule()
    def close_and_open_the_log_alone(self) -> None:
        self.log.close()
        self._load()

    # -- what must hold

    @invariant()
    def reads_equal_the_list(self) -> None:
        found: list[StoredEntry] = []
        position = POSITION_EARLIEST
        while got := self.log.read(position, 3, 100):
            assert len(got) <= 3
            assert len(got) == 1 or sum(len(e.body) for e in got) <= 100
            found += got
            position = self.log.next_valid(got[-1].position)
        assert found == self.entries[: self.durable]

    @invariant()
    def neighbours_are_inverse(self) -> None:
        """1.3.3 (I1.2) next_valid(previous(p)) = p for each entry, over empty and deleted ledgers too."""
        durable = [e.position for e in self.entries[: self.durable]]
        for i, position in enumerate(durable):
            assert self.log.next_valid(self.log.previous(position)) == position
            assert self.log.previous(position) == (durable[i - 1] if i else self.log.first_position)
            following = durable[i + 1] if i + 1 < len(durable) else Position(position.ledger, position.entry + 1)
            assert self.log.next_valid(position) == following
        if durable:
            assert self.log.next_valid(self.log.first_position) == durable[0]
            assert self.log.last_confirmed == durable[-1]
            assert self.log.previous(POSITION_LATEST) == durable[-1]

    @invariant()
    def counts_are_additive(self) -> None:
        """1.3.3 (I1.2) count_entries and count_messages over adjacent ranges add up."""
        durable = self.entries[: self.durable]
        places = [POSITION_EARLIEST, *(e.position for e in durable), POSITION_LATEST]
        places += [Position(p.ledger, p.entry + 3) for p in places[1:-1]]
        places.sort()
        for lower, upper in pairwise(places):
            inside = [e for e in durable if lower < e.position <= upper]
            assert self.log.count_entries(lower, upper) == len(inside)
            assert self.log.count_messages(lower, upper) == sum(e.messages for e in inside)
            assert self.log.count_entries(upper, lower) == 0
        assert self.log.count_entries(POSITION_EARLIEST, POSITION_LATEST) == len(durable) == self.log.entries_count

    @invariant()
    def indexes_lead_to_their_entries(self) -> None:
        durable = self.entries[: self.durable]
        for each in durable:
            for index in range(each.index - each.messages + 1, each.index + 1):
                assert self.log.position_of_index(index) == each.position
        beyond = self.log.next_valid(self.log.last_confirmed)
        assert self.log.position_of_index(self.messages + 5) == beyond
        if durable:
            assert self.log.position_of_index(0) == durable[0].position

    @invariant()
    def ledgers_account_for_all(self) -> None:
        infos = self.log.ledgers()
        assert sum(info.entries for info in infos) == self.durable
        assert [info.id for info in infos] == sorted({info.id for info in infos})
        assert all(not a.closed or a.next_index <= b.first_index for a, b in pairwise(infos))
        for info in infos:
            inside = [e for e in self.entries[: self.durable] if e.position.ledger == info.id]
            assert info.entries == len(inside)
            if inside:
                assert (info.first_ms, info.last_ms) == (inside[0].broker_timestamp, inside[-1].broker_timestamp)
                assert info.next_index == inside[-1].index + 1

    @invariant()
    def last_confirmed_never_regresses(self) -> None:
        durable = self.entries[: self.durable]
        assert not durable or self.log.last_confirmed == durable[-1].position

    def teardown(self) -> None:
        if hasattr(self, "store"):
            discard(self.store)


class UncachedTopicLogMachine(TopicLogMachine):
    """The same with every read from the file."""

    cache_mib = 0


_SETTINGS = settings(
    max_examples=80, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

TestTopicLog = TopicLogMachine.TestCase
TestTopicLog.settings = _SETTINGS
TestUncachedTopicLog = UncachedTopicLogMachine.TestCase
TestUncachedTopicLog.settings = _SETTINGS
