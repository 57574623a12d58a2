# SPDX-License-Identifier: Apache-2.0
"""Tests of several folders: how they are spread over processes, and the real Apache Pulsars that they share.

Owns the order in which groups start: the long ones first, so that no worker is left with one at the end.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, settings

from broker_core.testing.running_broker import RunningBroker
from scripts.archive_spark_classes import spark_options
from tests.apache_pulsar.secured import Secured
from tests.apache_pulsar.shared import SECURED, Asking, Host, Listening, Pulsars
from tests.apache_pulsar.start import ApachePulsar, UnavailableError
from tests.fork_server import ForkServer

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

# How long an example takes says more about the machine's other work than about the code. The same code gets the same
# examples, so that a run fails for what was changed; ``make soak`` and ``make sim`` look for what nobody has seen.
settings.register_profile("repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")

# What is imported and collected stays: a fifth of the time of collecting went into looking for what does not.
gc.disable()

# Tests start hundreds of Python processes, and each would compile our modules again where the environment forbids to
# keep them compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

FETCHED_CLIENTS: Final = ("java", "go", "rust")
"""Cells of official clients that Maven, Go and cargo bring and build. Each is a group of its own, with one process."""

LONGEST_FIRST: Final = (
    "spark-programs",
    "spark",
    *FETCHED_CLIENTS,
    "tests/kill/",
    "tests/test_dice.py",
    "tests/storage/test_crash",
)
"""Beginnings of the names of groups that take longest. Those behind them fill the gaps; the slow ones of them begin."""

PROGRAMS: Final = (
    "tests/benchmarks/",
    "tests/damage/",
    "tests/examples/",
    "tests/flood/",
    "tests/fuzz/",
    "tests/kill/",
    "tests/lockstep/",
    "tests/routing/",
    "tests/spark/test_connect.py",
    "tests/spark/test_machines.py",
    "tests/spark/test_page_examples.py",
    "tests/spark/test_pipelines.py",
    "tests/test_readme.py::test_the_example_runs",
    "tests/wire/test_batch_environment.py::test_uncompiled_and_without_cython",
    "tests/wire/test_in_bounds.py",
)
"""Beginnings of the names of tests that run whole programs: examples, notebooks, the pages' jobs, rigs. Each starts
processes of its own, a Spark or a compiler among them, so that together they take as long as a third of all others."""

READ_ALL_CODE: Final = frozenset({"test_layers.py", "test_repository.py", "test_rules.py"})
"""Files of tests that parse all files of the project: one worker does it for all of them."""

FIXTURES: Final = {
    "apache": "apache_pulsar",
    "apache-indexed": "apache_pulsar_indexed",
    "apache-transactions": "apache_pulsar_transactions",
    "apache-indexed-transactions": "apache_pulsar_indexed_transactions",
    SECURED: "secured",
}
"""Kind of Apache Pulsar -> the fixture that has it. Parameters of other fixtures name the kind."""

NICENESS: Final = 5
"""Of workers that have no Spark: each then gets a third of what a process of Spark's gets where both want all."""

_LISTENING: Final = pytest.StashKey[Listening]()


def pytest_configure() -> None:
    """Every Spark that is started by a test, or by a program that a test starts, compiles and loads little."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_options())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell a worker where to ask for what all workers share."""
    if _LISTENING not in node.config.stash:
        node.config.stash[_LISTENING] = Listening()
    node.workerinput["pulsars"] = node.config.stash[_LISTENING].path


def pytest_unconfigure(config: pytest.Config) -> None:
    """Servers that were started for all workers end after them."""
    if (listening := config.stash.get(_LISTENING, None)) is not None:
        listening.close()


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together what shares something expensive, for ``--dist loadgroup --no-loadscope-reorder``.

    Everything on the shared Spark session runs in one worker, everything that starts a Spark of its own in another, so
    that there is one of these at a time, and everything that uses the Java client in one too, as the Go and the Rust
    client. Other tests stay with their file, whose fixtures then start once; those of a file that need a real Pulsar
    are a group of their own, as there is one Pulsar for all workers. Tests with the marker ``apart`` share nothing and
    need not stay together.
    """
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
        if _group(item) in FETCHED_CLIENTS:
            item.add_marker(pytest.mark.pulsar)
        if item.nodeid.startswith(PROGRAMS):
            item.add_marker(pytest.mark.programs)
    items.sort(key=_turn)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A worker that has no Spark lets those go first that have one.

    Spark waits 10 s for a Python process, a constant, and its start takes 1.2 s of CPU: a fifth of a core is too little
    for it. The worker stays so, as only root may take it back.
    """
    if hasattr(item.config, "workerinput") and not _group(item).startswith("spark"):
        os.nice(max(0, NICENESS - os.nice(0)))


