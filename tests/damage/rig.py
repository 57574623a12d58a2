# SPDX-License-Identifier: Apache-2.0
"""Damages of data directories for as long as wanted: ``python -m tests.damage.rig [--damages N] [--seed S]``.

Each history (a random life of a broker, ended by a kill, a clean stop or a power loss) is damaged many times, each time
afresh. Nine in ten live on the simulated disk; the tenth are real processes on the real disk, killed with SIGKILL.
Prints what became of the damages; exit code 1 if one was silent.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Iterable
from typing import Final

from tests.damage.damages import Damage, damage
from tests.damage.histories import History, JudgementError, make_history
from tests.damage.judging import Tally, judge
from tests.damage.killed_brokers import make_real_history

DAMAGES_PER_HISTORY: Final = 50
REAL_EVERY: Final = 10
_PROGRESS_S: Final = 10.0


def run_history(seed: int, damages: int = DAMAGES_PER_HISTORY) -> Tally:
    """Damage one history; the same seed does the same."""
    tally = Tally()
    try:
        history = make_real_history(seed) if seed % REAL_EVERY == REAL_EVERY - 1 else make_history(seed)
    except JudgementError as error:
        tally.failures.append(f"history {seed}: {error}")
        return tally
    if judged := undamaged(history):
        tally.failures.append(f"history {seed}: {judged}")
        return tally
    for number in range(damages):
        chance = random.Random(f"{seed}/{number}")
        done = damage(history, chance)
        how = f"history {seed} damage {number} after a {history.end}: {done}"
        try:
            tally.add(judge(history, done, skip=chance.random() < 0.3))
            tally.kinds[done.kind.partition(" ")[0]] += 1
            tally.places[_place(done.paths[0])] += 1
            tally.ends[("real, " if history.real else "simulated, ") + history.end] += 1
        except JudgementError as error:
            tally.failures.append(f"{how}: {error}")
        except Exception as error:  # noqa: BLE001 - whatever a damage makes the broker do is a finding
            tally.failures.append(f"{how}: {type(error).__name__}: {error}")
    return tally


def undamaged(history: History) -> str:
    """What is wrong with a history that was not damaged at all; nothing, of course."""
    try:
        verdict = judge(history, Damage("leave alone", (), history.files), skip=False)
    except JudgementError as error:
        return str(error)
    return "" if verdict.outcome == "no effect" else f"undamaged, and yet: {verdict.outcome}"


def _place(path: str) -> str:
    folder = path.rpartition("/")[0]
    return path if folder == "/data" else folder


def main() -> int:
    """0 if every damage was without effect or told."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--damages", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    begun = time.monotonic()
    histories = -(-options.damages // DAMAGES_PER_HISTORY)
    seeds = range(options.seed * 1_000_000, options.seed * 1_000_000 + histories)
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        total = _collect(pool.imap_unordered(run_history, seeds), begun)
    _print(total, time.monotonic() - begun)
    return 1 if total.failures else 0


def _collect(tallies: Iterable[Tally], begun: float) -> Tally:
    total = Tally()
    shown = begun
    for tally in tallies:
        total.merge(tally)
        for failure in tally.failures:
            sys.stderr.write(f"{failure}\n")
        if time.monotonic() - shown > _PROGRESS_S:
            shown = time.monotonic()
            sys.stderr.write(f"  {total.damages:,} damages, {len(total.failures)} failures\n")
    return total


def _print(total: Tally, seconds: float) -> None:
    lines = [f"{total.damages:,} damages in {seconds:,.0f} s: {len(total.failures)} silent, wrong or destroying"]
    for title, counts in (
        ("became", total.outcomes),
        ("kinds", total.kinds),
        ("files", total.places),
        ("after", total.ends),
    ):
        lines += [f"  {title:7} {count:6,}  {name}" for name, count in counts.most_common()]
    lines.append(f"  {total.lost_entries:,} entries and {total.forgotten:,} acknowledgements lost, every one told")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
