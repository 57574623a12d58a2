# SPDX-License-Identifier: Apache-2.0
"""Starts an Apache Pulsar cluster on loopback: ZooKeeper, a bookie, two brokers; for what a single broker cannot show.

Owns: the four processes and their configuration, killing and starting a broker, who serves a topic. What a standalone
needs as well is ``start``'s.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.apache_pulsar.start import (
    SHORT_LIVED,
    START_S_MAX,
    held_ports,
    jvm,
    started,
    wait_until_ready,
)

BROKERS: Final = 2
NAME: Final = "cluster"
REDIRECTS_MAX: Final = 5
MOVE_S_MAX: Final = 10.0
UNLOADS_MAX: Final = 10

ZOOKEEPER: Final = {"clientPortAddress": "127.0.0.1", "tickTime": "2000", "forceSync": "no"}

BOOKIE: Final = {
    "advertisedAddress": "127.0.0.1",
    "allowLoopback": "true",
    "listeningInterface": "lo",
    "httpServerEnabled": "false",
    "autoRecoveryDaemonEnabled": "false",
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "dbStorage_writeCacheMaxSizeMb": "16",
    "dbStorage_readAheadCacheMaxSizeMb": "8",
    "dbStorage_rocksDB_blockCacheSize": "4194304",
    "journalSyncData": "false",
    "journalMaxGroupWaitMSec": "1",
    "journalPreAllocSizeMB": "4",
    "logSizeLimit": "67108864",
    "entryLogFilePreallocationEnabled": "false",
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.985",
    "nettyMaxFrameSizeBytes": "5253120",
}

# Bundles stay where they are until somebody moves them, and pools are small: four Javas share a small machine.
BROKER: Final = {
    "clusterName": NAME,
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "webSocketServiceEnabled": "false",
    "numIOThreads": "2",
    "numHttpServerThreads": "8",
    "numExecutorThreadPoolSize": "2",
    "managedLedgerCacheSizeMB": "32",
    "bookkeeperClientNumWorkerThreads": "2",
    "bookkeeperClientNumIoThreads": "2",
}

_SMALL: Final = ("-Xss512k", *SHORT_LIVED)
_HELPER: Final = (
    "-Xms32m",
    "-Xmx160m",
    "-XX:MaxDirectMemorySize=128m",
    "-Dzookeeper.admin.enableServer=false",
    *_SMALL,
)
_OF_A_BROKER: Final = ("-Xms64m", "-Xmx384m", "-XX:MaxDirectMemorySize=256m", *_SMALL)


@dataclass(slots=True)
class ClusterBroker:
    """One of the brokers: its addresses, and its process while it runs."""

    directory: Path
    number: int
    port: int
    web_port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.directory / f"broker-{self.number}.log"

    def launch(self) -> None:
        """Start it, for the first time or again, without waiting."""
        conf = self.directory / f"broker-{self.number}.conf"
        command = [*jvm(_OF_A_BROKER), "org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", str(conf)]
        self.process = started(self.directory, command, self.log)

    def wait(self) -> None:
        """Return when it is well."""
        assert self.process is not None
        wait_until_ready(self.process, self.web_port, self.log)

    def kill(self) -> None:
        """As if its machine had lost power."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def admin(self, method: str, path: str) -> str:
        """One admin REST call at this broker, or at the one to which it redirects."""
        return _call(method, f"http://127.0.0.1:{self.web_port}{path}")


@dataclass(slots=True)
class Cluster:
    """A running cluster."""

    brokers: list[ClusterBroker] = field(default_factory=list)

    @property
    def service_url(self) -> str:
        """Both brokers: clients try one after the other."""
        return "pulsar://" + ",".join(each.address for each in self.brokers)

    def wait(self) -> None:
        """Return when all brokers are well, those too that were launched again."""
        for broker in self.brokers:
            broker.wait()

    def owner(self, topic: str) -> ClusterBroker:
        """Who serves a topic of public/default, or one partition."""
        asked = next(each for each in self.brokers if each.process is not None and each.process.poll() is None)
        found = json.loads(asked.admin("GET", f"/lookup/v2/topic/persistent/public/default/{topic}"))
        return next(each for each in self.brokers if found["brokerUrl"].endswith(each.address))

    def other(self, broker: ClusterBroker) -> ClusterBroker:
        return next(each for each in self.brokers if each is not broker)

    def move(self, topic: str) -> None:
        """Give the bundle of a topic to the other broker, and return when that serves it.

        Pulsar may answer an unload well and leave the bundle where it is, so it is asked again.
        """
        other = self.other(self.owner(topic))
        to = f"127.0.0.1:{other.web_port}"
        for _ in range(UNLOADS_MAX):
            if (broker := self.owner(topic)) is other:
                return
            bundle = broker.admin("GET", f"/lookup/v2/topic/persistent/public/default/{topic}/bundle")
            broker.admin("PUT", f"/admin/v2/namespaces/public/default/{bundle}/unload?destinationBroker={to}")
            with contextlib.suppress(TimeoutError):
                until(lambda: self.owner(topic) is other, f"{topic} is served by {to}", MOVE_S_MAX)
        raise TimeoutError(f"{topic} was not given to {to} though it was unloaded {UNLOADS_MAX} times")


