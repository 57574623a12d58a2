# SPDX-License-Identifier: Apache-2.0
"""The behaviour suite with variants of clients, on our broker and on Apache Pulsar, and a table of how they did.

A variant is a run of pytest by itself, which the environment gives its client or access; its report is compared. What
a behaviour has to show in a variant is for the rig to say: a verdict that it does not accept is tried once more, as a
test of seconds may fail on a busy machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

HERE: Final = Path(__file__).resolve().parent

SERVICES: Final = ("pulsarish", "apache")
CANNOT: Final = "CannotExpressError"
LISTED: Final = "listed in exceptions.py"

ON_BOTH: Final = "on both"
AS_LISTED: Final = "as listed"
ONLY_ON_APACHE: Final = "only on Apache Pulsar"
VERDICTS: Final = (ON_BOTH, AS_LISTED, "cannot be said", "on neither", "only on ours", ONLY_ON_APACHE)


class Variant(Protocol):
    """A client in one version, or with one access."""

    @property
    def name(self) -> str: ...
    @property
    def keyword(self) -> str:
        """The option -k of pytest that chooses its behaviours."""

    def environment(self) -> dict[str, str]:
        """The environment in which the suite runs with it."""


@dataclass(slots=True)
class Outcome:
    """How one behaviour ended on each service: "" if it held, else the reason; LISTED if that is in the table."""

    on: dict[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        ours, theirs = (self.on.get(each, "not run") for each in SERVICES)
        if LISTED in (ours, theirs) and {ours, theirs} <= {LISTED, ""}:
            return AS_LISTED
        if ours and not theirs:
            return ONLY_ON_APACHE
        if theirs and not ours:
            return "only on ours"
        if not ours:
            return ON_BOTH
        return "cannot be said" if CANNOT in ours and CANNOT in theirs else "on neither"


def run(variant: Variant, chosen: Sequence[str], report: Path, workers: int) -> dict[str, Outcome]:
    """The suite, or the behaviours of it that are ``chosen``, with one variant on both services.

    It runs in workers also where there is one: a native client that takes its process down, as old versions do now and
    then, fails the behaviour at hand, and the others go on in the next worker.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"-n{workers}", "--timeout=300"]
    command.append(f"--junitxml={report}")
    selection = list(chosen) or [str(HERE), "-k", variant.keyword]
    with report.with_suffix(".log").open("w") as log:
        subprocess.run([*command, *selection], env=variant.environment(), stdout=log, stderr=log, check=False)
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


def differing(found: Mapping[str, Outcome], verdicts: Collection[str]) -> Iterator[str]:
    """The behaviours whose verdict is one of ``verdicts``."""
    return (name for name, outcome in found.items() if outcome.verdict in verdicts)


def _test_ids(name: str) -> list[str]:
    module, test = name.split("::")
    path = f"{module.replace('.', '/')}.py"
    return [f"{path}::{test.replace('[', f'[{service}-', 1)}" for service in SERVICES]


def _examine(
    variant: Variant, reports: Path, faults: Collection[str], workers: int
) -> tuple[dict[str, Outcome], float]:
    began = time.monotonic()
    name = variant.name.replace(" ", "-")
    found = run(variant, (), reports / f"{name}.xml", workers)
    if again := [test for name in differing(found, faults) for test in _test_ids(name)]:
        found |= run(variant, again, reports / f"{name}-again.xml", workers)
    return found, time.monotonic() - began


def examine_all(variants: Sequence[Variant], faults: Collection[str], what: str, arguments: Sequence[str]) -> int:
    """Run a rig's variants, print the table and the behaviours with a verdict of ``faults``; the exit code."""
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="CLIENT-VARIANT", help="some of the rows")
    parser.add_argument("--reports", type=Path, help="where to keep what pytest says")
    parser.add_argument("--workers", type=int, default=1, help="how many processes run the behaviours of a row")
    options = parser.parse_args(arguments)
    chosen = [each for each in variants if not options.only or each.name.replace(" ", "-") in options.only]
    reports = options.reports or Path(tempfile.mkdtemp(prefix="pulsarish-clients-"))
    reports.mkdir(parents=True, exist_ok=True)
    bad: list[str] = []
    print(f"{'client':24}" + "".join(f"{each:>23}" for each in VERDICTS) + f"{'seconds':>9}", flush=True)  # noqa: T201
    for variant in chosen:
        found, seconds = _examine(variant, reports, faults, options.workers)
        counts = Counter(outcome.verdict for outcome in found.values())
        line = f"{variant.name:24}" + "".join(f"{counts[each]:23}" for each in VERDICTS)
        print(f"{line}{seconds:9.0f}", flush=True)  # noqa: T201
        bad += [f"{variant.name}: {name}: {found[name].on}" for name in differing(found, faults)]
        if not counts[ON_BOTH]:
            bad.append(f"{variant.name}: nothing held; see {reports}")
    for each in bad:
        print(f"DIFFERS {each}", flush=True)  # noqa: T201
    print(f"{len(bad)} differences; reports in {reports}", flush=True)  # noqa: T201
    return 1 if bad else 0