def pytest_collection_finish() -> None:
    """Garbage collections never look through what importing and collecting thousands of tests has made."""
    gc.freeze()
    gc.enable()


def _kinds(item: pytest.Item) -> list[str]:
    """The kinds of the shared Apache Pulsars that a test runs on."""
    call = getattr(item, "callspec", None)
    chosen = () if call is None else call.params.values()
    fixtures = getattr(item, "fixturenames", ())
    return [kind for kind, fixture in FIXTURES.items() if kind in chosen or fixture in fixtures]


def _group(item: pytest.Item) -> str:
    if item.get_closest_marker("spark"):
        return "spark" if "spark" in getattr(item, "fixturenames", ()) else "spark-programs"
    call = getattr(item, "callspec", None)
    if call is not None and (client := call.params.get("cell")) in FETCHED_CLIENTS:
        return str(client)
    if item.get_closest_marker("apart"):
        return item.nodeid
    if item.path.name in READ_ALL_CODE:
        return "code"
    return " on ".join([item.nodeid.partition("::")[0], *_kinds(item)])


def _turn(item: pytest.Item) -> int:
    group = _group(item)
    for turn, beginning in enumerate(LONGEST_FIRST):
        if group.startswith(beginning):
            return turn
    return len(LONGEST_FIRST) + (0 if _kinds(item) else 1 if item.get_closest_marker("slow") else 2)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Signals reach this process and its children as from a terminal.

    Workers of the test runner ignore SIGINT, and everything that nohup started ignores SIGHUP: children inherit both.
    """
    usual = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGHUP)]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in usual:
        signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def _quick_brokers() -> Iterator[None]:
    """Brokers are forked from a process that has imported all they need. Only Linux can be trusted with a fork."""
    if sys.platform != "linux":
        yield
        return
    usual, server = RunningBroker.launch, ForkServer()
    RunningBroker.launch = server.launch
    yield
    RunningBroker.launch = usual
    server.close()


@pytest.fixture(scope="session", autouse=True)
def pulsars(request: pytest.FixtureRequest) -> Iterator[Pulsars]:
    """Where an Apache Pulsar is had from. Its start takes half a minute, so it begins with the first test of all."""
    path = getattr(request.config, "workerinput", {}).get("pulsars")
    with contextlib.ExitStack() as stack:
        shared: Pulsars
        if path is None:
            shared = host = Host()
            stack.callback(host.close)
        else:
            shared = Asking(path)
        for kind in sorted({kind for item in request.session.items for kind in _kinds(item)}):
            shared.begin(kind)
        yield shared


@pytest.fixture(scope="session")
def apache_pulsar(pulsars: Pulsars) -> ApachePulsar:
    """A real Apache Pulsar; tests that use it have the marker ``pulsar``. Skips where there is no Java or Maven.

    All workers share it: whoever stops it, or changes what is not a topic's or a namespace's own, starts another one.
    """
    return _got(pulsars, "apache")


@pytest.fixture(scope="session")
def apache_pulsar_indexed(pulsars: Pulsars) -> ApachePulsar:
    """One that tells clients the index of each message, as ours does. All workers share it too."""
    return _got(pulsars, "apache-indexed")


@pytest.fixture(scope="session")
def apache_pulsar_transactions(pulsars: Pulsars) -> ApachePulsar:
    """One that has transactions. All workers share it too."""
    return _got(pulsars, "apache-transactions")


@pytest.fixture(scope="session")
def apache_pulsar_indexed_transactions(pulsars: Pulsars) -> ApachePulsar:
    """One that has them and tells indexes. All workers share it too."""
    return _got(pulsars, "apache-indexed-transactions")


@pytest.fixture(scope="session")
def secured(pulsars: Pulsars) -> Secured:
    """One with TLS, authentication and authorization. All workers share it: roles of a test have names of its own."""
    return Secured(_got(pulsars, SECURED))


def _got(pulsars: Pulsars, kind: str) -> ApachePulsar:
    try:
        return pulsars.get(kind)
    except UnavailableError as missing:
        pytest.skip(str(missing))