@contextlib.contextmanager
def running_cluster(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Run one in ``directory``; ``settings`` are the brokers'. UnavailableError where this machine cannot."""
    directory.mkdir(parents=True, exist_ok=True)
    with held_ports(2 + 2 * BROKERS) as (zookeeper, bookie, *others), contextlib.ExitStack() as running:
        store = f"zk:127.0.0.1:{zookeeper}"
        cluster = Cluster([ClusterBroker(directory, n, others[2 * n], others[2 * n + 1]) for n in range(BROKERS)])
        running.callback(_end_brokers, cluster)
        _run(running, directory, "zookeeper", ("org.apache.zookeeper.server.ZooKeeperServerMain",), {
            **ZOOKEEPER, "clientPort": str(zookeeper), "dataDir": str(directory / "zookeeper"),
        })  # fmt: skip
        until(lambda: _listens(zookeeper), "ZooKeeper listens")
        _make_cluster(directory, store, cluster.brokers[0])
        _run(running, directory, "bookie", ("org.apache.bookkeeper.server.Main", "--conf"), {
            **BOOKIE, "bookiePort": str(bookie), "metadataServiceUri": f"metadata-store:{store}",
            "journalDirectories": str(directory / "journal"), "ledgerDirectories": str(directory / "ledgers"),
        })  # fmt: skip
        until(lambda: _listens(bookie), "the bookie listens")
        for broker in cluster.brokers:
            ports = {"brokerServicePort": str(broker.port), "webServicePort": str(broker.web_port)}
            stores = {"metadataStoreUrl": store, "configurationMetadataStoreUrl": store}
            values = {**BROKER, **ports, **stores, "narExtractionDirectory": str(directory / "nar"), **(settings or {})}
            _write(directory / f"broker-{broker.number}.conf", values)
            broker.launch()
        cluster.wait()
        yield cluster


def _run(
    running: contextlib.ExitStack, directory: Path, name: str, main: tuple[str, ...], values: Mapping[str, str]
) -> None:
    _write(directory / f"{name}.conf", values)
    command = [*jvm(_HELPER), *main, str(directory / f"{name}.conf")]
    process = started(directory, command, directory / f"{name}.log")
    running.callback(process.wait)
    running.callback(process.kill)


def _make_cluster(directory: Path, store: str, first: ClusterBroker) -> None:
    """Write the records without which no bookie and no broker starts."""
    command = [
        *jvm(_HELPER), "org.apache.pulsar.PulsarClusterMetadataSetup", "--cluster", NAME, "--metadata-store", store,
        "--configuration-metadata-store", store, "--web-service-url", f"http://127.0.0.1:{first.web_port}",
        "--broker-service-url", f"pulsar://{first.address}", "--default-namespace-bundle-number", "4",
    ]  # fmt: skip
    process = started(directory, command, directory / "setup.log")
    if process.wait(START_S_MAX):
        raise RuntimeError(f"the cluster's metadata could not be written; see {directory / 'setup.log'}")


def _call(method: str, url: str) -> str:
    for _ in range(REDIRECTS_MAX):
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=120)
        try:
            connection.request(method, f"{parts.path}?{parts.query}")
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status < 300:
            return text
        if answer.status != http.HTTPStatus.TEMPORARY_REDIRECT:
            raise RuntimeError(f"{method} {url}: {answer.status} {text}")
        url = answer.headers["Location"]
    raise RuntimeError(f"{method} {url} was redirected {REDIRECTS_MAX} times")


def _end_brokers(cluster: Cluster) -> None:
    for broker in cluster.brokers:
        if broker.process is not None:
            broker.kill()


def _write(path: Path, values: Mapping[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def until(check: Callable[[], bool], what: str, within_s: float = START_S_MAX) -> None:
    """Return when ``check`` holds; TimeoutError if it never does."""
    deadline = time.monotonic() + within_s
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"in {within_s:g} s it never became true that {what}")
        time.sleep(0.1)
