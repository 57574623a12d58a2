# SPDX-License-Identifier: Apache-2.0
"""Starts a standalone Apache Pulsar (broker, one bookie, RocksDB metadata) from Maven's jars, for tests.

Owns: finding Java and Maven, the class path, the configuration, the process. Needs no download of the distribution.
As a program: ``python -m tests.apache_pulsar.start DIRECTORY [key=value ...]`` runs one until it is interrupted.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.apache_pulsar.web import Web

HERE: Final = Path(__file__).resolve().parent
START_S_MAX: Final = 400.0
"""Ready takes 8 s with warm files; a two-core machine that was busy with thirty others has needed two minutes."""

MEMORY: Final = ("-Xms256m", "-Xmx2g", "-XX:MaxDirectMemorySize=2g")

LONG_LIVED: Final = ("-XX:+UseG1GC",)
SHORT_LIVED: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a Java that lives for minutes and is not measured: optimised code would not earn back what compiling it costs."""

# Netty and BookKeeper reach into packages that Java 17 keeps closed.
OPENED: Final = (
    "java.base/java.io",
    "java.base/java.nio",
    "java.base/java.util.zip",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/sun.net",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)

METADATA_DRIVERS: Final = {
    "bookkeeper.metadata.bookie.drivers": "org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver",
    "bookkeeper.metadata.client.drivers": "org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver",
}

# The broker's built-in defaults are for a cluster; this is what a single node needs, and nothing else.
SETTINGS: Final = {
    "clusterName": "standalone",
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "allowLoopback": "true",
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.NoopLoadManager",
    "loadBalancerEnabled": "false",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "webSocketServiceEnabled": "false",
    "managedLedgerNewEntriesCheckDelayInMillis": "0",
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "journalSyncData": "false",
    "retentionCheckIntervalInSeconds": "3600",  # Else what has no subscription is deleted under a test now and then.
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.99",
    "nettyMaxFrameSizeBytes": "5253120",
}

_INTERCEPT: Final = "org.apache.pulsar.common.intercept"
INDEXED: Final = {
    "brokerEntryMetadataInterceptors": f"{_INTERCEPT}.AppendBrokerTimestampMetadataInterceptor,"
    f"{_INTERCEPT}.AppendIndexMetadataInterceptor",
    "exposingBrokerEntryMetadataToClientEnabled": "true",
}
"""For ``settings``: each entry gets the broker's time and the index of its last message, and clients are told."""

TRANSACTIONS: Final = {"transactionCoordinatorEnabled": "true"}
"""For ``settings``: clients that have transactions may begin some. Each topic reads what the broker keeps of them as it
is loaded, which now and then takes Apache Pulsar 30 s."""


class UnavailableError(Exception):
    """This machine cannot run Apache Pulsar; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class ApachePulsar:
    """A running broker. Its addresses are on the loopback interface; "" for those that it does not have."""

    service_url: str
    http_url: str
    pid: int
    directory: str = ""
    service_url_tls: str = ""
    http_url_tls: str = ""


def class_path(pom: Path = HERE / "pom.xml") -> str:
    """The class path that Maven resolves for ``pom``, kept in the user's cache until the pom changes."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pulsarish"
    kept = cache / f"apache-pulsar-{hashlib.sha256(pom.read_bytes()).hexdigest()[:16]}.classpath"
    if kept.is_file():
        found = kept.read_text().strip()
        if all(Path(jar).is_file() for jar in found.split(os.pathsep)):
            return found
    maven = shutil.which("mvn")
    if maven is None:
        raise UnavailableError("mvn is not on the PATH, so Apache Pulsar's jars cannot be resolved")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        fresh = Path(scratch) / "classpath"
        command = [maven, "-B", "-q", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={fresh}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not fresh.is_file():
            said = (done.stdout + done.stderr).strip().splitlines()
            raise UnavailableError(
                "Maven cannot resolve Apache Pulsar's jars: " + (said[0] if said else "no reason given")
            )
        fresh.replace(kept)
    return kept.read_text().strip()


def java() -> str:
    """The Java to run with: ``JAVA_HOME`` first, then the PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    found = found or shutil.which("java")
    if found is None:
        raise UnavailableError("java is not on the PATH, so Apache Pulsar cannot be started")
    return found


@contextlib.contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """Ports that nobody else is given until Pulsar listens there, a minute later on a busy machine.

    Linux lets a program listen where a socket is bound that does not listen, if both allow it.
    """
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind(("127.0.0.1", 0))
        numbers = [each.getsockname()[1] for each in sockets]
        if sys.platform != "linux":
            held.close()
        yield numbers


def jvm(options: Sequence[str]) -> list[str]:
    """A Java that can run a part of Apache Pulsar; the name of a class and its arguments come behind it."""
    opened = [flag for module in OPENED for flag in ("--add-opens", f"{module}=ALL-UNNAMED")]
    properties = {
        "log4j.configurationFile": str(HERE / "log4j2.xml"),
        "io.netty.tryReflectionSetAccessible": "true",
        "java.net.preferIPv4Stack": "true",
        "pulsar.allocator.exit_on_oom": "true",
        **METADATA_DRIVERS,
    }
    given = [f"-D{name}={value}" for name, value in properties.items()]
    return [java(), *options, *opened, *given, "-cp", class_path()]


def _command(directory: Path, bookie_port: int, java_options: Sequence[str]) -> list[str]:
    return [
        *jvm((*MEMORY, *java_options)), "org.apache.pulsar.PulsarStandaloneStarter",
        "--config", str(directory / "broker.conf"), "--no-functions-worker", "--no-stream-storage", "-a", "127.0.0.1",
        "--metadata-dir", str(directory / "metadata"), "--bookkeeper-dir", str(directory / "bookkeeper"),
        "--bookkeeper-port", str(bookie_port),
    ]  # fmt: skip


def _answers(web: Web, path: str, text: str) -> bool:
    """Whether the web service answers ``path`` well, with ``text`` somewhere in the body."""
    try:
        return text in web.call("GET", path)
    except (OSError, RuntimeError, http.client.HTTPException):
        return False


def wait_until_ready(process: subprocess.Popen[bytes], web: Web, log: Path) -> None:
    """The web port answers seconds before ``public/default`` exists, so ask for that, then for the health check."""
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
            raise RuntimeError(f"Apache Pulsar ended with code {process.returncode} while it started:\n{tail}")
        if _answers(web, "/admin/v2/namespaces/public", "public/default") and _answers(
            web, "/admin/v2/brokers/health", "ok"
        ):
            return
        time.sleep(0.2)
    raise RuntimeError(f"Apache Pulsar was not ready after {START_S_MAX:.0f} s; its log is {log}")


@contextlib.contextmanager
def running(
    directory: Path,
    settings: Mapping[str, str] | None = None,
    java_options: Sequence[str] = LONG_LIVED,
    *,
    tls: bool = False,
    headers: Mapping[str, str] | None = None,
) -> Iterator[ApachePulsar]:
    """Run one in ``directory`` on free ports; UnavailableError where this machine cannot, RuntimeError if it fails.

    With ``tls`` it has ports for TLS as well, for which ``settings`` name certificates. ``headers``: for its readiness.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with held_ports(5) as (broker_port, web_port, bookie_port, *tls_ports):
        values = {
            **SETTINGS,
            "brokerServicePort": str(broker_port),
            "webServicePort": str(web_port),
            "narExtractionDirectory": str(directory / "nar"),
            "statusFilePath": str(directory / "status"),
            **(
                dict(zip(("brokerServicePortTls", "webServicePortTls"), map(str, tls_ports), strict=True))
                if tls
                else {}
            ),
            **(settings or {}),
        }
        (directory / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        process = started(directory, _command(directory, bookie_port, java_options), directory / "log")
        try:
            web = Web(f"http://127.0.0.1:{web_port}", headers or {})
            wait_until_ready(process, web, directory / "log")
            urls = (f"pulsar+ssl://127.0.0.1:{tls_ports[0]}", f"https://127.0.0.1:{tls_ports[1]}") if tls else ()
            plain = f"pulsar://127.0.0.1:{broker_port}", f"http://127.0.0.1:{web_port}"
            yield ApachePulsar(*plain, process.pid, str(directory), *urls)
        finally:
            # Nothing of it is kept, so there is nothing to wait for.
            process.kill()
            process.wait()


def started(directory: Path, command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """A process in a session of its own, which writes to the end of ``log``."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, "PULSAR_STANDALONE_USE_ZOOKEEPER": "0"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def main(arguments: list[str]) -> None:
    if not arguments:
        sys.exit("usage: python -m tests.apache_pulsar.start DIRECTORY [key=value ...]")
    settings = dict(each.split("=", 1) for each in arguments[1:])
    # Ending by an exception is what stops Apache Pulsar too, which has a session of its own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with contextlib.suppress(KeyboardInterrupt), running(Path(arguments[0]).resolve(), settings) as pulsar:
        print(f"ready {pulsar.service_url} {pulsar.http_url} {pulsar.pid}", flush=True)  # noqa: T201 - a program's output
        while True:
            signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
