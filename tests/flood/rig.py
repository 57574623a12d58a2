# SPDX-License-Identifier: Apache-2.0
"""``make flood``: attacks on a real broker, one after the other, and a table of what they did.

No turn of the loop may take more than ``TURN_MS_MAX`` of CPU, whatever one client sends; memory stays within the stated
bound (docs/limits.md) and is given back.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.flood.attacks import ATTACKS
from tests.flood.target import Measures, Target

TURN_MS_MAX: Final = 20.0
SETTINGS: Final = {"brokerDeduplicationEnabled": False, "logLevel": "warning"}


def run(name: str, size: float, folder: Path) -> Measures:
    """One attack on a broker of its own."""
    directory = folder / name
    directory.mkdir()
    target = Target(directory, SETTINGS)
    try:
        with target.watched() as watch:
            ATTACKS[name](target, size)
    finally:
        target.close()
    assert watch.measures is not None
    return watch.measures


def main() -> int:
    """The table on stdout, what goes on on stderr; 1 if a turn was too long."""
    parser = argparse.ArgumentParser(prog="python -m tests.flood.rig", description=__doc__)
    parser.add_argument("--size", type=float, default=1.0, help="part of each attack's size (1)")
    parser.add_argument("--only", default="", help="names of attacks, commas between")
    parser.add_argument("--stacks", action="store_true", help="what ran in turns that were too long")
    args = parser.parse_args()
    names = [name for name in ATTACKS if not args.only or name in args.only.split(",")]
    print_ = sys.stdout.write
    print_(f"{'attack':44} {'turn ms':>8} {'> 20':>5} {'peak MiB':>9} {'after':>6} {'others ms':>10} {'took s':>7}\n")
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="flood-") as folder:
        for name in names:
            begun = time.monotonic()
            found = run(name, args.size, Path(folder))
            worst = max(worst, found.longest_ms)
            print_(
                f"{name:44} {found.longest_ms:8.1f} {len(found.over):5} {found.peak_mib:9.0f} {found.after_mib:6.0f} "
                f"{found.others_ms:10.0f} {time.monotonic() - begun:7.1f}\n"
            )
            if args.stacks and found.over:
                print_(f"    {found.over[:12]}\n")
                for stack, count in found.stacks[:3]:
                    print_(f"    {count:4} {stack}\n")
            sys.stdout.flush()
    print_(f"the longest turn took {worst:.1f} ms of CPU, {TURN_MS_MAX:.0f} are allowed\n")
    return 1 if worst > TURN_MS_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
