# SPDX-License-Identifier: Apache-2.0
"""Every behaviour runs in ten cells: five clients, each on our broker and on Apache Pulsar.

Some run in these cells for each kind of access, too; the environment may choose one kind for all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from broker_core.testing.running_broker import RunningBroker
from tests.apache_pulsar.shared import SECURED as APACHE_SECURED
from tests.apache_pulsar.start import ApachePulsar, UnavailableError
from tests.behaviour.access import KINDS, PLAIN, SECURED, WITH_TLS, Access, Kind
from tests.behaviour.cell import Cell
from tests.behaviour.driver import DrivenClient, Driver
from tests.behaviour.exceptions import EXCEPTIONS
from tests.behaviour.go_client import start_go
from tests.behaviour.interface import AnyClient
from tests.behaviour.java_client import VERSION, start_java
from tests.behaviour.our_client import OurClient
from tests.behaviour.python_client import PythonClient
from tests.behaviour.rust_client import start_rust
from tests.behaviour.servers import SecuredServer, on_apache, on_ours
from tests.client.conftest import Service

IN_PYTHON: Final[Mapping[str, Callable[[str, Access], AnyClient]]] = {"ours": OurClient, "python": PythonClient}
CLIENTS: Final = (*IN_PYTHON, "java", "go", "rust")
WITH_TRANSACTIONS: Final = ("ours", "java", "go")
"""Clients that can begin one; ``test_clients_have_transactions`` shows that the others cannot."""
WITHOUT_VALUES: Final = ("rust",)
"""Clients that send schemas, and leave values to their users."""

IMPATIENCE_MS: Final = 2_000
"""How long a behaviour that must fail waits for a message, which is as long as it takes on most machines."""

KIND: Final = "PULSARISH_TEST_ACCESS"
"""The environment's name for the kind of access in which all behaviours run; a test that is about others does not."""

IN_ALL_KINDS: Final = frozenset(
    {"test_a_message_arrives_as_it_was_sent", "test_a_topic_that_is_unloaded_loses_nothing"}
)
"""Behaviours that run in all kinds in every run of the tests."""

IN_ALL_KINDS_AMONG_PEERS: Final = frozenset(
    {
        "test_a_consumer_reads_records_of_another_version",
        "test_a_key_stays_on_its_partition",
        "test_a_message_of_11_mib_arrives_whole",
        "test_a_message_that_is_refused_for_ever_becomes_a_dead_letter",
        "test_a_pattern_finds_its_topics",
        "test_a_reader_knows_whether_there_is_more",
        "test_a_table_holds_the_newest_value_of_each_key",
        "test_messages_are_taken_and_made_in_one_transaction",
        "test_messages_of_several_schemas_have_versions_of_their_own",
        "test_seek_by_time_moves_all_partitions",
        "test_unsubscribing_forgets_the_position",
    }
)
"""Behaviours that do so among the tests of peers: with those above they send each command that needs a right."""

OURS: Final = "pulsarish"
OURS_SECURED: Final = "pulsarish-secured"
APACHE: Final = "apache"
APACHE_TRANSACTIONS: Final = "apache-transactions"


@pytest.hookimpl(tryfirst=True)  # so that the names of tests begin with the server and the client
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The servers of a behaviour, each broker for each kind of access that it runs in; and its clients."""
    transactional = "transactional" in metafunc.fixturenames
    if "service" in metafunc.fixturenames:
        among_peers = metafunc.function.__name__ in IN_ALL_KINDS_AMONG_PEERS
        servers_of = _servers_of_transactions if transactional else _servers
        servers = [each for kind in _kinds(metafunc) for each in servers_of(kind, among_peers=among_peers)]
        metafunc.parametrize(("server", "access"), servers)
    if "cell" in metafunc.fixturenames:
        limited = transactional and "all_clients" not in metafunc.fixturenames
        metafunc.parametrize("cell", WITH_TRANSACTIONS if limited else CLIENTS, indirect=True)


def _kinds(metafunc: pytest.Metafunc) -> Sequence[Kind]:
    name, fixtures = metafunc.function.__name__, metafunc.fixturenames
    possible = WITH_TLS if "tls_server" in fixtures else SECURED if "secured_server" in fixtures else KINDS
    if chosen := os.environ.get(KIND):
        return [kind for kind in possible if kind == chosen]
    is_plain = possible is KINDS and name not in IN_ALL_KINDS | IN_ALL_KINDS_AMONG_PEERS
    return (PLAIN.kind,) if is_plain else possible


def _servers(kind: Kind, *, among_peers: bool) -> Iterable[object]:
    """Ours and Apache Pulsar; ``among_peers``: also ours is left to the tests of peers."""
    pulsar = pytest.mark.pulsar
    if kind == PLAIN.kind:
        return pytest.param(OURS, kind, id=OURS), pytest.param(APACHE, kind, id=APACHE, marks=pulsar)
    return (
        pytest.param(OURS_SECURED, kind, id=f"{OURS}-{kind}", marks=[pulsar] if among_peers else []),
        pytest.param(APACHE_SECURED, kind, id=f"{APACHE}-{kind}", marks=pulsar),
    )


def _servers_of_transactions(kind: Kind, *, among_peers: bool) -> Iterable[object]:
    """The same with transactions. Apache Pulsar with security has none here, so comparing rigs leave out ours too."""
    ours, _ = _servers(kind, among_peers=among_peers)
    if kind == PLAIN.kind:
        return ours, pytest.param(APACHE_TRANSACTIONS, kind, id=APACHE, marks=pytest.mark.pulsar)
    return () if KIND in os.environ else (ours,)


@pytest.fixture(scope="session")
def our_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Ours, which asks nobody who he is."""
    with RunningBroker(tmp_path_factory.mktemp("open") / "data") as broker:
        yield broker


