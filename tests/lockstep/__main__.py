# SPDX-License-Identifier: Apache-2.0
"""Random scripts in lockstep on our broker and on a real Apache Pulsar: ``python -m tests.lockstep [--scripts N]``.

A seed is a script. Some are played at once, each on a topic of its own. Exit code 1 if the brokers differed in any.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from broker_core.testing.running_broker import RunningBroker
from tests.apache_pulsar.start import SHORT_LIVED, running
from tests.lockstep.rig import NO_TAKEOVER_PAUSE, OUR_SETTINGS, Rivals, play, smaller
from tests.lockstep.script import STEPS_DEFAULT, make_script
from tests.server.oracle import Side as Address

THEIR_SETTINGS: Final = {name: str(value) for name, value in NO_TAKEOVER_PAUSE.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lockstep", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scripts", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of the first; each has the next")
    parser.add_argument("--steps", type=int, default=STEPS_DEFAULT, help="of each; part of what a seed means")
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--shrink-s", type=float, default=60.0, help="how long to make each difference smaller")
    options = parser.parse_args(arguments)
    began, differences = time.monotonic(), 0
    with (
        tempfile.TemporaryDirectory() as folder,
        RunningBroker(Path(folder) / "ours", {**OUR_SETTINGS, **NO_TAKEOVER_PAUSE}) as ours,
        running(Path(folder) / "theirs", THEIR_SETTINGS, SHORT_LIVED) as theirs,
        ThreadPoolExecutor(options.at_once) as players,
    ):
        rivals = Rivals(Address(ours.http_url, ours.service_url), Address(theirs.http_url, theirs.service_url), 0.0)
        scripts = [make_script(seed, options.steps) for seed in range(options.seed, options.seed + options.scripts)]
        for found in players.map(lambda script: play(script, rivals), scripts):
            if found is not None:
                differences += 1
                again = f"--scripts 1 --seed {found.script.seed} --steps {options.steps}"
                _tell(f"{smaller(found, rivals, options.shrink_s)}\nagain: python -m tests.lockstep {again}\n")
    _tell(f"{len(scripts)} scripts in {time.monotonic() - began:.0f} s, {differences} differences")
    return 1 if differences else 0


def _tell(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a program's output


if __name__ == "__main__":
    sys.exit(main())
