# SPDX-License-Identifier: Apache-2.0
"""``make flood``: attacks on a real broker, one after the other, and a table of what they did.

It fails where a turn of the loop took more CPU than ``turn_ms_max`` allows this machine, where memory went above the
sum of docs/limits.md or was not given back (``memory``), and where nobody else was served.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.flood.attacks import ATTACKS
from tests.flood.attacks_credentials import CREDENTIALS_ATTACKS
from tests.flood.attacks_http import HTTP_ATTACKS
from tests.flood.attacks_schemas import SCHEMA_ATTACKS
from tests.flood.attacks_tls import TLS_ATTACKS
from tests.flood.common import Attack
from tests.flood.memory import OPENS, Opens, bound_mib, left_mib_max
from tests.flood.target import Measures, Target

TURN_LOOPS_MAX: Final = 16.0
"""A turn of the broker's loop takes no more CPU than so many loops of ``LOOP_TURNS`` empty turns: 20 ms on a machine
that goes through 80 million of them in a second."""

LOOP_TURNS: Final = 100_000
SETTINGS: Final = {"brokerDeduplicationEnabled": False, "logLevel": "warning"}

ALL_ATTACKS: Final = ATTACKS | HTTP_ATTACKS | TLS_ATTACKS | CREDENTIALS_ATTACKS | SCHEMA_ATTACKS


def turn_ms_max() -> float:
    """The longest turn of the broker's loop that is allowed on this machine, in milliseconds of CPU."""
    return TURN_LOOPS_MAX * statistics.median(_empty_loop_ms() for _ in range(31))


def _empty_loop_ms() -> float:
    begun_s = time.thread_time()
    for _ in range(LOOP_TURNS):
        pass
    return 1000 * (time.thread_time() - begun_s)


def measure(target: Target, attack: Attack, opens: Opens, size: float) -> Measures:
    """What ``attack`` does to a broker."""
    with target.watched(left_mib_max(target.settings, opens, size)) as watch:
        attack(target, size)
    assert watch.measures is not None
    return watch.measures


def problems(target: Target, found: Measures, opens: Opens, size: float, *, longest_ms_max: float) -> list[str]:
    """What was promised and is not so."""
    peak_mib_max, left_max = bound_mib(target.settings, opens, size), left_mib_max(target.settings, opens, size)
    told = []
    if found.longest_ms > longest_ms_max:
        told.append(f"a turn took {found.longest_ms:.1f} ms of CPU, {longest_ms_max:.1f} are allowed")
    if found.peak_mib > peak_mib_max:
        told.append(f"the process had {found.peak_mib:.0f} MiB, {peak_mib_max:.0f} are allowed")
    if found.left_mib > left_max:
        told.append(f"{found.left_mib:.0f} MiB were not given back, {left_max:.0f} may be kept")
    if not found.others:
        told.append("nobody else was served")
    return told


def main() -> int:
    """The table on stdout; 1 if anything is not as promised."""
    parser = argparse.ArgumentParser(prog="python -m tests.flood.rig", description=__doc__)
    parser.add_argument("--size", type=float, default=1.0, help="part of each attack's size (1)")
    parser.add_argument("--only", default="", help="names of attacks, commas between")
    parser.add_argument("--stacks", action="store_true", help="what ran in turns that were too long")
    args = parser.parse_args()
    names = [name for name in ALL_ATTACKS if not args.only or name in args.only.split(",")]
    print_ = sys.stdout.write
    print_(
        f"{'attack':42} {'turn ms':>8} {'> 20':>5} {'peak MiB':>9} {'bound':>6} {'left':>5} {'may be':>7} "
        f"{'others ms':>10} {'took s':>7}\n"
    )
    wrong, longest_ms_max = 0, turn_ms_max()
    with tempfile.TemporaryDirectory(prefix="flood-") as folder:
        for name in names:
            begun = time.monotonic()
            directory = Path(folder) / name
            directory.mkdir()
            target, opens = Target(directory, SETTINGS), OPENS.get(name, Opens())
            try:
                found = measure(target, ALL_ATTACKS[name], opens, args.size)
            finally:
                target.close()
            print_(
                f"{name:42} {found.longest_ms:8.1f} {len(found.over):5} {found.peak_mib:9.0f} "
                f"{bound_mib(target.settings, opens, args.size):6.0f} {found.left_mib:5.0f} "
                f"{left_mib_max(target.settings, opens, args.size):7.0f} {found.others_ms:10.0f} "
                f"{time.monotonic() - begun:7.1f}\n"
            )
            told = problems(target, found, opens, args.size, longest_ms_max=longest_ms_max)
            wrong += len(told)
            print_("".join(f"    WRONG: {each}\n" for each in told))
            if args.stacks and found.over:
                print_(f"    {found.over[:12]}; collections of cycles at most {found.collections_ms} ms\n")
                print_("".join(f"    {count:4} {stack}\n" for stack, count in found.stacks[:3]))
            sys.stdout.flush()
    print_(f"{len(names)} attacks, {wrong} problems; a turn may take {longest_ms_max:.1f} ms of CPU on this machine\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
