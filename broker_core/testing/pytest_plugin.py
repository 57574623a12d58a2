# SPDX-License-Identifier: Apache-2.0
"""The fixture ``pulsarish_broker`` for everybody's tests: pytest loads this module in each environment that has us.

So the module imports nothing but pytest, which no other module of the product imports; a broker's modules are loaded
by the first test that takes the fixture. Source: pytest docs, "Making your plugin installable by others".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from broker_core.testing.running_broker import RunningBroker

SCOPE = "pulsarish_broker_scope"
"""Setting of pytest: how many tests share a broker, by pytest's names of scopes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        SCOPE, "which tests share the broker of pulsarish_broker: function, class, module, session", default="function"
    )


def _scope(fixture_name: str, config: pytest.Config) -> Any:
    return config.getini(SCOPE)


@pytest.fixture(scope=_scope)
def pulsarish_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker process on free ports, with data of its own, gone after the test: ``service_url``, ``http_url``."""
    from broker_core.testing.running_broker import RunningBroker

    with RunningBroker(tmp_path_factory.mktemp("pulsarish") / "data") as broker:
        yield broker
