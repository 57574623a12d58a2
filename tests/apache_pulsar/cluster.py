# SPDX-License-Identifier: Apache-2.0
"""Starts an Apache Pulsar cluster on loopback: ZooKeeper, a bookie, two brokers; for what a single broker cannot show.

Owns: the four processes and their configuration, killing and starting a broker, who serves a topic, and what a client
must say to be let in. What a standalone needs as well is ``start``'s; certificates and tokens are ``secured``'s. A
secure cluster has no port without TLS, so that whoever does not follow a redirect with TLS fails.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.apache_pulsar.secured import ADMIN, ca_of, prepared, token, web_of_admin
from tests.apache_pulsar.start import (
    SHORT_LIVED,
    START_S_MAX,
    held_ports,
    jvm,
    started,
    wait_until_ready,
)
from tests.apache_pulsar.web import Web

BROKERS: Final = 2
NAME: Final = "cluster"
MOVE_S_MAX: Final = 10.0
UNLOADS_MAX: Final = 10

HOST: Final = "localhost"
"""By which brokers are called, as in the certificate. They listen on 127.0.0.1 alone."""

USER: Final = "user"
"""The role that may produce and consume in public/default of a secure cluster, and do nothing else."""

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
    "advertisedAddress": HOST,
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
    secure: bool
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def service_url(self) -> str:
        return f"{_scheme(secure=self.secure)}://{self.address}"

    @property
    def web(self) -> Web:
        """Its web port, for a role that may do everything."""
        place = f"{HOST}:{self.web_port}"
        return web_of_admin(self.directory, f"https://{place}") if self.secure else Web(f"http://{place}")

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
        wait_until_ready(self.process, self.web, self.log)

    def kill(self) -> None:
        """As if its machine had lost power."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@dataclass(slots=True)
class Cluster:
    """A running cluster."""

    directory: Path
    secure: bool
    brokers: list[ClusterBroker] = field(default_factory=list)

    @property
    def service_url(self) -> str:
        """Both brokers: clients try one after the other."""
        return f"{_scheme(secure=self.secure)}://" + ",".join(each.address for each in self.brokers)

    @property
    def ca(self) -> str:
        """The file of the CA to trust; "" for a cluster that is not secure."""
        return ca_of(self.directory) if self.secure else ""

    @property
    def token(self) -> str:
        """The token of ``USER``; "" for a cluster that is not secure."""
        return token(USER) if self.secure else ""

    @property
    def admin_token(self) -> str:
        """The token of the role that may do everything; "" for a cluster that is not secure."""
        return token(ADMIN) if self.secure else ""

    def wait(self) -> None:
        """Return when all brokers are well, those too that were launched again."""
        for broker in self.brokers:
            broker.wait()

    def owner(self, topic: str) -> ClusterBroker:
        """The broker that serves a topic of public/default, or one partition."""
        asked = next(each for each in self.brokers if each.process is not None and each.process.poll() is None)
        found = json.loads(asked.web.call("GET", f"/lookup/v2/topic/persistent/public/default/{topic}"))
        url = found["brokerUrlTls" if self.secure else "brokerUrl"]
        return next(each for each in self.brokers if each.service_url == url)

    def owner_now(self, topic: str) -> ClusterBroker | None:
        """As ``owner`` while a bundle changes hands or a broker dies; None where a lookup fails for that."""
        with contextlib.suppress(RuntimeError, OSError):
            return self.owner(topic)
        return None

    def other(self, broker: ClusterBroker) -> ClusterBroker:
        return next(each for each in self.brokers if each is not broker)

    def move(self, topic: str) -> None:
        """Give the bundle of a topic to the other broker, and return when that serves it.

        Pulsar may answer an unload well and leave the bundle where it is, so it is asked again.
        """
        other = self.other(self.owner(topic))
        to = f"{HOST}:{other.web_port}"
        for _ in range(UNLOADS_MAX):
            if (broker := self.owner(topic)) is other:
                return
            bundle = broker.web.call("GET", f"/lookup/v2/topic/persistent/public/default/{topic}/bundle")
            broker.web.call("PUT", f"/admin/v2/namespaces/public/default/{bundle}/unload?destinationBroker={to}")
            with contextlib.suppress(TimeoutError):
                until(lambda: self.owner_now(topic) is other, f"{topic} is served by {to}", MOVE_S_MAX)
        raise TimeoutError(f"{topic} was not given to {to} though it was unloaded {UNLOADS_MAX} times")


