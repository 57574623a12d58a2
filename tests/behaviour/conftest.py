# SPDX-License-Identifier: Apache-2.0
"""Every behaviour runs in eight cells: four clients, each on our broker and on Apache Pulsar."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.apache_pulsar.start import UnavailableError
from tests.behaviour.access import Access
from tests.behaviour.cell import Cell
from tests.behaviour.driver import DrivenClient, Driver
from tests.behaviour.exceptions import EXCEPTIONS
from tests.behaviour.go_client import start_go
from tests.behaviour.interface import AnyClient
from tests.behaviour.java_client import VERSION, start_java
from tests.behaviour.our_client import OurClient
from tests.behaviour.python_client import PythonClient
from tests.client.conftest import Service, service  # noqa: F401 - a fixture

IN_PYTHON: Final[Mapping[str, Callable[[str, Access], AnyClient]]] = {"ours": OurClient, "python": PythonClient}
CLIENTS: Final = (*IN_PYTHON, "java", "go")


@contextmanager
def _running(start: Callable[[Path], Driver], folder: Path) -> Iterator[Driver]:
    """The process of a client; skips where what it is built with is missing."""
    try:
        driver = start(folder / "log")
    except UnavailableError as missing:
        pytest.skip(str(missing))
    yield driver
    driver.end()


@pytest.fixture(scope="session")
def java_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """The process of the Java client, which needs Java, javac and Maven."""
    version = os.environ.get(VERSION)
    with _running(lambda log: start_java(log, version), tmp_path_factory.mktemp("java-client")) as driver:
        yield driver


@pytest.fixture(scope="session")
def go_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """The process of the Go client, which needs Go."""
    with _running(start_go, tmp_path_factory.mktemp("go-client")) as driver:
        yield driver


@pytest.fixture(params=CLIENTS)
def cell(request: pytest.FixtureRequest, service: Service) -> Iterator[Cell]:  # noqa: F811 - the fixture of above
    """One client on one server."""
    kind = request.param
    if kind in IN_PYTHON:
        made = Cell(kind, service, IN_PYTHON[kind])
    else:
        driver: Driver = request.getfixturevalue(f"{kind}_driver")
        made = Cell(kind, service, lambda url, access: DrivenClient(driver, url, access))
    yield made
    made.close()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What the table lists must fail."""
    for item in items:
        cell = getattr(item, "callspec", None)
        if cell is None or not {"cell", "service"} <= cell.params.keys():
            continue
        name = getattr(item, "originalname", item.name)
        for each in EXCEPTIONS:
            if each.covers(name, cell.params["cell"], cell.params["service"]):
                item.add_marker(pytest.mark.xfail(reason=each.reason, strict=True))
