# SPDX-License-Identifier: Apache-2.0
"""``make schemathesis``: Schemathesis makes requests from the OpenAPI document, without credentials and for roles.

It fails where Schemathesis finds an answer with 5xx, where the log tells of a bug, where a client changed what it has
no right to, and where turns or memory leave the bounds of ``make fuzz``. Schemathesis is a program in a folder of its
own (``PYTHONPATH``): its dependencies meet none of ours. Names in paths are those of things that exist, or made up.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from scripts.openapi import openapi
from tests.flood.rig import turn_ms_max
from tests.fuzz.clients import Inputs
from tests.fuzz.requests import KNOWN, Document, Requests
from tests.fuzz.rig import REQUESTS_FROM, Run, fresh_world, play
from tests.fuzz.world import World

_CASES: Final = re.compile(r"([\d,]+) generated")
_PHASES: Final = "coverage,fuzzing"
_SHOWN_CHARACTERS: Final = 6_000


def named(document: dict[str, Any]) -> dict[str, Any]:
    """The document, in which half the names are those of things that exist."""
    for name, parameter in document["components"]["parameters"].items():
        if name in KNOWN:
            parameter["schema"] = {"anyOf": [{"enum": list(KNOWN[name])}, parameter["schema"]]}
    return document


class Schemathesis:
    """One run of the program for one role; ``cases`` counts its requests."""

    def __init__(self, document: Path, requests: Requests, examples: int) -> None:
        self._document = document
        self._requests = requests
        self._examples = examples
        self.cases = 0

    def attack(self, world: World, _inputs: Inputs, _numbers: range, _workers: int) -> list[str]:
        """The end of what the program says, if it finds something."""
        command = [sys.executable, "-m", "schemathesis.cli", "run", str(self._document), "--no-color"]
        command += ["--url", world.target.http_url, "--checks", "not_a_server_error", "--warnings", "off"]
        command += ["--phases", _PHASES, "--max-examples", str(self._examples), "--seed", str(self._requests.seed)]
        command += [part for name, value in self._requests.headers.items() for part in ("--header", f"{name}: {value}")]
        folder = self._document.parent  # the program leaves notes in the folder it is run in
        ended = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        cases = _CASES.search(ended.stdout)
        self.cases = int(cases[1].replace(",", "")) if cases else 0
        if ended.returncode == 0 and self.cases:
            return []
        return [f"{self._requests.client}: {(ended.stdout + ended.stderr)[-_SHOWN_CHARACTERS:]}"]


def main() -> int:
    """A line for each role on stdout; 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.schemathesis_rig", description=__doc__)
    parser.add_argument("--examples", type=int, default=30, help="requests of each path and method, at the most (30)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    failures, turn_max_ms, document = 0, turn_ms_max(), openapi()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "openapi.json"
        path.write_text(json.dumps(named(document)))
        for role, may_change in REQUESTS_FROM.items():
            requests = Requests(Document(document), args.seed, role)
            program = Schemathesis(path, requests, args.examples)
            begun_s = time.monotonic()
            with fresh_world() as world:
                run = Run(requests.client, "requests", may_change, program.attack, requests.shown, 1)
                found = play(world, run, turn_max_ms=turn_max_ms)
            done = found.measures
            sys.stdout.write(
                f"{requests.client:20} {program.cases:8,} requests  longest turn {done.longest_ms:5.1f} ms  "
                f"peak {done.peak_mib:4.0f} of {found.bound_mib:.0f} MiB  {time.monotonic() - begun_s:6.1f} s\n"
            )
            sys.stdout.write("".join(f"    WRONG: {each}\n" for each in found.failures))
            sys.stdout.flush()
            failures += len(found.failures)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