@contextlib.contextmanager
def running_cluster(
    directory: Path, settings: Mapping[str, str] | None = None, *, secure: bool = False
) -> Iterator[Cluster]:
    """Run one in ``directory``; ``settings`` are the brokers'. UnavailableError where this machine cannot.

    ``secure``: with TLS alone, tokens and authorization.
    """
    directory.mkdir(parents=True, exist_ok=True)
    given = {**(_secured(directory) if secure else {}), **(settings or {})}
    with held_ports(2 + 2 * BROKERS) as (zookeeper, bookie, *others), contextlib.ExitStack() as running:
        store = f"zk:127.0.0.1:{zookeeper}"
        ports = [(others[2 * number], others[2 * number + 1]) for number in range(BROKERS)]
        brokers = [ClusterBroker(directory, number, *mine, secure) for number, mine in enumerate(ports)]
        cluster = Cluster(directory, secure, brokers)
        running.callback(_end_brokers, cluster)
        _run(running, directory, "zookeeper", ("org.apache.zookeeper.server.ZooKeeperServerMain",), {
            **ZOOKEEPER, "clientPort": str(zookeeper), "dataDir": str(directory / "zookeeper"),
        })  # fmt: skip
        until(lambda: _listens(zookeeper), "ZooKeeper listens")
        _make_cluster(store, brokers[0])
        _run(running, directory, "bookie", ("org.apache.bookkeeper.server.Main", "--conf"), {
            **BOOKIE, "bookiePort": str(bookie), "metadataServiceUri": f"metadata-store:{store}",
            "journalDirectories": str(directory / "journal"), "ledgerDirectories": str(directory / "ledgers"),
        })  # fmt: skip
        until(lambda: _listens(bookie), "the bookie listens")
        for broker in brokers:
            _write(directory / f"broker-{broker.number}.conf", {**_settings(broker, store), **given})
            broker.launch()
        cluster.wait()
        if secure:
            path = f"/admin/v2/namespaces/public/default/permissions/{USER}"
            brokers[0].web.call("POST", path, '["produce", "consume"]')
        yield cluster


def _settings(broker: ClusterBroker, store: str) -> Mapping[str, str]:
    tls = "Tls" if broker.secure else ""
    ports = {f"brokerServicePort{tls}": str(broker.port), f"webServicePort{tls}": str(broker.web_port)}
    stores = {"metadataStoreUrl": store, "configurationMetadataStoreUrl": store}
    # A port that is not named has its default.
    return {
        **BROKER, "brokerServicePort": "", "webServicePort": "", **ports, **stores,
        "narExtractionDirectory": str(broker.directory / "nar"),
    }  # fmt: skip


def _secured(directory: Path) -> Mapping[str, str]:
    """What makes brokers secure, and has them call each other with TLS."""
    return {
        **prepared(directory),
        "brokerClientTlsEnabled": "true",
        "brokerClientTrustCertsFilePath": ca_of(directory),
    }


def _run(
    running: contextlib.ExitStack, directory: Path, name: str, main: tuple[str, ...], values: Mapping[str, str]
) -> None:
    _write(directory / f"{name}.conf", values)
    command = [*jvm(_HELPER), *main, str(directory / f"{name}.conf")]
    process = started(directory, command, directory / f"{name}.log")
    running.callback(process.wait)
    running.callback(process.kill)


def _make_cluster(store: str, first: ClusterBroker) -> None:
    """Write the records without which no bookie and no broker starts."""
    command = [
        *jvm(_HELPER), "org.apache.pulsar.PulsarClusterMetadataSetup", "--cluster", NAME, "--metadata-store", store,
        "--configuration-metadata-store", store, "--web-service-url", first.web.url,
        "--broker-service-url", first.service_url, "--default-namespace-bundle-number", "4",
    ]  # fmt: skip
    log = first.directory / "setup.log"
    if started(first.directory, command, log).wait(START_S_MAX):
        raise RuntimeError(f"the cluster's metadata could not be written; see {log}")


def _scheme(*, secure: bool) -> str:
    return "pulsar+ssl" if secure else "pulsar"


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
