# SPDX-License-Identifier: Apache-2.0
"""The official client, unchanged, against our broker: one broker for the tests of a file, a client for each test."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pulsar
import pytest

from broker_core.testing.running_broker import RunningBroker

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker whose Failover consumers take over at once, so that tests need not wait for the usual second."""
    settings = {"activeConsumerFailoverDelayTimeMillis": 0}
    with RunningBroker(tmp_path_factory.mktemp("broker") / "data", settings) as running:
        yield running
        assert "Traceback" not in running.stderr


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[pulsar.Client]:
    """A client of that broker."""
    with closing(new_client(broker)) as connected:
        yield connected


@pytest.fixture
def new_client_of(broker: RunningBroker) -> Iterator[Callable[[], pulsar.Client]]:
    """Makes further clients of that broker, which the test may close; the others are closed after it."""
    made: list[pulsar.Client] = []

    def make() -> pulsar.Client:
        made.append(new_client(broker))
        return made[-1]

    yield make
    for connected in made:
        with suppress(pulsar.AlreadyClosed):
            connected.close()


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"persistent://public/default/compat-{next(_numbers)}"


def new_client(broker: RunningBroker) -> pulsar.Client:
    """A quiet official client."""
    return pulsar.Client(
        broker.service_url,
        operation_timeout_seconds=60,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
