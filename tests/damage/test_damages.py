# SPDX-License-Identifier: Apache-2.0
"""A slice of the damage rig, whether it notices, and the damages that nobody was told of before there was one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from broker_core.storage import ledger_cleanup
from broker_core.storage.catalogue import file
from broker_core.storage.mark_copies import MarkCopies
from broker_core.storage.quarantine import Quarantine
from broker_core.storage.records import TAG_CHANGE
from broker_core.storage.report import RecoveryReport
from tests.damage.damages import Damage
from tests.damage.delays import judge_delays
from tests.damage.histories import History, contents, make_history
from tests.damage.judging import judge
from tests.damage.rig import run_history, undamaged

SEED = 92
CATALOGUE = "/data/catalogue"


def killed() -> History:
    """A history that ended by a kill, with some ledgers open and some changes behind the snapshot of the catalogue."""
    seeds = (make_history(seed) for seed in count(SEED))
    return next(
        each for each in seeds
        if each.end == "kill" and each.files[CATALOGUE].count(TAG_CHANGE) > 5 and len(open_ledgers(each)) > 1
    )  # fmt: skip


def damaged(history: History, kind: str, path: str, change: Callable[[bytes], bytes]) -> Damage:
    return Damage(kind, (path,), {**history.files, path: change(history.files[path])})


def flipped(at: int) -> Callable[[bytes], bytes]:
    """What flips a bit at an offset, counted from the end if it is negative."""

    def flip(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[at] ^= 4
        return bytes(changed)

    return flip


def open_ledgers(history: History) -> list[str]:
    """Ledgers with entries and without a footer."""
    return [
        path for path, data in sorted(history.files.items())
        if path.startswith("/data/ledgers/") and b"\xf5F\x9c\xd3" not in data and len(data) > 200
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(SEED, SEED + 4))
def test_every_damage_is_without_effect_or_told(seed: int) -> None:
    """Reliability rows 5 to 7, 9: the slice of ``make damage`` that belongs to the suite."""
    tally = run_history(seed, 25)
    assert tally.failures == []
    assert tally.damages == 25


@pytest.mark.parametrize("path", [CATALOGUE, f"{CATALOGUE}.copy"])
@pytest.mark.parametrize("place", [-1, -500, 5000, 40, 10])
def test_a_catalogue_that_is_damaged_in_one_file_loses_nothing(path: str, place: int) -> None:
    """Reliability row 9: a record or the snapshot; it is in the other file too, and that is said."""
    history = killed()
    verdict = judge(history, damaged(history, "flip", path, flipped(place)), skip=False)
    assert verdict.outcome == "mended or noted" or (place < 0 and path != CATALOGUE)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.99])
def test_a_catalogue_that_was_cut_off_loses_nothing(share: float) -> None:
    """Reliability row 9: no ledger file is taken for the leftover of a creation, no cursor log for an unknown one."""
    history = killed()
    cut = damaged(history, "cut", CATALOGUE, lambda data: data[: int(len(data) * share)])
    assert judge(history, cut, skip=False).outcome == "mended or noted"


@pytest.mark.parametrize("part", [0.0, 0.5])
def test_an_open_ledger_that_was_cut_tells_which_entries_are_lost(part: float) -> None:
    """Reliability row 7: its marks are gone with its end, and a copy of the newest lies elsewhere."""
    history = killed()
    for path in open_ledgers(history):
        cut = damaged(history, "cut", path, lambda data: data[: int(len(data) * part)])
        assert judge(history, cut, skip=False).outcome == "entries lost, told"


def test_two_open_ledgers_that_were_swapped_are_left_as_they_are() -> None:
    """Reliability row 6: neither is cut as a torn tail, and swapping them back restores everything."""
    history = killed()
    one, other = open_ledgers(history)[:2]
    files = {**history.files, one: history.files[other], other: history.files[one]}
    disk = history.disk(files)
    assert judge(history, Damage("swap", (one, other), files), skip=False).outcome == "entries lost, told"
    assert judge(history, Damage("swap back", (), history.files), skip=False).outcome == "no effect"
    assert contents(disk) == files


def test_cursor_logs_that_are_flipped_cut_or_gone_are_told() -> None:
    """Reliability row 5: acknowledgements may be forgotten, then messages come again; never without a word."""
    history = killed()
    path = max(each for each in history.files if each.startswith("/data/cursors/"))
    files = {each: data for each, data in history.files.items() if each != path}
    outcomes = [
        judge(history, damaged(history, "flip", path, flipped(100)), skip=False).outcome,
        judge(history, damaged(history, "cut", path, lambda data: data[: len(data) // 3]), skip=False).outcome,
        judge(history, Damage("delete", (path,), files), skip=False).outcome,
    ]
    assert "no effect" not in outcomes
    assert "acknowledgements lost, told" in outcomes


def test_no_bucket_that_is_lost_keeps_a_delayed_message_back() -> None:
    """6.4.6 (I6.5): a bucket knows what was looked at when it was made, also what lies in another one: if that is gone
    the entry must be read again."""
    for history in map(make_history, range(SEED, SEED + 3)):
        buckets = [path for path in history.files if path.startswith("/data/delayed/")]
        assert buckets
        for path in buckets:
            files = {each: data for each, data in history.files.items() if each != path}
            judge_delays(history, Damage("delete", (path,), files))


def test_views_that_are_flipped_cut_or_gone_are_told() -> None:
    """Reliability row 5, 7.4.11: what only the view has is lost to its readers; those of the log go on."""
    for history in map(make_history, range(SEED, SEED + 3)):
        views = [path for path in history.files if path.startswith("/data/compacted/")]
        assert views
        for path in views:
            files = {each: data for each, data in history.files.items() if each != path}
            for done in (
                damaged(history, "flip", path, flipped(60)),
                damaged(history, "flip", path, flipped(-30)),
                damaged(history, "cut", path, lambda data: data[: len(data) // 2]),
                Damage("delete", (path,), files),
            ):
                assert judge(history, done, skip=False).outcome == "views lost, told"


def _nothing(*_args: object, **_rest: object) -> None:
    """A part of the broker that does not work."""


def _without_copy(patch: pytest.MonkeyPatch) -> None:
    read = file._read
    patch.setattr(file, "_read", lambda disk, path: read(disk, path.removesuffix(".copy")))


def _removing_what_is_half_made(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger_cleanup, "_was_synced", _nothing)
    _without_copy(patch)


BREAKS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "copies of marks are not looked at": lambda patch: patch.setattr(MarkCopies, "find", _nothing),
    "the copy of the catalogue is not looked at": _without_copy,
    "checksums of the catalogue are not looked at": lambda patch: patch.setattr(file, "body_holds", lambda *_: True),
    "damage of views is not told": lambda patch: patch.setattr(Quarantine, "note_found", _nothing),
    "damage is not told": lambda patch: patch.setattr(RecoveryReport, "note", _nothing),
    "half made ledgers are removed whatever is in them": _removing_what_is_half_made,
}


@pytest.mark.parametrize("broken", BREAKS)
def test_the_rig_notices_when_the_broker_is_broken(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever breaks the telling or the comparing by hand hears of it within some hundred damages."""
    BREAKS[broken](monkeypatch)
    for seed in range(SEED, SEED + 12):
        if run_history(seed, 50).failures:
            return
    pytest.fail("the rig is content with a broken broker")


def test_a_history_that_was_not_damaged_is_served_without_a_word() -> None:
    """A kill or a stop is no damage: nothing is told where nothing is wrong."""
    assert [undamaged(make_history(seed)) for seed in range(SEED, SEED + 6)] == [""] * 6
