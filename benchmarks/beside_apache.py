# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of our broker beside an Apache Pulsar. Ours confirms what is synced; the other is a standalone whose
bookie does not sync. Both run on the machine of the load."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import report
from benchmarks.broker_load import fresh_broker
from benchmarks.measure import Figure
from benchmarks.parts import add_only
from tests.apache_pulsar.start import running

OURS, APACHE = "pulsarish", "apache"
SIDES: Final = (OURS, APACHE)


class Server(NamedTuple):
    """A running broker."""

    service_url: str
    http_url: str
    pid: int


@contextmanager
def started(sides: list[str], settings: Mapping[str, str] | None = None) -> Iterator[dict[str, Server]]:
    """The brokers, each on an empty directory. ``settings``: those that an Apache Pulsar needs beside its own."""
    with ExitStack() as stack:
        servers = {}
        if OURS in sides:
            ours = stack.enter_context(fresh_broker({}))
            servers[OURS] = Server(ours.service_url, ours.http_url, ours.pid)
        if APACHE in sides:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
            theirs = stack.enter_context(running(Path(folder), settings))
            servers[APACHE] = Server(theirs.service_url, theirs.http_url, theirs.pid)
        yield servers


def command(
    name: str,
    description: str,
    arguments: list[str],
    measured: Callable[[dict[str, Server], bool], list[Figure]],
    settings: Mapping[str, str] | None = None,
) -> int:
    """The command ``python -m benchmarks.NAME [--quick] [--only SIDE,...]``; its exit code. ``measured`` is told
    whether it has to be quick."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--quick", action="store_true", help="little to do, one run: shows that everything works")
    add_only(parser, SIDES)
    chosen = parser.parse_args(arguments)
    context = report.environment()
    with started(chosen.only, settings) as servers:
        found = measured(servers, chosen.quick)
    path = report.save(name, context, found)
    print(report.environment_lines(context))
    print("durability: pulsarish fdatasync before every confirmation, Apache Pulsar none\n")
    print(report.ratio_table(found, SIDES))
    print(f"\nstored in {path}")
    return 0