@pytest.fixture(scope="session")
def our_secured_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    """Ours, which asks everybody who he is."""
    with on_ours(tmp_path_factory.mktemp("secured")) as server:
        yield server


@pytest.fixture
def secured_server(server: str, request: pytest.FixtureRequest) -> SecuredServer:
    """The server of a test that is about identities and rights; such tests run in all kinds but the plain one."""
    if server == OURS_SECURED:
        ours: SecuredServer = request.getfixturevalue("our_secured_broker")
        return ours
    return on_apache(request.getfixturevalue("secured"))


@pytest.fixture
def tls_server(secured_server: SecuredServer) -> SecuredServer:
    """The server of a test that is about TLS, in the kinds that have it."""
    return secured_server


@pytest.fixture
def service(server: str, access: Kind, request: pytest.FixtureRequest) -> Service:
    """The server for clients of this kind of access."""
    if server == OURS:
        broker: RunningBroker = request.getfixturevalue("our_broker")
        return Service(OURS, broker.service_url, broker.http_url)
    if server in (APACHE, APACHE_TRANSACTIONS):
        fixture = "apache_pulsar" if server == APACHE else "apache_pulsar_transactions"
        pulsar: ApachePulsar = request.getfixturevalue(fixture)
        return Service(APACHE, pulsar.service_url, pulsar.http_url)
    secured: SecuredServer = request.getfixturevalue("secured_server")
    return secured.service(access)


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


@pytest.fixture(scope="session")
def rust_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """The process of the Rust client, which needs cargo."""
    with _running(start_rust, tmp_path_factory.mktemp("rust-client")) as driver:
        yield driver


@pytest.fixture
def transactional() -> None:
    """For behaviours in which transactions are begun: the servers have them, and clients too, where they can."""


@pytest.fixture
def all_clients() -> None:
    """For those of them that are also about clients which cannot begin one."""


@pytest.fixture
def cell(request: pytest.FixtureRequest, service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cell]:
    """One client on one server. A behaviour that must fail does so without the patience of others."""
    kind = request.param
    if request.node.get_closest_marker("xfail") is not None:
        monkeypatch.setattr(f"{Cell.__module__}.PATIENCE_MS", IMPATIENCE_MS)
    if kind in IN_PYTHON:
        made = Cell(kind, service, IN_PYTHON[kind])
    else:
        driver: Driver = request.getfixturevalue(f"{kind}_driver")
        begins = "transactional" in request.fixturenames
        options = {"transactions": begins, "by_hand": kind in WITHOUT_VALUES}
        made = Cell(kind, service, lambda url, access: DrivenClient(driver, url, access, **options))
    yield made
    made.close()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What the table lists must fail."""
    for item in items:
        call = getattr(item, "callspec", None)
        if call is None or "cell" not in call.params or not isinstance(call.params.get("server"), str):
            continue  # without a server the kind that was chosen is not one of its kinds
        client, server = call.params["cell"], call.params["server"].partition("-")[0]
        name, parameters = getattr(item, "originalname", item.name), call.id.partition(f"{client}-")[2]
        for each in EXCEPTIONS:
            if each.covers((name, f"{name}[{parameters}]"), client, server, call.params["access"]):
                runs = KIND in os.environ or not each.waits
                item.add_marker(pytest.mark.xfail(reason=each.reason, strict=True, run=runs))
