# SPDX-License-Identifier: Apache-2.0
"""What tests of several folders share: how they are spread over processes, what those may keep, a real Apache Pulsar.

Owns the order in which groups start: the long ones first, so that no worker is left with one at the end.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from tests.apache_pulsar.start import INDEXED, SHORT_LIVED, ApachePulsar, UnavailableError, running

# How long an example takes says more about the machine's other work than about the code. The same code gets the same
# examples, so that a run fails for what was changed; ``make soak`` and ``make sim`` look for what nobody has seen.
settings.register_profile("repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")

# Tests start hundreds of Python processes, and each would compile our modules again where the environment forbids to
# keep them compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

LONGEST_FIRST: Final = ("spark-programs", "pulsar", "spark", "pulsar-indexed")
"""Groups of minutes. Those behind them fill the gaps; the slow ones of them begin too."""


def pytest_configure() -> None:
    """Every Spark that is started by a test, or by a program that a test starts, compiles as little as it can."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(SHORT_LIVED))


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together what shares something expensive, for ``--dist loadgroup --no-loadscope-reorder``.

    Everything on the shared Spark session runs in one worker, everything that starts a Spark of its own in another, so
    that there is one of these at a time; everything with a real Pulsar on one Pulsar, and there all that uses its Java
    client, so that there is one of these too; a second Pulsar, which tells indexes, has a worker to itself. Other tests
    stay with their file, whose fixtures then start once.
    """
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=_turn)


def pytest_collection_finish() -> None:
    """Garbage collections no longer look through what importing and collecting thousands of tests has made."""
    gc.freeze()


def _group(item: pytest.Item) -> str:
    if item.get_closest_marker("spark"):
        return "spark" if "spark" in getattr(item, "fixturenames", ()) else "spark-programs"
    cell = getattr(item, "callspec", None)
    kind = None if cell is None else cell.params.get("cell")
    if kind == "apache-indexed":
        return "pulsar-indexed"
    with_java_client = kind == "java"
    return "pulsar" if with_java_client or item.get_closest_marker("pulsar") else item.nodeid.partition("::")[0]


def _turn(item: pytest.Item) -> int:
    group = _group(item)
    if group in LONGEST_FIRST:
        return LONGEST_FIRST.index(group)
    return len(LONGEST_FIRST) + (item.get_closest_marker("slow") is None)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Interrupts reach this process and those that it starts: a worker of the test runner ignores them."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)


@pytest.fixture(scope="session")
def apache_pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApachePulsar]:
    """A real Apache Pulsar; tests that use it have the marker ``pulsar``. Skips where there is no Java or Maven."""
    yield from _pulsar(tmp_path_factory.mktemp("apache-pulsar"), {})


@pytest.fixture(scope="session")
def apache_pulsar_indexed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApachePulsar]:
    """One that tells clients the index of each message, as ours does. Tests of it have a worker to themselves."""
    yield from _pulsar(tmp_path_factory.mktemp("apache-pulsar-indexed"), INDEXED)


def _pulsar(directory: Path, settings: Mapping[str, str]) -> Iterator[ApachePulsar]:
    try:
        with running(directory, settings, java_options=SHORT_LIVED) as pulsar:
            yield pulsar
    except UnavailableError as missing:
        pytest.skip(str(missing))
