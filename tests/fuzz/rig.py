# SPDX-License-Identifier: Apache-2.0
"""``make fuzz``: random commands, mutated frames and requests, of clients of every kind, to a real broker with rights.

It fails where a client changed what it has no right to, where the log tells of a bug, where a stranger is told more
than an error, where a request is answered with 5xx, where a turn of the loop took too long, where memory left the sum
of docs/limits.md, and where nobody else is served. Inputs follow from the seed: ``--seed S`` repeats a failure. An
input that changed the state is searched for on fresh brokers.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from broker_core.server.conversation import RULES
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from scripts.openapi import openapi
from tests.flood.memory import bound_mib, left_mib_max
from tests.flood.rig import problems, turn_ms_max
from tests.flood.target import Measures
from tests.fuzz import clients
from tests.fuzz.clients import Inputs, Kind, attack
from tests.fuzz.commands import KINDS, random_frame
from tests.fuzz.mutations import mutated
from tests.fuzz.requests import Document, Requests
from tests.fuzz.world import BOSS, MAKER, NOBODY, SUPERUSER, State, World, difference

COMMANDS_FROM: Final = (
    *(clients.STRANGER, clients.REFUSED, clients.WRONG_PASSWORD, clients.PASSWORD_CHECKED, clients.WITHOUT_RIGHTS),
    clients.ASKED,
)
"""Clients that send commands, every other one mutated."""

FRAMES_FROM: Final = (clients.STRANGER, clients.WITHOUT_RIGHTS, clients.PRODUCES, clients.OWNS)
"""Clients that send mutated frames."""

REQUESTS_FROM: Final[dict[str, str | None]] = {"": "", NOBODY: "", MAKER: "open/made", BOSS: "mine", SUPERUSER: None}
"""Roles that send requests to the admin REST, "" without credentials, and what they may change."""

_OF_CLIENTS: Final = (*RULES, BaseCommand.SEND)
_CHUNK: Final = 10_000
"""Inputs between two looks at the state."""

_WORKERS: Final = 3
_SHOWN_INPUTS: Final = 3
_LIVES: Final = "the broker serves nobody any more"

InputOf = Callable[[int], bytes]
Attack = Callable[[World, Inputs, range, int], list[str]]
"""Sends the inputs of these numbers, by so many clients at a time; what went wrong."""


class Run(NamedTuple):
    """Inputs of one kind of client, and how many. ``may_change``: the tenant or namespace, "" for nothing, None for
    everything."""

    client: str
    sends: str
    may_change: str | None
    attack: Attack
    shown: Callable[[int], str]
    """An input as text, for a report."""
    amount: int


def frames_run(kind: Kind, sends: str, input_of: InputOf, amount: int) -> Run:
    """Inputs at the Pulsar port."""
    return Run(kind.name, sends, kind.may_change, partial(attack, kind, input_of), lambda n: input_of(n).hex(), amount)


def command_input(seed: int, kind: Kind, number: int) -> bytes:
    """The commands of a client in turn, every other time mutated."""
    chance = random.Random(f"{seed}/commands/{kind.name}/{number}")
    frame = random_frame(chance, kind.words, _OF_CLIENTS[number // 2 % len(_OF_CLIENTS)])
    return frame if number % 2 else mutated(chance, frame, _other(chance, kind))


def frame_input(seed: int, kind: Kind, number: int) -> bytes:
    """A mutated frame; a quarter is of commands that are not those of clients, or not of this broker."""
    chance = random.Random(f"{seed}/frames/{kind.name}/{number}")
    command = chance.choice(KINDS if chance.random() < 0.25 else _OF_CLIENTS)
    return mutated(chance, random_frame(chance, kind.words, command), _other(chance, kind))


def _other(chance: random.Random, kind: Kind) -> bytes:
    return random_frame(chance, kind.words, chance.choice(_OF_CLIENTS))


def runs(seed: int, commands: int, frames: int, requests: int) -> list[Run]:
    """All of them, with equal shares of the three numbers. Those of the superuser come last: they change everything."""
    of_commands = [
        frames_run(kind, "commands", partial(command_input, seed, kind), commands // len(COMMANDS_FROM))
        for kind in COMMANDS_FROM
    ]
    of_frames = [
        frames_run(kind, "frames", partial(frame_input, seed, kind), frames // len(FRAMES_FROM)) for kind in FRAMES_FROM
    ]
    return of_commands + of_frames + _of_requests(seed, requests // len(REQUESTS_FROM))


def _of_requests(seed: int, each: int) -> list[Run]:
    document = Document(openapi())
    made = [Requests(document, seed, role) for role in REQUESTS_FROM]
    return [Run(of.client, "requests", REQUESTS_FROM[of.role], of.attack, of.shown, each) for of in made]


class Outcome(NamedTuple):
    """What a run did, and what went wrong."""

    measures: Measures
    bound_mib: float
    failures: list[str]


def play(world: World, run: Run, *, turn_max_ms: float, chunk: int = _CHUNK) -> Outcome:
    """Send the inputs of ``run`` and look at the broker between them, and behind them."""
    told: list[str] = []
    target = world.target
    with target.watched(left_mib_max(target.settings, world.opens(_WORKERS))) as watch:
        for start in range(0, run.amount, chunk):
            told += _play_chunk(world, run, range(start, min(start + chunk, run.amount)))
            if told:
                break
    assert watch.measures is not None
    opens = world.opens(_WORKERS)
    told += problems(target, watch.measures, opens, 1.0, longest_ms_max=turn_max_ms)
    return Outcome(watch.measures, bound_mib(target.settings, opens), told)


def _play_chunk(world: World, run: Run, numbers: range) -> list[str]:
    inputs = Inputs()
    before = _state(world, run)
    told = run.attack(world, inputs, numbers, _WORKERS)
    if not _serves(world):
        return [*told, f"{run.client}, inputs {numbers[0]} to {numbers[-1]}: {_LIVES}"]
    if changed := difference(before, _state(world, run)):
        told.append(f"{run.client}, inputs {numbers[0]} to {numbers[-1]}: {changed}{_culprit(run, numbers)}")
    told += [f"{line}{_inputs_named(inputs, line)}" for line in world.complaints()]
    return told


def _state(world: World, run: Run) -> State:
    """All that the client must not change."""
    return {} if run.may_change is None else world.state(run.may_change)


def _serves(world: World) -> bool:
    try:
        return world.serves()
    except Exception:  # noqa: BLE001 - whatever keeps it from that
        return False


def _inputs_named(inputs: Inputs, line: str) -> str:
    """The last inputs of the connection that a line of the log names."""
    for address, sent in inputs.by_address.items():
        if address in line:
            return "".join(f"    {each.hex()}\n" for each in sent[-_SHOWN_INPUTS:])
    return ""


def _culprit(run: Run, numbers: range) -> str:
    """The last input of the shortest beginning of ``numbers`` that changes the state of a fresh broker."""
    if not _changes(run, numbers):
        return "\n    the same inputs change nothing on a fresh broker"
    least, most = 1, len(numbers)
    while least < most:
        middle = (least + most) // 2
        if _changes(run, numbers[:middle]):
            most = middle
        else:
            least = middle + 1
    number = numbers[most - 1]
    return f"\n    input {number}: {run.shown(number)}"


def _changes(run: Run, numbers: range) -> bool:
    with fresh_world() as world:
        before = _state(world, run)
        run.attack(world, Inputs(), numbers, 1)
        return bool(difference(before, _state(world, run)))


@contextmanager
def fresh_world() -> Iterator[World]:
    """A broker in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        world = World(Path(folder))
        try:
            yield world
        finally:
            world.close()


