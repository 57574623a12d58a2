# SPDX-License-Identifier: Apache-2.0
"""``make clients``: the behaviour suite with older and newer official clients, on our broker and on Apache Pulsar.

Owns the list of versions and the table. A client that is old cannot say everything, and has faults of its own, so a
behaviour counts against us only where a client shows it on Apache Pulsar and not on our broker, twice. Each version is
a run of pytest by itself: its report is what is compared, and no version is listed with exceptions.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.behaviour.builds import cache
from tests.behaviour.java_client import VERSION

HERE: Final = Path(__file__).resolve().parent

JAVA: Final = ("2.0.1-incubating", "2.11.4", "3.0.7", "3.3.9", "4.0.8", "4.1.3", "4.2.4", "5.0.0-M1")
"""The oldest that Apache Pulsar 4.2 serves (1.x knows only names of topics with a cluster in them, which 4.2 has no way
to make), the long-term releases, the last of others, the newest that is published. Of 3.0 the last that Maven Central
has whole."""

PYTHON: Final = ("3.1.0", "3.5.0", "3.13.0")
"""The oldest that has a wheel for Python 3.11, one in between, the newest."""

SERVICES: Final = ("pulsarish", "apache")
CANNOT: Final = "CannotExpressError"
LISTED: Final = "listed in exceptions.py"


@dataclass(frozen=True, slots=True)
class Client:
    """One version of one official client."""

    language: str
    version: str

    def environment(self) -> dict[str, str]:
        """What makes the suite run with it."""
        if self.language == "java":
            return {**os.environ, VERSION: self.version}
        folder = cache() / f"python-client-{self.version}"
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache()) as scratch:
                fresh = Path(scratch) / "packages"
                arguments = ["--quiet", "--no-deps", "--only-binary=:all:", "--target", str(fresh)]
                subprocess.run(
                    [sys.executable, "-m", "pip", "install", *arguments, f"pulsar-client=={self.version}"], check=True
                )
                fresh.replace(folder)
        paths = [str(folder), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@dataclass(slots=True)
class Outcome:
    """How one behaviour ended on each service: "" if it held, else the reason; LISTED if that is in the table."""

    on: dict[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        ours, theirs = (self.on.get(each, "not run") for each in SERVICES)
        if LISTED in (ours, theirs) and {ours, theirs} <= {LISTED, ""}:
            return "as listed"
        if ours and not theirs:
            return "only on Apache Pulsar"
        if theirs and not ours:
            return "only on ours"
        if not ours:
            return "on both"
        return "cannot be said" if CANNOT in ours and CANNOT in theirs else "on neither"


def run(client: Client, chosen: Sequence[str], report: Path) -> dict[str, Outcome]:
    """The suite, or the behaviours of it that are ``chosen``, with one client on both services.

    It runs in a worker, of which there is one at a time: a native client that takes its process down, as old versions
    do now and then, fails the behaviour at hand, and the others go on in the next worker.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "1", "--timeout=300"]
    command.append(f"--junitxml={report}")
    selection = list(chosen) or [str(HERE), "-k", client.language]
    with report.with_suffix(".log").open("w") as log:
        subprocess.run([*command, *selection], env=client.environment(), stdout=log, stderr=log, check=False)
    return outcomes(report)


def outcomes(report: Path) -> dict[str, Outcome]:
    """The outcomes by behaviour, whose name is that of its test without the service."""
    found: dict[str, Outcome] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        for service in SERVICES:
            if f"[{service}-" in name:
                outcome = found.setdefault(name.replace(f"[{service}-", "["), Outcome())
                outcome.on[service] = _reason(case)
    return found


def _reason(case: ElementTree.Element) -> str:
    for failure in (*case.iter("failure"), *case.iter("error")):
        return f"{failure.get('message', '')} {CANNOT if CANNOT in (failure.text or '') else ''}".strip() or "failed"
    return LISTED if case.find("skipped") is not None else ""


def differing(found: Mapping[str, Outcome]) -> Iterator[str]:
    """The behaviours that count against us."""
    return (name for name, outcome in found.items() if outcome.verdict == "only on Apache Pulsar")


def _test_ids(name: str) -> list[str]:
    module, test = name.split("::")
    path = f"{module.replace('.', '/')}.py"
    return [f"{path}::{test.replace('[', f'[{service}-', 1)}" for service in SERVICES]


def examine(client: Client, reports: Path) -> tuple[dict[str, Outcome], float]:
    """What differs is run once more: a test of seconds may fail on a busy machine."""
    began = time.monotonic()
    name = f"{client.language}-{client.version}"
    found = run(client, (), reports / f"{name}.xml")
    if again := [test for name in differing(found) for test in _test_ids(name)]:
        found |= run(client, again, reports / f"{name}-again.xml")
    return found, time.monotonic() - began


COLUMNS: Final = ("on both", "as listed", "cannot be said", "on neither", "only on ours", "only on Apache Pulsar")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="LANGUAGE-VERSION", help="some of the clients")
    parser.add_argument("--reports", type=Path, help="where to keep what pytest says")
    options = parser.parse_args(arguments)
    clients = [Client("java", each) for each in JAVA] + [Client("python", each) for each in PYTHON]
    chosen = [each for each in clients if not options.only or f"{each.language}-{each.version}" in options.only]
    reports = options.reports or Path(tempfile.mkdtemp(prefix="pulsarish-clients-"))
    reports.mkdir(parents=True, exist_ok=True)
    bad: list[str] = []
    print(f"{'client':24}" + "".join(f"{each:>23}" for each in COLUMNS) + f"{'seconds':>9}", flush=True)  # noqa: T201
    for client in chosen:
        found, seconds = examine(client, reports)
        counts = Counter(outcome.verdict for outcome in found.values())
        line = f"{client.language + ' ' + client.version:24}" + "".join(f"{counts[each]:23}" for each in COLUMNS)
        print(f"{line}{seconds:9.0f}", flush=True)  # noqa: T201
        bad += [
            f"{client.language} {client.version}: {name}: {found[name].on['pulsarish']}" for name in differing(found)
        ]
        if not counts["on both"]:
            bad.append(f"{client.language} {client.version}: nothing held; see {reports}")
    for each in bad:
        print(f"DIFFERS {each}", flush=True)  # noqa: T201
    print(f"{len(bad)} differences; reports in {reports}", flush=True)  # noqa: T201
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
