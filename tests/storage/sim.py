# SPDX-License-Identifier: Apache-2.0
"""Crash images for as long as wanted: ``python -m tests.storage.sim [--images N] [--seed S]``.

Prints what was seen, and on stderr what came so far; on a failure, which script repeats it.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.storage.test_crash_images import CrashRig

_PROGRESS_S = 10.0


def main() -> int:
    """0 if every image was recovered as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rig = CrashRig()
    seed = options.seed * 1_000_000
    begun = shown = time.monotonic()
    while rig.images < options.images:
        try:
            rig.script(seed)
        except BaseException:
            sys.stderr.write(f"script seed {seed} failed; CrashRig().script({seed}) repeats it\n")
            raise
        seed += 1
        if time.monotonic() - shown >= _PROGRESS_S:
            shown = time.monotonic()
            sys.stderr.write(f"  {_line(rig, shown - begun)}\n")
    sys.stdout.write(f"{_line(rig, time.monotonic() - begun)}\n")
    return 0


def _line(rig: CrashRig, seconds: float) -> str:
    seen = f"{rig.images:,} images, {rig.compound:,} of them crashed again, {rig.kills:,} kills"
    return f"{seen}, {rig.images / seconds:,.0f} images/s"


if __name__ == "__main__":
    sys.exit(main())
