# SPDX-License-Identifier: Apache-2.0
"""Kills and pauses drivers, workers and brokers at each step of a batch that is written exactly once, and counts rows.

    python -m tests.kill.once_rig [--only BROKER] [--form process|spark] [--victim VICTIM] [--step STEP] [--kills N]
        [--seed S] [--at-once N] [--lie NAME] [--folder DIR] [--json FILE]

Each fault has a stream of its own (``once_play``), some at once; those of brokers come one after the other. Without
``--kills`` there is one of each kind. ``--lie`` gives the sink a bug (``once_lies``), which must be found. Exit code 0:
a read-committed consumer saw each row once, and nothing was left open.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.kill.once_brokers import BROKERS, serving
from tests.kill.once_drivers import SparkSession
from tests.kill.once_lies import LIES
from tests.kill.once_play import FORMS, STEPS_OF, VICTIMS, Kind, Outcome, Place, Play, Victim
from tests.kill.once_points import STEPS, WORDS, Step

AT_ONCE: Final = {"process": 3, "spark": 2}
"""Plays at a time: much of each is waiting."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which kinds of faults, and how many in all on each broker; None: one of each kind."""

    brokers: Sequence[str]
    forms: Sequence[str]
    victims: Sequence[Victim]
    steps: Sequence[Step]
    kills: int | None
    seed: int

    def kinds(self) -> list[Kind]:
        """The faults on one broker."""
        kinds = [
            Kind(form, victim, step)
            for form in self.forms
            for victim in self.victims
            for step in STEPS_OF[victim]
            if step in self.steps
        ]
        if self.kills is None:
            return kinds
        random.Random(self.seed).shuffle(kinds)  # A few are of several victims.
        return list(itertools.islice(itertools.cycle(kinds), self.kills))


def run(wanted: Wanted, folder: Path, lie: str, at_once: int | None) -> Iterator[Outcome]:
    """What came of each fault, when it is known."""
    dice = random.Random(wanted.seed)
    plays = [(kind, dice.randrange(1_000_000)) for kind in wanted.kinds()]
    for broker in wanted.brokers:
        with serving(broker, folder / broker) as server:
            for form in wanted.forms:
                mine = [(kind, seed) for kind, seed in plays if kind.form == form]
                if mine:
                    place = Place(broker, server, folder / broker / form, lie)
                    yield from _run_form(place, form, mine, at_once or AT_ONCE[form])


def _run_form(place: Place, form: str, plays: Sequence[tuple[Kind, int]], at_once: int) -> Iterator[Outcome]:
    spark = closing(SparkSession(place.folder / "session")) if form == "spark" else nullcontext()
    with spark as session, ThreadPoolExecutor(at_once) as pool:
        there = Place(place.broker, place.server, place.folder, place.lie, session)
        others = [each for each in plays if each[0].victim != "broker"]
        yield from pool.map(lambda play: Play(there, *play).run(), others)
        for kind, seed in plays:
            if kind.victim == "broker":
                yield Play(there, kind, seed).run()


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each kind of fault on each broker."""
    kinds: dict[tuple[str, str, str, str], list[Outcome]] = {}
    for each in sorted(outcomes, key=_order):
        kinds.setdefault((each.broker, each.form, each.victim, each.step), []).append(each)
    lines = [
        f"{'broker':<10} {'form':<8} {'victim':<7} {'step':<11} plays faults restarts lost duplicated strange hanging"
    ]
    for (broker, form, victim, step), found in kinds.items():
        lines.append(f"{broker:<10} {form:<8} {victim:<7} {step:<11} {_sums(found)}")
    for broker, form in sorted({(each.broker, each.form) for each in outcomes}):
        mine = [each for each in outcomes if (each.broker, each.form) == (broker, form)]
        lines.append(f"{broker:<10} {form:<8} {'all':<19} {_sums(mine)}")
    return lines


def _order(outcome: Outcome) -> tuple[object, ...]:
    victims, steps = list[str](VICTIMS), list[str](STEPS)
    return outcome.broker, outcome.form, victims.index(outcome.victim), steps.index(outcome.step)


def _sums(found: Sequence[Outcome]) -> str:
    seen = [each.seen for each in found]
    faults, restarts = sum(each.faults for each in found), sum(each.restarts for each in found)
    lost, duplicated = sum(each.lost for each in seen), sum(each.duplicated for each in seen)
    strange, hanging = sum(each.strange for each in seen), sum(1 for each in seen if each.hanging)
    verdict = "" if all(each.holds for each in seen) else "  NOT ONCE"
    return f"{len(found):>5} {faults:>6} {restarts:>8} {lost:>4} {duplicated:>10} {strange:>7} {hanging:>7}{verdict}"


def _say(outcome: Outcome) -> None:
    """Progress, beside the table on stdout."""
    about = f"{outcome.broker} {outcome.form}, {outcome.victim}: {WORDS[outcome.step]}, seed {outcome.seed}"
    verdict = "once" if outcome.holds else f"NOT ONCE: {outcome.seen}"
    sys.stderr.write(f"{about}, {outcome.seconds:.1f} s: {verdict}\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kill.once_rig", description="Kill what writes exactly once, and count rows."
    )
    parser.add_argument("--only", choices=BROKERS)
    parser.add_argument("--form", choices=FORMS, help="a process that calls the sink as Spark does, or whole Sparks")
    parser.add_argument("--victim", choices=VICTIMS)
    parser.add_argument("--step", choices=STEPS)
    parser.add_argument("--kills", type=int, help="how many on each broker; without it one of each kind")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--at-once", type=int, help="how many at a time")
    parser.add_argument("--lie", choices=LIES, default="", help="a bug, which must be found out")
    parser.add_argument("--folder", type=Path, help="keep everything here")
    parser.add_argument("--json", type=Path, help="where to write the outcomes")
    return parser


def main(arguments: Sequence[str]) -> int:
    """The command; its exit code."""
    asked = _parser().parse_args(arguments)
    wanted = Wanted(
        BROKERS if asked.only is None else (asked.only,),
        FORMS if asked.form is None else (asked.form,),
        VICTIMS if asked.victim is None else (asked.victim,),
        STEPS if asked.step is None else (asked.step,),
        asked.kills,
        asked.seed,
    )
    folder: Path = (asked.folder or Path(tempfile.mkdtemp(prefix="once-rig-"))).resolve()
    sys.stderr.write(f"seed {asked.seed}, folder {folder}\n")
    outcomes: list[Outcome] = []
    for found in run(wanted, folder, asked.lie, asked.at_once):
        outcomes.append(found)
        _say(found)
        if asked.json:
            asked.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=1))
    sys.stdout.write("\n".join(table(outcomes)) + "\n")
    if not all(each.holds for each in outcomes):
        sys.stdout.write(f"everything is kept in {folder}\n")
        return 1
    if not asked.folder:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
