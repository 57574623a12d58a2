# SPDX-License-Identifier: Apache-2.0
"""One broker process for the tests of a file, and a new topic name for each test."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.testing.running_broker import RunningBroker

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with default settings."""
    with RunningBroker(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running
        assert "Traceback" not in running.stderr


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory that does not exist yet."""
    return tmp_path / "data"


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"persistent://public/default/topic-{next(_numbers)}"
