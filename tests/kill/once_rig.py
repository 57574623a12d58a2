# SPDX-License-Identifier: Apache-2.0
"""Kills and pauses drivers, workers and brokers at each step of a batch that is written exactly once, and counts rows.

    python -m tests.kill.once_rig [--only BROKER] [--protocol sink|queue|job] [--form process|spark] [--victim VICTIM]
        [--step STEP] [--kills N] [--seed S] [--at-once N] [--lie NAME] [--folder DIR] [--json FILE]

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
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from tests.kill.once_brokers import BROKERS, serving
from tests.kill.once_kafka import KINDS, KafkaPlay, jars, serving_kafka
from tests.kill.once_lies import LIES
from tests.kill.once_play import FORMS, PROTOCOLS, VICTIMS, JobPlay, Kind, Outcome, Place, Play, Victim, steps_of
from tests.kill.once_points import STEPS, WORDS, Step
from tests.kill.once_queue import QueuePlay
from tests.kill.once_sparks import SparkGroup, SparkSession

COUNTS: Final = "plays faults restarts lost duplicated strange hanging"
KAFKA: Final = "kafka"
PLAYS: Final = {"sink": Play, "queue": QueuePlay, "job": JobPlay}
AT_ONCE: Final = {"process": 3, "spark": 5}
"""Plays at a time: much of each is waiting."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Kinds of faults that are asked for, and how many in all on each broker; None: one of each kind."""

    brokers: Sequence[str]
    protocols: Sequence[str]
    forms: Sequence[str]
    victims: Sequence[Victim]
    steps: Sequence[Step]
    kills: int | None
    seed: int

    def kinds(self) -> list[Kind]:
        """The faults on one broker."""
        kinds = [
            Kind(protocol, form, victim, step)
            for protocol in self.protocols
            for form in self.forms
            for victim in self.victims
            for step in steps_of(protocol, victim)
            if step in self.steps and (protocol, form) != ("job", "spark")
        ]
        if self.kills is None:
            return kinds
        random.Random(self.seed).shuffle(kinds)  # A few are of several victims.
        return list(itertools.islice(itertools.cycle(kinds), self.kills))


def run(wanted: Wanted, folder: Path, lie: str, at_once: int | None) -> Iterator[Outcome]:
    """The outcome of each fault, when it is known."""
    dice = random.Random(wanted.seed)
    plays = [(kind, dice.randrange(1_000_000)) for kind in wanted.kinds()]
    for broker in wanted.brokers:
        with serving(broker, folder / broker) as server:
            for form in wanted.forms:
                mine = [(kind, seed) for kind, seed in plays if kind.form == form]
                if mine:
                    place = Place(broker, server, folder / broker / form, lie)
                    yield from _run_form(place, form, mine, at_once or AT_ONCE[form])


def run_kafka(wanted: Wanted, folder: Path) -> Iterator[Outcome]:
    """Outcomes of the faults that Kafka's sink is compared by."""
    dice = random.Random(wanted.seed)
    plays = [(kind, dice.randrange(1_000_000)) for kind in KINDS]
    with serving_kafka() as server, closing(SparkSession(folder / "session", jars())) as session:
        yield from _run_in_sparks(Place(KAFKA, server, folder, session=session), plays, AT_ONCE["spark"])


def _run_form(place: Place, form: str, plays: Sequence[tuple[Kind, int]], at_once: int) -> Iterator[Outcome]:
    if form == "spark":
        with closing(SparkSession(place.folder / "session")) as session:
            yield from _run_in_sparks(replace(place, session=session), plays, at_once)
        return
    alone = [each for each in plays if each[0].victim == "broker"]
    with ThreadPoolExecutor(at_once) as pool:
        yield from pool.map(lambda play: _play(place, *play), [each for each in plays if each not in alone])
    for each in alone:
        yield _play(place, *each)


