# SPDX-License-Identifier: Apache-2.0
"""The bucket tracker and the index it goes through, rule by rule, with tiny buckets on a simulated disk."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pytest

from broker_core.base.errors import StorageError
from broker_core.base.positions import Position
from broker_core.broker.delayed import bucket_tracker
from broker_core.broker.delayed.bucket import BucketCursor, last_key, position_of, time_of
from broker_core.storage import layout
from tests.broker.delayed.trackers import BASE_MS, END, Acked, Rig, RigWithLog, add_all, all_due


def positions(ledger: int, *entries: int) -> list[Position]:
    return [Position(ledger, entry) for entry in entries]


class TestAdd:
    def test_a_due_entry_is_not_taken_in(self) -> None:
        """6.4.1.1 (I6.4): deliver-at up to the cutoff answers false and changes nothing."""
        rig = Rig()
        tracker = rig.tracker()
        assert add_all(tracker, [-1, 0, 1]) == [False, False, True]
        assert tracker.delayed_entries == 1
        assert len(rig.index.mutable) == 1

    def test_a_due_entry_is_not_swallowed_though_it_is_known(self) -> None:
        """6.4.1.1, 6.4.1.6: due is looked at before known, so an indexed entry that became due is sent, once."""
        rig = Rig()
        first = rig.tracker()
        add_all(first, [100])
        first.close()
        rig.clock.advance(200)
        second = rig.tracker()
        assert add_all(second, [100]) == [False]
        assert all_due(second) == []

    def test_a_due_entry_that_found_nobody_is_sent_when_it_is_read_again(self) -> None:
        """6.4.1.1, 6.4.3.5 (I6.5): though the index has come to others first; held back then, nobody would give it."""
        rig = Rig()
        tracker = rig.tracker()
        add_all(tracker, [100])
        rig.clock.advance(200)
        for _ in range(2):
            assert add_all(tracker, [150], first=1) == [False]
        assert all_due(tracker) == [Position(1, 0)]
        assert tracker.delayed_entries == 0

    def test_one_that_found_no_room_waits_if_the_clock_was_set_back(self) -> None:
        """6.2.2 (I6.1, I6.5): what was due when it was read, and is not when it is read again, was not sent."""
        rig = Rig()
        tracker = rig.tracker()
        add_all(tracker, [100])
        rig.clock.advance(300)
        assert add_all(tracker, [200], first=1) == [False]
        rig.clock.step_wall_clock(-200)
        assert add_all(tracker, [200], first=1) == [True]
        assert all_due(tracker) == [Position(1, 0)]
        assert tracker.delayed_entries == 1
        rig.clock.advance(100)
        assert all_due(tracker) == [Position(1, 1)]
        assert tracker.delayed_entries == 0

    def test_what_is_early_again_outlives_a_skip_of_what_lies_before_it(self) -> None:
        """6.1.7, 6.2.2: it was never taken in, for it was due when it was read."""
        rig = Rig()
        tracker = rig.tracker()
        add_all(tracker, [100])
        rig.clock.advance(200)
        assert all_due(tracker) == [Position(1, 0)]
        assert add_all(tracker, [150], first=1) == [False]
        rig.clock.step_wall_clock(-100)
        assert tracker.add_again(Position(1, 1), BASE_MS + 150)
        tracker.passed_over(Position(1, 0))
        rig.clock.advance(100)
        assert all_due(tracker) == [Position(1, 1)]

    def test_an_entry_is_known_by_its_position(self) -> None:
        """6.4.1.2 (I6.4): adding again answers true and counts nothing, in the mutable bucket or a sealed one."""
        rig = Rig()
        tracker = rig.tracker()
        add_all(tracker, [100, 200, 300], ledger=1)
        assert add_all(tracker, [100, 200, 300], ledger=1) == [True] * 3
        add_all(tracker, [400], ledger=2)
        assert len(rig.index.buckets) == 1
        assert add_all(tracker, [100, 200, 300], ledger=1) == [True] * 3
        assert tracker.delayed_entries == 4
        rig.clock.advance(1000)
        assert all_due(tracker) == [*positions(1, 0, 1, 2), Position(2, 0)]

    def test_a_ledger_goes_on_when_all_of_it_so_far_was_given_out(self) -> None:
        """6.4.2.1: the mutable bucket is emptied instead of sealed, and takes in what follows (the kill rig's find)."""
        rig = Rig(min_index_count=3)
        tracker = rig.tracker()
        add_all(tracker, [1, 2, 3, 4, 5, 6], ledger=1)
        rig.clock.advance(10)
        assert len(all_due(tracker)) == 6
        assert add_all(tracker, [20, 15], ledger=1, first=6) == [True, True]
        rig.clock.advance(10)
        assert all_due(tracker) == positions(1, 7, 6)

    def test_a_full_bucket_is_sealed_when_a_ledger_begins(self) -> None:
        """6.4.1.3 (I6.6): not before, so that a bucket holds whole ledgers."""
        rig = Rig(min_index_count=3)
        tracker = rig.tracker()
        add_all(tracker, [100, 200, 300, 400, 500], ledger=1)
        assert rig.index.buckets == []
        add_all(tracker, [600], ledger=2)
        assert [(bucket.ledgers, bucket.total) for bucket in rig.index.buckets] == [((1,), 5)]
        assert len(rig.index.mutable) == 1

    def test_a_ledger_with_very_many_is_sealed_in_parts(self) -> None:
        """6.4.1.3 (I6.9): memory does not grow with a ledger, which is held open for ten minutes whatever comes."""
        rig = Rig(min_index_count=3)
        tracker = rig.tracker()
        add_all(tracker, range(1, 40), ledger=1)
        assert len(rig.index.mutable) <= 6
        rig.clock.advance(1000)
        assert all_due(tracker) == positions(1, *range(39))

    def test_an_entry_of_a_sealed_ledger_is_kept_beside_it(self) -> None:
        """6.4.1.4: it comes in its turn like any other."""
        rig = Rig()
        tracker = rig.tracker()
        add_all(tracker, [100, 200, 300], ledger=1)
        add_all(tracker, [400], ledger=2)
        assert tracker.add(Position(1, 7), BASE_MS + 150)
        rig.clock.advance(1000)
        assert all_due(tracker) == [*positions(1, 0, 7, 1, 2), Position(2, 0)]

    def test_each_entry_is_counted_and_arms_the_timer(self) -> None:
        """6.4.1.5, 6.4.3.6: the dispatcher is woken at the time of the earliest."""
        rig = Rig()
        woken: list[int] = []
        tracker = rig.tracker()
        tracker.start(lambda: woken.append(rig.clock.now_ms() - BASE_MS))
        add_all(tracker, [5000, 700])
        tracker.take_due(10, END)
        assert tracker.delayed_entries == 2
        rig.clock.advance(690)
        assert 700 not in woken
        rig.clock.advance(20)
        assert 700 in woken
        tracker.close()


class TestSeal:
    def sealed(self, rig: Rig) -> None:
        tracker = rig.tracker()
        add_all(tracker, [3000, 1000, 2000, 1500, 9000], ledger=1)
        add_all(tracker, [100], ledger=2)

    def test_segments_follow_one_another_in_time(self) -> None:
        """6.4.2.1, 6.4.2.2 (I6.6): each knows its first and last time; none spans the step or has too many."""
        rig = Rig(step_ms=1000, indexes_max=2)
        self.sealed(rig)
        segments = rig.index.buckets[0].directory()
        spans = [(each.first_ms - BASE_MS, each.last_ms - BASE_MS, each.count) for each in segments]
        assert spans == [(1000, 1500, 2), (2000, 2000, 1), (3000, 3000, 1), (9000, 9000, 1)]
        assert all(earlier.last_ms <= later.first_ms for earlier, later in pairwise(segments))

    def test_a_bucket_is_one_file_that_names_its_topic(self) -> None:
        """6.4.2.3: written once, and only there when all of it is durable."""
        rig = Rig()
        self.sealed(rig)
        folder = layout.delayed_dir("/data")
        assert rig.disk.list_dir(folder) == []
        rig.settle()
        assert rig.disk.list_dir(folder) == [layout.bucket_name(rig.topic_id, rig.index.buckets[0].number)]

    def test_until_it_is_durable_it_is_read_from_memory(self) -> None:
        """6.4.2.4, 6.4.2.5 (I6.5): whether the file can be made or not, nothing is lost."""
        rig = Rig()
        tracker = rig.tracker()
        add_all(tracker, [300, 100, 200], ledger=1)
        add_all(tracker, [900], ledger=2)
        assert rig.store.commits.pending
        rig.clock.advance(250)
        assert all_due(tracker) == positions(1, 1, 2)
        rig.settle()
        rig.clock.advance(800)
        assert all_due(tracker) == [Position(1, 0), Position(2, 0)]

    def test_a_store_that_fails_takes_nothing_away(self) -> None:
        """6.4.2.5: a bucket that cannot be written stays in memory."""
        rig = Rig()
        tracker = rig.tracker()
        add_all(tracker, [300, 100, 200], ledger=1)
        rig.disk.fail(1, forever=True)
        add_all(tracker, [900], ledger=2)
        with pytest.raises(StorageError):
            rig.store.commits.commit_now()
        add_all(tracker, [950, 960, 970], ledger=3)
        add_all(tracker, [980], ledger=4)
        rig.clock.advance(1000)
        assert len(all_due(tracker)) == 8
        with suppress(StorageError):
            rig.store.close()

    def test_the_bucket_knows_which_entries_it_has(self) -> None:
        """6.4.2.6: its coverage replaces that of the mutable bucket."""
        rig = Rig()
        tracker = rig.tracker()
        add_all(tracker, [300, 100, 200], ledger=1, first=4)
        rig.index.note_seen(1, 0, 9)
        add_all(tracker, [900], ledger=2)
        covered = rig.index.buckets[0].coverage()[1]
        assert (list(covered.indexed), list(covered.seen)) == ([4, 5, 6], list(range(9)))
        assert not rig.index.mutable.indexed(1)


class TestScheduled:
    def test_due_entries_come_by_time_then_position_over_all_buckets(self) -> None:
        """6.4.3.2, 6.4.3.3 (6.1.4): whatever bucket they are in, and no more than were asked for."""
        rig = Rig()
        tracker = rig.tracker()
        add_all(tracker, [300, 100, 200], ledger=1)
        add_all(tracker, [300, 100, 200], ledger=2)
        add_all(tracker, [100], ledger=3)
        rig.clock.advance(200)
        expected = [Position(1, 1), Position(2, 1), Position(3, 0), Position(1, 2), Position(2, 2)]
        assert tracker.take_due(2, END) == expected[:2]
        assert all_due(tracker) == expected[2:]

    def test_what_was_acknowledged_meanwhile_is_dropped(self) -> None:
        """6.4.3.3 (6.1.7): skipped, cleared or expired entries are passed over."""
        rig = Rig()
        acked = Acked()
        tracker = rig.tracker(acked)
        add_all(tracker, [100, 200, 300])
        acked.positions |= {Position(1, 0), Position(1, 2)}
        rig.clock.advance(500)
        assert all_due(tracker) == [Position(1, 1)]
        assert tracker.delayed_entries == 0

    def test_no_entry_of_a_later_segment_is_late(self) -> None:
        """6.4.3.1, 6.4.3.4: a segment is loaded when its first time comes, before anything later is given."""
        rig = Rig(step_ms=100, indexes_max=2)
        tracker = rig.tracker()
        times = [10, 20, 30, 40, 500, 510, 520, 900]
        add_all(tracker, times, ledger=1)
        add_all(tracker, [45], ledger=2)
        rig.settle()
        for now in range(0, 1000, 5):
            given = all_due(tracker)
            at = [45 if each.ledger == 2 else times[each.entry] for each in given]
            assert all(now - 5 < time <= now for time in at), (now, at)
            rig.clock.advance(5)
        assert tracker.delayed_entries == 0

    def test_each_is_given_once(self) -> None:
        """6.4.3.5 (I6.3, I6.5): and the count goes down with it."""
        rig = Rig()
        tracker = rig.tracker()
        for ledger in range(1, 6):
            add_all(tracker, [ledger * 10, 70, 5000 - ledger], ledger=ledger)
        rig.clock.advance(100)
        assert len(all_due(tracker)) == 10
        assert tracker.delayed_entries == 5
        assert all_due(tracker) == []
        rig.clock.advance(10_000)
        assert len(all_due(tracker)) == 5
        assert tracker.delayed_entries == 0

    def test_the_timer_never_waits_for_what_is_only_on_disk(self) -> None:
        """6.4.3.6: the first time of an unloaded segment counts."""
        rig = Rig()
        tracker = rig.tracker()
        add_all(tracker, [60_000, 2000, 90_000], ledger=1)
        add_all(tracker, [80_000], ledger=2)
        rig.settle()
        assert tracker.take_due(10, END) == []
        assert tracker.next_ms() == BASE_MS + 2000
        rig.clock.advance(2000)
        assert all_due(tracker) == [Position(1, 1)]
        assert (tracker.next_ms() or 0) <= BASE_MS + 60_000


class TestDelete:
    def numbers(self, rig: Rig) -> list[int]:
        rig.settle()
        return rig.store.buckets.numbers(rig.topic_id)

    def filled(self, rig: Rig) -> None:
        self.tracker = rig.tracker()
        add_all(self.tracker, [100, 200, 300], ledger=1)
        add_all(self.tracker, [400, 500, 9000], ledger=2)
        add_all(self.tracker, [9500], ledger=3)

    def test_when_its_last_entry_was_given(self) -> None:
        """6.4.4: (a) read to the end."""
        rig = Rig()
        self.filled(rig)
        assert len(self.numbers(rig)) == 2
        rig.clock.advance(1000)
        all_due(self.tracker)
        assert [bucket.ledgers for bucket in rig.index.buckets] == [(2,)]
        assert len(self.numbers(rig)) == 1

    def test_at_recovery_if_all_its_times_are_past(self) -> None:
        """6.4.4, 6.4.6: (b) its messages come from reading on."""
        rig = Rig()
        self.filled(rig)
        rig.settle()
        rig.crash()
        rig.clock.advance(1000)
        tracker = rig.tracker()
        assert len(self.numbers(rig)) == 1
        assert add_all(tracker, [100, 200, 300], ledger=1) == [False] * 3
        assert add_all(tracker, [400, 500, 9000], ledger=2) == [False, False, True]

    def test_if_everything_in_it_is_acknowledged(self) -> None:
        """6.4.4: (e) its ledgers lie before the mark-delete position of all subscriptions."""
        rig = Rig()
        self.filled(rig)
        rig.oldest_needed = 2
        add_all(self.tracker, [9600, 9700], ledger=3, first=1)
        add_all(self.tracker, [9600], ledger=4)
        assert [bucket.ledgers for bucket in rig.index.buckets] == [(2,), (3,)]
        assert not rig.index.knows(1, 0)

    @pytest.mark.parametrize("sealed", [False, True])
    def test_what_is_still_in_one_is_not_taken_in_again_by_a_seek(self, sealed: bool) -> None:
        """6.4.1.2 (I6.3, I6.5): a bucket that reaches beyond the mark-delete position goes on giving all of it."""
        rig = Rig()
        tracker = rig.tracker()
        add_all(tracker, [9100, 9200, 9300], ledger=1)
        add_all(tracker, [9400], ledger=2)
        add_all(tracker, [9500, 9600], ledger=3)
        rig.oldest_needed = 3
        if sealed:
            add_all(tracker, [9700], ledger=4)
        else:
            rig.index.trim(3)
        tracker.close()
        rig.oldest_needed = 1
        again = rig.tracker()
        add_all(again, [9100, 9200, 9300], ledger=1)
        add_all(again, [9400], ledger=2)
        add_all(again, [9500, 9600], ledger=3)
        add_all(again, [9700], ledger=4)
        assert again.delayed_entries == 7
        rig.clock.advance(10_000)
        assert all_due(again) == [*positions(1, 0, 1, 2), Position(2, 0), *positions(3, 0, 1), Position(4, 0)]
        assert again.delayed_entries == 0

    def test_clear_deletes_everything(self) -> None:
        """6.4.7: also what was being written."""
        rig = Rig()
        self.filled(rig)
        rig.index.clear()
        assert self.numbers(rig) == []
        assert rig.disk.list_dir(layout.delayed_dir("/data")) == []

    def test_files_that_nobody_refers_to_go_at_the_next_start(self) -> None:
        """6.4.4 (I6.7): of a deleted topic, and halves of a file."""
        rig = Rig()
        self.filled(rig)
        rig.settle()
        rig.disk.open(f"{layout.delayed_dir('/data')}/9-9.bucket", create=True).close()
        rig.disk.open(f"{layout.delayed_dir('/data')}/9-8.bucket.new", create=True).close()
        rig.disk.sync_dir(layout.delayed_dir("/data"))
        rig.crash(policy="all")
        rig.settle()
        assert all(not name.startswith("9-") for name in rig.disk.list_dir(layout.delayed_dir("/data")))
        assert len(self.numbers(rig)) == 2


class TestMerge:
    def test_neighbours_with_the_least_become_one(self) -> None:
        """6.4.5 (I6.8): four at once, nothing lost, nothing twice."""
        rig = Rig(buckets_max=4)
        tracker = rig.tracker()
        sizes = [5, 3, 3, 3, 3, 5]
        expected = []
        for ledger, size in enumerate(sizes, start=1):
            times = [1000 + ledger + 10 * entry for entry in range(size)]
            expected += [(time, ledger, entry) for entry, time in enumerate(times)]
            assert all(add_all(tracker, times, ledger=ledger))
            rig.settle()
        add_all(tracker, [5000], ledger=9)
        rig.settle()
        assert [bucket.ledgers for bucket in rig.index.buckets] == [(1,), (2, 3, 4, 5), (6,)]
        assert len(rig.store.buckets.numbers(rig.topic_id)) == 3
        assert tracker.delayed_entries == sum(sizes) + 1
        rig.clock.advance(2000)
        assert all_due(tracker) == [Position(ledger, entry) for _, ledger, entry in sorted(expected)]

    def test_what_was_given_is_left_out(self) -> None:
        """6.4.5 (I6.8): the new bucket holds the union of what is left, and who has passed it goes on behind that."""
        rig = Rig(min_index_count=2, buckets_max=2)
        tracker = rig.tracker()
        add_all(tracker, [100, 5000], ledger=1)
        add_all(tracker, [110, 5100], ledger=2)
        rig.clock.advance(105)
        assert all_due(tracker) == [Position(1, 0)]
        rig.settle()
        add_all(tracker, [200, 5200], ledger=3)
        rig.settle()
        add_all(tracker, [6000], ledger=4)
        rig.settle()
        assert [(bucket.ledgers, bucket.total) for bucket in rig.index.buckets] == [((1, 2, 3), 5)]
        rig.clock.advance(5500)
        assert all_due(tracker) == [Position(2, 0), Position(3, 0), Position(1, 1), Position(2, 1), Position(3, 1)]

    def test_too_many_that_a_start_finds_become_fewer(self) -> None:
        """6.4.5 (I6.7): as after a crash before the merge was durable, though nothing new is sealed."""
        rig = Rig(min_index_count=2)
        tracker = rig.tracker()
        for ledger in range(1, 6):
            add_all(tracker, [1000 + ledger, 2000 + ledger], ledger=ledger)
        rig.settle()
        assert len(rig.index.buckets) == 4
        rig.limits = replace(rig.limits, buckets_max=1)
        rig.crash(policy="all")
        again = rig.tracker()
        rig.settle()
        assert [bucket.ledgers for bucket in rig.index.buckets] == [(1, 2, 3, 4)]
        rig.clock.advance(10_000)
        assert len(all_due(again)) == 8

    def test_a_merge_that_came_too_late_is_followed_by_another(self) -> None:
        """6.4.5: one of its buckets was deleted meanwhile, and there are still too many."""
        rig = Rig(min_index_count=2, buckets_max=2)
        tracker = rig.tracker()
        for ledger in range(1, 8):
            add_all(tracker, [1000 + ledger, 2000 + ledger], ledger=ledger)
        written = rig.store.commits.take()
        assert written is not None
        written.run()
        rig.store.commits.finish(written, None)
        assert [bucket.ledgers for bucket in rig.index.buckets] == [(each,) for each in range(1, 7)]
        rig.oldest_needed = 2
        rig.index.trim(2)
        rig.settle()
        assert len(rig.index.buckets) <= 2
        rig.clock.advance(10_000)
        assert len([each for each in all_due(tracker) if each.ledger > 1]) == 12

    @pytest.mark.parametrize("seed", range(8))
    def test_a_crash_in_the_middle_leaves_either_or_both(self, seed: int) -> None:
        """6.4.5 (I6.5, I6.7): both hold the same; one of them is used."""
        rig = Rig(min_index_count=2, buckets_max=1)
        tracker = rig.tracker()
        for ledger in range(1, 5):
            add_all(tracker, [1000 + ledger, 2000 + ledger], ledger=ledger)
        commits = rig.store.commits
        for _ in range(seed % 4):
            job = commits.take()
            if job is not None:
                job.run()
                commits.finish(job, None)
        rig.crash(seed, "random")
        rig.settle()
        again = rig.tracker()
        for ledger in range(1, 5):
            assert add_all(again, [1000 + ledger, 2000 + ledger], ledger=ledger) == [True, True]
        assert again.delayed_entries == 8
        rig.clock.advance(10_000)
        assert len(all_due(again)) == 8


class TestRecovery:
    def filled(self, rig: Rig, ledgers: int = 4) -> None:
        tracker = rig.tracker()
        for ledger in range(1, ledgers + 1):
            add_all(tracker, [1000 + ledger, 3000, 2000 + ledger], ledger=ledger)
            rig.index.note_seen(ledger, 0, 4)
        rig.settle()

    def test_the_first_is_given_before_anything_was_read_again(self) -> None:
        """6.4.6 (I6.7): what is in a bucket is not waited for until the log has been read up to it."""
        rig = Rig()
        self.filled(rig)
        rig.crash()
        tracker = rig.tracker()
        assert tracker.delayed_entries == 9
        rig.clock.advance(1002)
        assert all_due(tracker, Position(1, 0)) == positions(1, 0) + positions(2, 0)

    def test_what_was_given_so_is_not_sent_again_when_it_is_read(self) -> None:
        """6.4.6, 6.4.1.6 (I6.5): the read that comes later finds it in the hands of the index."""
        rig = Rig()
        self.filled(rig)
        rig.crash()
        tracker = rig.tracker()
        rig.clock.advance(1500)
        assert len(all_due(tracker, Position(1, 0))) == 3
        assert add_all(tracker, [1001, 3000, 2001], ledger=1) == [True] * 3
        rig.clock.advance(3000)
        assert len(all_due(tracker)) == 6

    def test_ledgers_that_are_held_back_whole_are_not_read(self) -> None:
        """6.4.6: reading jumps over entries that a bucket has, and stops at any other."""
        rig = Rig()
        self.filled(rig)
        rig.crash()
        tracker = rig.tracker()
        assert tracker.skip_held(Position(1, 0)) == Position(1, 3)
        assert tracker.skip_held(Position(1, 3)) == Position(1, 3)
        assert tracker.skip_held(Position(4, 0)) == Position(4, 0)

    def test_the_mutable_bucket_is_read_again(self) -> None:
        """6.4.6: its loss does no harm."""
        rig = Rig()
        self.filled(rig)
        rig.crash()
        tracker = rig.tracker()
        assert not rig.index.knows(4, 0)
        assert add_all(tracker, [1004, 3000, 2004], ledger=4) == [True] * 3
        rig.clock.advance(5000)
        assert len(all_due(tracker)) == 12

    def test_reading_waits_until_recovery_is_over(self) -> None:
        """6.4.6 (decision): it goes on in the background, so a topic is there at once, and reading is gated."""
        rig = Rig()
        self.filled(rig, ledgers=40)
        rig.crash()
        woken: list[bool] = []
        tracker = rig.tracker()
        tracker.start(lambda: woken.append(tracker.paused))
        assert tracker.paused
        assert tracker.take_due(10, END) == []
        rig.clock.run_due()
        assert woken == [False]
        assert tracker.delayed_entries == 39 * 3

    def test_what_waits_to_be_sent_again_is_held_during_recovery_too(self) -> None:
        """6.1.9: delays may be switched on for a dispatcher that runs, and that has sent what is not due yet."""
        rig = Rig()
        self.filled(rig, ledgers=40)
        rig.crash()
        tracker = rig.tracker()
        sent = Position(41, 0)
        assert tracker.add_again(sent, BASE_MS + 500)
        rig.clock.run_due()
        assert tracker.delayed_entries == 39 * 3 + 1
        rig.clock.advance(5000)
        assert sent in all_due(tracker)
        assert tracker.delayed_entries == 0

    def test_a_clock_set_back_before_the_restart_loses_nothing(self) -> None:
        """6.4.6 (I6.5): what had been given before the bucket was written is in no bucket, and is not taken for it."""
        rig = Rig(min_index_count=2)
        tracker = rig.tracker()
        add_all(tracker, [100, 5000, 6000], ledger=1)
        rig.index.note_seen(1, 0, 3)
        rig.clock.advance(200)
        assert all_due(tracker) == [Position(1, 0)]
        add_all(tracker, [7000], ledger=2)
        rig.settle()
        rig.crash()
        rig.clock.step_wall_clock(-150)
        again = rig.tracker()
        assert add_all(again, [100, 5000, 6000], ledger=1) == [True] * 3
        rig.clock.advance(100)
        assert all_due(again) == [Position(1, 0)]

    def test_a_damaged_bucket_is_given_up(self) -> None:
        """6.4.6 (I6.7): its messages are read again, those of the others are not."""
        rig = Rig()
        self.filled(rig)
        path = f"{layout.delayed_dir('/data')}/{layout.bucket_name(rig.topic_id, rig.index.buckets[1].number)}"
        file = rig.disk.open(path)
        file.write(file.size() - 20, [b"????"])
        file.sync()
        rig.crash(policy="all")
        tracker = rig.tracker()
        assert tracker.delayed_entries == 6
        assert not rig.index.knows(2, 0)
        assert add_all(tracker, [1002, 3000, 2002], ledger=2) == [True] * 3
        rig.clock.advance(5000)
        assert len(all_due(tracker)) == 9

    def test_one_that_a_trim_finds_damaged_is_made_again(self) -> None:
        """6.4.4, 6.4.6 (I6.5): which fills the mutable bucket, and sealing that would trim once more."""
        rig = RigWithLog()
        tracker = rig.tracker()
        add_all(tracker, [5000, 5001], ledger=1)
        add_all(tracker, [5002], ledger=9)
        add_all(tracker, [5003, 5004], ledger=10)
        rig.settle()
        assert [bucket.ledgers for bucket in rig.index.buckets] == [(1, 9)]
        path = f"{layout.delayed_dir('/data')}/{layout.bucket_name(rig.topic_id, rig.index.buckets[0].number)}"
        file = rig.disk.open(path)
        file.write(64, [b"?" * (file.size() - 64 - 96)])
        rig.oldest_needed = 11
        rig.index.trim(7)
        rig.clock.advance(6000)
        assert sorted(all_due(tracker)) == [*positions(1, 0, 1), *positions(9, 0), *positions(10, 0, 1)]


class TestSharing:
    def test_each_subscription_gets_what_its_own_index_would_give(self) -> None:
        """6.5 (I6.11): whoever reads first fills the index; all get everything, at their own pace."""
        rig = Rig()
        fast, slow = rig.tracker(), rig.tracker()
        times = [random.Random(7).randrange(100, 3000) for _ in range(40)]
        for ledger in range(1, 11):
            add_all(fast, times[(ledger - 1) * 4 : ledger * 4], ledger=ledger)
        rig.settle()
        rig.clock.advance(1000)
        early = all_due(fast)
        assert all_due(slow, Position(1, 0)) == [], "it will be read, and is due then"
        for ledger in range(1, 11):
            part = times[(ledger - 1) * 4 : ledger * 4]
            sent = [not held for held in add_all(slow, part, ledger=ledger)]
            assert sent == [time <= 1000 for time in part]
        rig.clock.advance(5000)
        assert all_due(fast) == all_due(slow)
        assert len(early) == sum(time <= 1000 for time in times)
        assert fast.delayed_entries == slow.delayed_entries == 0

    def test_a_bucket_stays_until_all_have_passed_it(self) -> None:
        """6.5, 6.4.4 (I6.11): then it goes."""
        rig = Rig()
        fast, slow = rig.tracker(), rig.tracker()
        for tracker in (fast, slow):
            add_all(tracker, [100, 200, 300], ledger=1)
            add_all(tracker, [900], ledger=2)
        rig.clock.advance(500)
        all_due(fast)
        assert len(rig.index.buckets) == 1
        assert len(all_due(slow)) == 3
        assert rig.index.buckets == []

    def test_a_subscription_costs_no_memory_for_what_is_in_buckets(self) -> None:
        """6.5 (I6.9, I6.11): it holds a cursor for each bucket, not what is in it."""
        rig = Rig(min_index_count=1000, step_ms=1000, indexes_max=100)
        first = rig.tracker()
        for ledger in range(1, 4):
            add_all(first, range(1, 1001), ledger=ledger)
        second = rig.tracker()
        assert len(second._cursors) == 2
        assert not any(cursor.loaded for _key, _number, cursor in second._cursors)
        assert second.delayed_entries == 3000

    def test_the_histogram_tells_what_is_due_when(self) -> None:
        """6.2.4: for the whole topic, in steps of time, whatever is in memory or on disk."""
        rig = Rig()
        tracker = rig.tracker()
        add_all(tracker, [1000, 1100, 12_000], ledger=1)
        add_all(tracker, [1200, 25_000], ledger=2)
        found = rig.index.histogram(BASE_MS, 10_000)
        assert {start - BASE_MS: count for start, count in found.items()} == {0: 3, 10_000: 1, 20_000: 1}


class TestCursor:
    @pytest.mark.parametrize("after", [-1, 0, 3, 7, 11])
    def test_it_begins_behind_any_key(self, after: int) -> None:
        """6.4.3.4: also in the middle of a segment, and tells how much lies before it."""
        rig = Rig(min_index_count=12)
        tracker = rig.tracker()
        add_all(tracker, [100, 100, 150, 900, 1500, 1500, 1501, 4000, 4001, 4002, 4003, 9000], ledger=1)
        add_all(tracker, [1], ledger=2)
        bucket = rig.index.buckets[0]
        keys = self.keys(BucketCursor(bucket, -1))
        assert [position_of(key).entry for key in keys] == list(range(12))
        assert keys[-1] == last_key(bucket)
        cursor = BucketCursor(bucket, keys[after] if after >= 0 else -1)
        assert cursor.passed == after + 1
        assert self.keys(cursor) == keys[after + 1 :]
        assert all(time_of(key) >= BASE_MS for key in keys)

    def keys(self, cursor: BucketCursor) -> list[int]:
        found = []
        while cursor.key is not None:
            if cursor.loaded:
                found.append(cursor.pop())
            else:
                cursor.load()
        return found


def test_a_long_row_of_stale_entries_is_not_looked_through_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """6.4.3.2: where it was cut off it goes on in the next turn, unless the dispatcher takes nothing now."""
    monkeypatch.setattr(bucket_tracker, "_STALE_PER_CALL", 3)
    rig = Rig()
    tracker = rig.tracker(Acked(set(positions(1, 0, 1, 2))))
    add_all(tracker, [100] * 4)
    rig.clock.advance(100)
    wakes: list[int] = []
    tracker.start(lambda: wakes.append(1))
    assert tracker.take_due(10, END) == []
    rig.clock.run_due()
    assert len(wakes) == 1
    assert tracker.take_due(10, END) == positions(1, 3)
