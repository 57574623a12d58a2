# SPDX-License-Identifier: Apache-2.0
"""One broker process for the tests of a file, and a new topic name for each test."""

import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from broker_core.testing.running_broker import RunningBroker
from tests.apache_pulsar.start import ApachePulsar
from tests.server.oracle import Both, Side

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with default settings."""
    with RunningBroker(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running
        assert "Traceback" not in running.stderr


@pytest.fixture
def both(broker: RunningBroker, apache_pulsar: ApachePulsar) -> Both:
    """Our broker and a real Pulsar, and the name of a namespace that a test makes on both and shares with no other."""
    ours = Side(broker.http_url, broker.service_url)
    theirs = Side(apache_pulsar.http_url, apache_pulsar.service_url)
    return Both(ours, theirs, f"public/o{uuid.uuid4().hex[:8]}")


@pytest.fixture
def http(broker: RunningBroker) -> Iterator[httpx.Client]:
    """A client of the admin REST."""
    with httpx.Client(base_url=f"{broker.http_url}/admin/v2", timeout=60) as client:
        yield client


@pytest.fixture
def path(topic: str) -> str:
    """The path of the topic of this test in the admin REST."""
    return "/" + topic.replace("://", "/")


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory that does not exist yet."""
    return tmp_path / "data"


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"persistent://public/default/topic-{next(_numbers)}"


@pytest.fixture
def namespace(http: httpx.Client) -> str:
    """A namespace of the test's own with the topic ``t`` and the partitioned ``q``."""
    name = f"public/n{uuid.uuid4().hex[:8]}"
    assert http.put(f"/namespaces/{name}").status_code == 204
    assert http.put(f"/persistent/{name}/t").status_code == 204
    assert http.put(f"/persistent/{name}/q/partitions", json=2).status_code == 204
    return name