def main() -> int:
    """The table on stdout; 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.rig", description=__doc__)
    parser.add_argument("--frames", type=int, default=500_000, help="mutated frames (500,000)")
    parser.add_argument("--commands", type=int, default=100_000, help="commands, every other one mutated (100,000)")
    parser.add_argument("--requests", type=int, default=50_000, help="requests to the admin REST (50,000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="part of the name of a kind of client")
    args = parser.parse_args()
    print_ = sys.stdout.write
    print_(
        f"{'client':38} {'sends':>9} {'inputs':>8} {'turn ms':>8} {'peak MiB':>9} {'bound':>6} {'left':>5} "
        f"{'others ms':>10} {'took s':>7}\n"
    )
    failures, turn_max_ms, sent = 0, turn_ms_max(), 0
    for run in runs(args.seed, args.commands, args.frames, args.requests):
        if args.only not in run.client or not run.amount:
            continue
        begun_s = time.monotonic()
        with fresh_world() as world:  # topics that an earlier client made would go when nobody has used them for long
            found, most_mib, told = play(world, run, turn_max_ms=turn_max_ms)
        print_(
            f"{run.client:38} {run.sends:>9} {run.amount:8,} {found.longest_ms:8.1f} {found.peak_mib:9.0f} "
            f"{most_mib:6.0f} {found.left_mib:5.0f} {found.others_ms:10.0f} {time.monotonic() - begun_s:7.1f}\n"
        )
        print_("".join(f"    WRONG: {each}\n" for each in told))
        sys.stdout.flush()
        failures, sent = failures + len(told), sent + run.amount
    print_(f"{sent:,} inputs of seed {args.seed}, {failures} problems; a turn may take {turn_max_ms:.1f} ms of CPU\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
