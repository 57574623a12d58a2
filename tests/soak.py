# SPDX-License-Identifier: Apache-2.0
"""All state machines of the tests for as long as wanted: ``python -m tests.soak [--steps N] [--seed S] [--only NAME]``.

Which machine checks which of the invariants that tests cite (after every step, at every delivery, at every start, or
when nothing more happens by itself):

========================================  ==========================================================================
machine                                   invariants
========================================  ==========================================================================
TopicLog, UncachedTopicLog                I1.1, I1.2
Publishers                                I1.1, I1.5, I7.3 and all of WholeBroker
Access                                    epochs and access modes (1.7.4)
Shared                                    I2.1, I2.2, I2.6, I2.7, I3.1, I3.2, I3.7 to I3.9, I4.5, I4.6, I7.1
Failover, Partition, Exclusive            I2.1, I2.3 to I2.5, I2.7, I3.1, I3.2, I3.4, I3.7, I3.9, I7.1
Ring, Split, Classic, OutOfOrder, Sticky  as Shared, and I2.10 to I2.15
WholeBroker                               I2.1 to I2.7, I2.11 to I2.13, I3.1 to I3.4, I3.7 to I3.9, I4.5, I4.6, I7.1
Delays, Merging, InMemory                 I6.1, I6.3, I6.5 to I6.8, I6.10 to I6.12 and all of WholeBroker
Chunks                                    I5.8 and all of WholeBroker
StickyBroker                              I2.10 and all of WholeBroker
Policies                                  I7.1, I7.2 and all of WholeBroker
FullDisk                                  a disk that is nearly full at times (reliability row 11), all of Policies
Readers                                   readers beside them (1.9.2, 3.6.7) and all of WholeBroker
Everything                                all of Delays, Chunks, Policies and Readers at once, and limits that change
BrokerLimit                               the limit of the whole broker (2.4.12) and all of WholeBroker
PendingAcks                               acknowledgements in transactions: T9 to T11, T14, T18, and all of WholeBroker
Transaction                               T1 to T8, T12, T13, T15 to T17, T19, T20, with power loss at any change of the
                                          disk: between any two steps of a commit, a checkpoint, a stop or a recovery
Joint                                     T9 to T11 and T13 where one transaction sends and acknowledges, and all of
                                          Transaction
Compaction                                7.4.1 to 7.4.11: the view, its readers, crashes at each step of a run
Queue, Redelivery                         I4.1 to I4.5 at the client
ReadProgress                              seeks, rewinds and reconnects (1.4.6, 1.9.2, 4.4) at the client
SharedQuery, ClaimingQuery                a Spark query in queue mode under kills: docs/queues.md
========================================  ==========================================================================

What needs no history is a property of one function, in the tests of its file: I1.3, I1.4, I1.6, I2.8, I2.9, I3.5, I3.6,
I5.1 to I5.7, I6.2, I6.4, I6.9. Real clients and brokers show I4.7 to I4.10. I7.4 and I7.5 are not built.
T16 is every machine's: transactions are on, and most use none.

Three more run on real brokers, where a step takes milliseconds, so only when ``--only`` names them: PulsarishCell,
ApacheCell and ApacheIndexedCell (``tests/spark/cell_machine.py``). All pieces share one Apache Pulsar, which takes as
long to start as a piece to play.

Owns: finding the machines, sharing them out over processes, counting steps, telling how to see a failure again. Every
piece of work is one machine with one seed, some thousand steps long, and always does the same; a failure prints the
shrunk case and the command that repeats it. Exit code 1 if there was any; an interrupt prints the sum so far. ``dice``
choose the steps, where a machine allows it.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import logging
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import nullcontext
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, run_state_machine_as_test

from broker_core.base.suggest import did_you_mean
from tests import dice

if TYPE_CHECKING:
    from tests.spark.brokers import Broker
    from tests.spark.cell_machine import CellMachine

TESTS: Final = Path(__file__).resolve().parent
STEPS_DEFAULT: Final = 5_000_000
STEPS_OF_A_PIECE: Final = 20_000
"""Some seconds of work, so that all processes are busy until the end."""

STEPS_OF_A_PIECE_ON_A_BROKER: Final = 250
"""A minute of work."""

_TELL_EVERY_S: Final = 10.0
_INTERRUPTED: Final = 130


class Piece(NamedTuple):
    """One machine with one seed. Running it again does the same again."""

    machine: str
    seed: int
    steps: int


class Outcome(NamedTuple):
    """What came of a piece; ``failure`` is empty if nothing was wrong."""

    piece: Piece
    steps: int
    failure: str


@cache
def machines() -> dict[str, type[RuleBasedStateMachine]]:
    """All machines that tests run, by name: a test module names each as ``TestX = XMachine.TestCase``."""
    found: dict[str, type[RuleBasedStateMachine]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        if ".TestCase\n" not in path.read_text(encoding="utf-8"):
            continue
        module = importlib.import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))
        cases = {value for name, value in vars(module).items() if name.startswith("Test") and isinstance(value, type)}
        for each in vars(module).values():
            if isinstance(each, type) and issubclass(each, RuleBasedStateMachine) and each.TestCase in cases:
                found[each.__name__] = each
    return found


@cache
def machines_on_brokers() -> dict[str, type[CellMachine]]:
    """Machines that need a real broker, by name."""
    from tests.spark.cell_machine import CELL_MACHINES  # Spark takes a second, and most runs do without it.

    return {each.__name__: each for each in CELL_MACHINES.values()}


def machine_named(said: str) -> str:
    """The machine that ``said`` means: its name, the short one of the table above, or its test, whatever the case.

    LookupError with the nearest name, or all of them, where there is none.
    """
    for known in (machines, machines_on_brokers):  # The second takes a second to import.
        forms = {form.lower(): name for name in known() for form in (name, short_name(name), f"Test{short_name(name)}")}
        if (found := forms.get(said.lower())) is not None:
            return found
    shorts = [short_name(name) for name in sorted([*machines(), *machines_on_brokers()])]
    there_are = f"there are {', '.join(shorts)}"
    raise LookupError(f"there is no machine {said!r}; {did_you_mean(said, shorts, otherwise=there_are)}")


def short_name(machine: str) -> str:
    """As the table above calls it."""
    return machine.removesuffix("Machine")


def run_piece(piece: Piece, broker: Broker | None = None) -> Outcome:
    """Run one piece in this process, on ``broker`` where it needs a real one, or on one of its own."""
    if piece.machine in machines():
        return run_machine(piece, machines()[piece.machine])
    on_broker = machines_on_brokers()[piece.machine]
    with on_broker.surroundings(broker):
        return run_machine(piece, on_broker)


def run_machine(piece: Piece, machine: type[RuleBasedStateMachine]) -> Outcome:
    """Run one piece of ``machine``."""
    length = machine.TestCase.settings.stateful_step_count
    if not dice.can_be_played(machine):
        return run_by_hypothesis(piece, machine, length)
    played = dice.play(machine, piece.seed, piece.steps, length)
    return Outcome(piece, played.steps, "" if played.failure is None else str(played.failure))


def run_by_hypothesis(piece: Piece, machine: type[RuleBasedStateMachine], length: int) -> Outcome:
    """For machines that need it."""
    counts: Counter[str] = Counter()

    class Counted(machine):  # type: ignore[valid-type, misc] # a class that is only known now
        def __init__(self) -> None:
            super().__init__()
            counts["histories"] += 1

        @invariant()
        def count_the_step(self) -> None:
            counts["checks"] += 1

    Counted.__qualname__ = Counted.__name__ = machine.__name__
    chosen = settings(
        max_examples=max(1, piece.steps // length),
        stateful_step_count=length,
        deadline=None,
        database=None,
        print_blob=False,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    failure = ""
    try:
        run_state_machine_as_test(seed(piece.seed)(Counted), settings=chosen)
    except Exception:  # noqa: BLE001 - whatever it is, it is what the run is for
        failure = traceback.format_exc()
    # Invariants are checked once before the first step of a history.
    return Outcome(piece, max(0, counts["checks"] - counts["histories"]), failure)


def pieces(names: list[str], first_seed: int, steps: int) -> Iterator[Piece]:
    """Work without end: every machine in turn, each time with the next seed."""
    for number in itertools.count(first_seed):
        yield from (Piece(name, number, steps) for name in names)


def _begin_worker() -> None:
    """What the broker says of evictions and damage is no news here, and an interrupt is the main process's."""
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def soak(names: list[str], first_seed: int, steps: int, processes: int, piece_steps: int) -> Iterator[Outcome]:
    """Outcomes as they come, until ``steps`` were made."""
    on_broker = None if set(names) <= set(machines()) else machines_on_brokers()[names[0]]
    with nullcontext() if on_broker is None else on_broker.shared_broker() as broker:
        yield from _soak_on(broker, names, first_seed, steps, processes, piece_steps)