def _run_in_sparks(place: Place, plays: Sequence[tuple[Kind, int]], at_once: int) -> Iterator[Outcome]:
    """Some plays of one victim at a time, which share the Spark that is killed."""
    for victim in VICTIMS:
        mine = [each for each in plays if each[0].victim == victim]
        size = 1 if victim in ("twice", "broker") else at_once
        for first in range(0, len(mine), size):
            some = mine[first : first + size]
            there = replace(place, group=SparkGroup(len(some)))
            with ThreadPoolExecutor(len(some)) as pool:
                yield from pool.map(lambda play: _play(there, *play), some)  # noqa: B023


def _play(place: Place, kind: Kind, seed: int) -> Outcome:
    return (KafkaPlay if place.broker == KAFKA else PLAYS[kind.protocol])(place, kind, seed).run()


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each kind of fault on each broker."""
    in_order = sorted(outcomes, key=_order)
    groups: dict[tuple[str, ...], list[Outcome]] = {}
    for each in in_order:
        groups.setdefault((each.broker, each.protocol, each.form, each.victim, each.step), []).append(each)
    for each in in_order:
        groups.setdefault((each.broker, each.protocol, each.form, "all", ""), []).append(each)
    lines = [_line(("broker", "protocol", "form", "victim", "step"), COUNTS)]
    return lines + [_line(group, _sums(found)) for group, found in groups.items()]


def _line(group: Sequence[str], counts: str) -> str:
    return " ".join(f"{word:<{width}}" for word, width in zip(group, (9, 8, 7, 6, 10), strict=True)) + f" {counts}"


def _order(outcome: Outcome) -> tuple[object, ...]:
    victims, steps = list[str](VICTIMS), list[str](STEPS)
    return outcome.broker, outcome.protocol, outcome.form, victims.index(outcome.victim), steps.index(outcome.step)


def _sums(found: Sequence[Outcome]) -> str:
    seen = [each.seen for each in found]
    faults, restarts = sum(each.faults for each in found), sum(each.restarts for each in found)
    lost, duplicated = sum(each.lost for each in seen), sum(each.duplicated for each in seen)
    strange, hanging = sum(each.strange for each in seen), sum(1 for each in seen if each.hanging)
    verdict = "" if all(each.holds for each in seen) else "  NOT ONCE"
    return f"{len(found):>5} {faults:>6} {restarts:>8} {lost:>4} {duplicated:>10} {strange:>7} {hanging:>7}{verdict}"


def _say(outcome: Outcome) -> None:
    """Progress, beside the table on stdout."""
    kind = f"{outcome.broker} {outcome.protocol} {outcome.form}, {outcome.victim}: {WORDS[outcome.step]}"
    verdict = "once" if outcome.holds else f"NOT ONCE: {outcome.seen}"
    sys.stderr.write(f"{kind}, seed {outcome.seed}, {outcome.seconds:.1f} s: {verdict}\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kill.once_rig", description="Kill what writes exactly once, and count rows."
    )
    parser.add_argument("--only", choices=(*BROKERS, KAFKA), help="kafka: Spark's own sink, which has rows twice")
    parser.add_argument(
        "--protocol", choices=PROTOCOLS, help="the sink of streams, a queue into it in one decision, or a batch write"
    )
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
        PROTOCOLS if asked.protocol is None else (asked.protocol,),
        FORMS if asked.form is None else (asked.form,),
        VICTIMS if asked.victim is None else (asked.victim,),
        STEPS if asked.step is None else (asked.step,),
        asked.kills,
        asked.seed,
    )
    folder: Path = (asked.folder or Path(tempfile.mkdtemp(prefix="once-rig-"))).resolve()
    sys.stderr.write(f"seed {asked.seed}, folder {folder}\n")
    outcomes: list[Outcome] = []
    is_kafka = asked.only == KAFKA
    for found in run_kafka(wanted, folder) if is_kafka else run(wanted, folder, asked.lie, asked.at_once):
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
