# SPDX-License-Identifier: Apache-2.0
"""Every behaviour runs in six cells: our client and the two official ones, each on our broker and on Apache Pulsar."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.apache_pulsar.start import UnavailableError
from tests.behaviour.access import Access
from tests.behaviour.cell import Cell
from tests.behaviour.driver import DrivenClient, Driver
from tests.behaviour.exceptions import EXCEPTIONS
from tests.behaviour.interface import AnyClient
from tests.behaviour.java_client import VERSION, start_java
from tests.behaviour.our_client import OurClient
from tests.behaviour.python_client import PythonClient
from tests.client.conftest import Service, service  # noqa: F401 - a fixture

CLIENTS = ("ours", "python", "java")


@pytest.fixture(scope="session")
def java_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """The process of the Java client; skips where Java, javac or Maven is missing."""
    try:
        driver = start_java(tmp_path_factory.mktemp("java-client") / "log", os.environ.get(VERSION))
    except UnavailableError as missing:
        pytest.skip(str(missing))
    yield driver
    driver.end()


@pytest.fixture(params=CLIENTS)
def cell(request: pytest.FixtureRequest, service: Service) -> Iterator[Cell]:  # noqa: F811 - the fixture of above
    """One client on one server."""
    kind = request.param
    makers: dict[str, Callable[[str, Access], AnyClient]] = {"ours": OurClient, "python": PythonClient}
    if kind == "java":
        driver: Driver = request.getfixturevalue("java_driver")
        makers["java"] = lambda url, access: DrivenClient(driver, url, access)
    made = Cell(kind, service, makers[kind])
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