def _soak_on(
    broker: Broker | None, names: list[str], first_seed: int, steps: int, processes: int, piece_steps: int
) -> Iterator[Outcome]:
    work = pieces(names, first_seed, piece_steps)
    done = asked = 0
    with ProcessPoolExecutor(processes, get_context("spawn"), _begin_worker) as pool:
        running: set[Future[Outcome]] = set()
        while done < steps:
            while len(running) < processes and (asked < steps or not running):
                running.add(pool.submit(run_piece, next(work), broker))
                asked += piece_steps
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for each in finished:
                done += each.result().steps
                yield each.result()


class Tally:
    """What was played. Failures and the sum go to stdout, what came so far to stderr."""

    def __init__(self) -> None:
        self.failures = 0
        self._steps: Counter[str] = Counter()
        self._begun = self._told = time.monotonic()

    def add(self, outcome: Outcome) -> None:
        """Count one piece."""
        piece = outcome.piece
        self._steps[piece.machine] += outcome.steps
        if outcome.failure:
            self.failures += 1
            again = f"python -m tests.soak --only {piece.machine} --seed {piece.seed} --piece {piece.steps} --steps 1"
            sys.stdout.write(f"{outcome.failure}\n{piece.machine} failed; this repeats it: {again}\n")
            sys.stdout.flush()
        if time.monotonic() - self._told >= _TELL_EVERY_S:
            self._told = time.monotonic()
            sys.stderr.write(f"  {self._line()}\n")

    def close(self) -> None:
        """Print the sum."""
        sys.stdout.writelines(f"{name}: {count:,} steps\n" for name, count in sorted(self._steps.items()))
        sys.stdout.write(f"{self._line()}\n")

    def _line(self) -> str:
        total, seconds = self._steps.total(), time.monotonic() - self._begun
        return f"{total:,} steps in {seconds:,.0f} s, {total / seconds:,.0f} steps/s, {self.failures} violations"


def main(arguments: list[str] | None = None) -> int:
    """0 if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=STEPS_DEFAULT)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first piece of each machine")
    parser.add_argument("--only", metavar="MACHINE", help="this machine alone")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--piece", type=int, help="steps of one piece; part of its identity")
    options = parser.parse_args(arguments)
    names = sorted(machines())
    piece_steps = STEPS_OF_A_PIECE
    if options.only:
        try:
            names = [machine_named(options.only)]
        except LookupError as error:
            parser.error(str(error))
        if names[0] not in machines():
            piece_steps = STEPS_OF_A_PIECE_ON_A_BROKER
    tally = Tally()
    code = 0
    try:
        for outcome in soak(names, options.seed, options.steps, options.processes, options.piece or piece_steps):
            tally.add(outcome)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    tally.close()
    return 1 if tally.failures else code


if __name__ == "__main__":
    sys.exit(main())
