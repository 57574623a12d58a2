# SPDX-License-Identifier: Apache-2.0
"""One behaviour suite over two servers: a test that takes ``service`` (or what is made of it) runs on both."""

import itertools
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import pytest

from broker_core.base.names import TopicName
from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from tests.apache_pulsar.web import Web
from tests.behaviour.access import PLAIN, Access


@dataclass(frozen=True)
class Service:
    """A running server: ours, or a real Apache Pulsar.

    ``access`` opens it to clients, whose role has the rights that it is granted; ``web`` is its web port for a role
    that may do everything, where not everybody may.
    """

    kind: str
    service_url: str
    http_url: str
    access: Access = PLAIN
    web: Web | None = None

    @property
    def tells_indexes(self) -> bool:
        """Apache Pulsar does so only if it is configured to."""
        return self.kind == "pulsarish"

    def admin(self, method: str, path: str, body: str | None = None) -> bytes:
        """One admin request; RuntimeError if it is refused."""
        web = self.web or Web(self.http_url)
        return web.call(method, f"/admin/v2/{path}", body).encode()

    def grant(self, namespace: str, *actions: str) -> None:
        """Let clients produce, or consume, in a namespace; nothing to do where everybody may."""
        if self.access.role:
            self.admin("POST", f"namespaces/{namespace}/permissions/{self.access.role}", json.dumps(actions))

    def create_partitioned(self, topic: str, partitions: int) -> None:
        self.admin("PUT", f"{admin_path(topic)}/partitions", str(partitions))


def admin_path(topic: str) -> str:
    """The part of an admin URL that names a topic."""
    name = TopicName.parse(topic)
    return f"{name.domain}/{name.tenant}/{name.namespace}/{quote(name.local, safe='')}"


@pytest.fixture(scope="session", params=["pulsarish", pytest.param("apache", marks=pytest.mark.pulsar)])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Each test runs on our broker and on a real Apache Pulsar."""
    if request.param == "pulsarish":
        with RunningBroker(tmp_path_factory.mktemp("client") / "data") as broker:
            yield Service("pulsarish", broker.service_url, broker.http_url)
    else:
        pulsar = request.getfixturevalue("apache_pulsar")
        yield Service("apache", pulsar.service_url, pulsar.http_url)


TRANSACTIONAL: Final = (
    "pulsarish",
    pytest.param("apache-transactions", marks=pytest.mark.pulsar),
)
"""Brokers that have transactions: "pulsarish" is ours."""


@contextmanager
def transactional(
    kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """One of ``TRANSACTIONAL``, for the fixture ``service`` of tests that need transactions."""
    if kind == "pulsarish":
        settings = {"transactionCoordinatorEnabled": True}
        with RunningBroker(tmp_path_factory.mktemp("transactions") / "data", settings=settings) as broker:
            yield Service("pulsarish", broker.service_url, broker.http_url)
    else:
        pulsar = request.getfixturevalue("apache_pulsar_transactions")
        yield Service("apache", pulsar.service_url, pulsar.http_url)


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    """Our blocking client, closed at the end."""
    with Client(service.service_url, operation_timeout_s=15) as opened:
        yield opened


@pytest.fixture
def new_topic() -> Callable[[], str]:
    """Makes names of topics that no other test uses."""
    numbers = itertools.count()
    mark = uuid.uuid4().hex[:10]
    return lambda: f"persistent://public/default/test-{mark}-{next(numbers)}"


@pytest.fixture
def topic(new_topic: Callable[[], str]) -> str:
    """A topic that no other test uses."""
    return new_topic()
