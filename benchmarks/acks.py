# SPDX-License-Identifier: Apache-2.0
"""The cost of acknowledging with random holes: of one ack as the holes grow in number, and of a restart with them.

Half of all entries, chosen at random, are acknowledged in random order, the others never: the worst that consumers of a
Shared subscription can do to a cursor. ``ack`` is the path that a broker takes for it: cursor, one record for each
100 acks, and the store's own group commit on a real disk. ``python -m benchmarks.acks [--quick]`` prints it.
"""

from __future__ import annotations

import random
import tempfile
import time
from array import array
from typing import Any, Final

from benchmarks.parts import quick_wanted
from broker_core.base.clock import SystemClock
from broker_core.base.positions import Position
from broker_core.base.settings import DEFAULT_SETTINGS
from broker_core.broker.cursors.cursor import Cursor
from broker_core.storage.cursor_state import encode_state
from broker_core.storage.disk import RealDisk
from broker_core.storage.store import Store

Result = dict[str, Any]

ACKS_A_RECORD: Final = 100
"""Individual acks in one command of a client that groups them, or in one turn of a busy broker's loop."""

ENTRIES_A_LEDGER: Final = 50_000
"""The default of ``managedLedgerMaxEntriesPerLedger``."""

TIMED_ACKS: Final = 20_000
"""Acks of one timed stretch, the last ones before the holes are as many as the case says."""


class _Geometry:
    """Ledgers 1, 2, 3 ... with ENTRIES_A_LEDGER entries each."""

    def __init__(self, entries: int) -> None:
        self._entries = entries

    def position(self, number: int) -> Position:
        return Position(number // ENTRIES_A_LEDGER + 1, number % ENTRIES_A_LEDGER)

    @property
    def last_confirmed(self) -> Position:
        return self.position(self._entries - 1)

    def next_valid(self, position: Position) -> Position:
        ledger, entry = position
        return Position(ledger, entry + 1) if entry + 1 < ENTRIES_A_LEDGER else Position(ledger + 1, 0)

    def previous(self, position: Position) -> Position:
        ledger, entry = position
        return Position(ledger, entry - 1) if entry else Position(ledger - 1, ENTRIES_A_LEDGER - 1)

    def count_entries(self, lower_exclusive: Position, upper_inclusive: Position) -> int:
        return self._number(upper_inclusive) - self._number(lower_exclusive)

    def _number(self, position: Position) -> int:
        return (position.ledger - 1) * ENTRIES_A_LEDGER + position.entry


def _ignore(error: object) -> None:
    if error is not None:
        raise AssertionError(error)


def _acknowledge(cursor: Cursor, store: Store, cursor_id: int, positions: list[Position]) -> None:
    for start in range(0, len(positions), ACKS_A_RECORD):
        for position in positions[start : start + ACKS_A_RECORD]:
            cursor.ack(position)
        cursor.settle()
        change = cursor.drain_change()
        if change is not None:
            store.cursors.record(cursor_id, change, _ignore)
        store.commits.commit_now()


def _holes(entries: int, seed: int) -> array[int]:
    """Numbers of the entries that are acknowledged, in random order; the very first never is."""
    chance = random.Random(seed)
    numbers = array("Q", range(1, entries))
    chance.shuffle(numbers)
    return numbers[: entries // 2]


def _one_size(entries: int, seed: int) -> dict[str, float]:
    """Acknowledge half of ``entries`` and restart."""
    geometry = _Geometry(entries)
    numbers = _holes(entries, seed)
    timed = [geometry.position(number) for number in numbers[-TIMED_ACKS:]]
    with tempfile.TemporaryDirectory(prefix="ack-bench-") as directory:
        store = Store.open(RealDisk(), f"{directory}/data", SystemClock(), DEFAULT_SETTINGS)
        cursor_id = store.catalogue.subscriptions.create(1, "s", Position(1, -1), 1).id
        cursor = Cursor(geometry, Position(1, -1))
        store.cursors.attach(cursor_id, cursor.state)
        for number in numbers[:-TIMED_ACKS]:
            cursor.ack(geometry.position(number))
        cursor.drain_change()
        begun, cpu = time.perf_counter(), time.process_time()
        _acknowledge(cursor, store, cursor_id, timed)
        took, cpu = time.perf_counter() - begun, time.process_time() - cpu
        begun = time.perf_counter()
        size = len(encode_state(cursor.state()))
        encoded = time.perf_counter() - begun
        begun = time.perf_counter()
        store.cursors.compact()
        store.commits.commit_now()
        persisted = time.perf_counter() - begun
        store.close()
        begun = time.perf_counter()
        again = Store.open(RealDisk(), f"{directory}/data", SystemClock(), DEFAULT_SETTINGS)
        state = again.cursors.recover(cursor_id)
        recovered = time.perf_counter() - begun
        again.close()
    if state is None or sum(map(len, state.deleted.values())) != len(cursor.deleted):
        raise AssertionError("acknowledgements were lost")
    return {
        "ack_us": took / len(timed) * 1e6,
        "cpu_s": cpu,
        "bytes": size,
        "encode_ms": encoded * 1e3,
        "persist_ms": persisted * 1e3,
        "recover_ms": recovered * 1e3,
    }


def run(*, quick: bool) -> list[Result]:
    """Figures as ``benchmarks.report`` takes them."""
    results: list[Result] = []
    for entries in (100_000, 1_000_000) if quick else (100_000, 1_000_000, 10_000_000):
        runs = [_one_size(entries, seed) for seed in range(1 if quick else 3)]
        name = f"{entries:,} entries, every second one acknowledged"
        cpu = [one["cpu_s"] for one in runs]
        note = f"with fdatasync after each {ACKS_A_RECORD} acks; CPU of {TIMED_ACKS:,} acks"
        results.append(_result(f"ack, {name}", "us", [one["ack_us"] for one in runs], cpu, note))
        size = runs[0]["bytes"] / 1024
        for what, note in (
            ("encode", f"{size:,.0f} KiB, all of the cursor"),
            ("persist", "compaction of the cursor log, synced"),
            ("recover", "opening the store, cursor included"),
        ):
            results.append(_result(f"cursor {what}, {name}", "ms", [one[f"{what}_ms"] for one in runs], [], note))
    return results


def _result(case: str, unit: str, values: list[float], cpu: list[float], note: str) -> Result:
    return {"case": case, "unit": unit, "values": values, "cpu_s": cpu, "note": note}


def main() -> None:
    """Print the table: smallest and largest value of each case."""
    for result in run(quick=quick_wanted(__doc__)):
        values = result["values"]
        print(f"{result['case']:<65} {min(values):>9.2f} .. {max(values):<9.2f} {result['unit']:<3} {result['note']}")


if __name__ == "__main__":
    main()
