# SPDX-License-Identifier: Apache-2.0
"""Start and stop a single Apache Kafka broker; resolve its jars and those of Spark's Kafka connector.

Needs Java 17 and Maven on the PATH. Jars are resolved once into the user's cache directory. The broker runs in KRaft
combined mode on the loopback address with Kafka's own defaults: replies before anything is synced to disk. It can be
used alone:

    python -m benchmarks.kafka.recipe DIRECTORY [PORT] [broker.property=value ...]      # until Ctrl-C
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 30.0
_HEAP: Final = "1g"

_SERVER_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={log_dir}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""

_LOG4J: Final = """\
<Configuration status="ERROR"><Appenders><Console name="out"><PatternLayout pattern="%d %p %m (%c{1})%n"/></Console>
</Appenders><Loggers><Root level="INFO"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""


class PeerUnavailableError(RuntimeError):
    """Kafka cannot be had here: no Java, no Maven, or the registry does not answer."""


@dataclass(frozen=True, slots=True)
class KafkaBroker:
    """A running broker."""

    pid: int
    bootstrap: str
    ready_s: float


def broker_jars() -> Path:
    """The folder with the broker's jars."""
    return resolve(_HERE / "broker-pom.xml", "kafka-broker-4.3.1")


def connector_jars() -> list[Path]:
    """The jars to give to Spark as ``spark.jars``."""
    return sorted(resolve(_HERE / "connector-pom.xml", "spark-kafka-4.2.0").glob("*.jar"))


@contextlib.contextmanager
def running_broker(
    directory: Path, port: int = 0, properties: Mapping[str, str] | None = None
) -> Iterator[KafkaBroker]:
    """Run a broker with fresh data in ``directory`` for the length of the block. Port 0: any free one."""
    jars = broker_jars()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    port = port or free_port()
    _configure(directory, jars, port, properties or {})
    started = time.monotonic()
    with (directory / "broker.log").open("wb") as log:
        process = subprocess.Popen(_command(directory, jars), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        _wait_until_ready(process, directory / "broker.log", started + _START_TIMEOUT_S)
        yield KafkaBroker(process.pid, f"127.0.0.1:{port}", time.monotonic() - started)
    finally:
        _stop(process)


def free_port() -> int:
    """A port that nothing listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def resolve(pom: Path, name: str) -> Path:
    """The folder ``name`` of the user's cache with the jars of ``pom``, which are fetched if it is not there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = cache / "pulsarish" / name
    if target.is_dir():
        return target
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise PeerUnavailableError(f"no {tool} on the PATH; it needs Java 17 and jars that come through Maven")
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    command = ["mvn", "-B", "-ntp", "-q", "-f", str(pom), "dependency:copy-dependencies"]
    done = subprocess.run(
        [*command, f"-DoutputDirectory={partial}", "-DincludeScope=runtime"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        shutil.rmtree(partial, ignore_errors=True)
        raise PeerUnavailableError(f"Maven could not resolve {pom.name}: {done.stdout.strip()[-800:]}")
    with contextlib.suppress(OSError):  # somebody else was faster: theirs is as good
        partial.rename(target)
    return target


def _configure(directory: Path, jars: Path, port: int, properties: Mapping[str, str]) -> None:
    (directory / "log4j2.xml").write_text(_LOG4J)
    text = _SERVER_PROPERTIES.format(port=port, controller_port=free_port(), log_dir=directory / "log")
    text += "".join(f"{name}={value}\n" for name, value in properties.items())
    (directory / "server.properties").write_text(text)
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22]
    tool = [
        "java",
        f"-Dlog4j2.configurationFile={directory / 'log4j2.xml'}",
        "-cp",
        f"{jars}/*",
        "kafka.tools.StorageTool",
    ]
    done = subprocess.run(
        [*tool, "format", "-t", cluster_id, "-c", str(directory / "server.properties")],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise PeerUnavailableError(f"Kafka's storage tool failed: {done.stdout[-400:]}{done.stderr[-400:]}")


def _command(directory: Path, jars: Path) -> list[str]:
    heap = [f"-Xms{_HEAP}", f"-Xmx{_HEAP}"]
    collector = ["-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"]
    logging = f"-Dlog4j2.configurationFile={directory / 'log4j2.xml'}"
    properties = str(directory / "server.properties")
    return ["java", *heap, "-server", *collector, logging, "-cp", f"{jars}/*", "kafka.Kafka", properties]


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path, deadline: float) -> None:
    while "Kafka Server started" not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise PeerUnavailableError(f"Kafka did not start: {log.read_text(errors='replace')[-800:]}")
        time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main(arguments: list[str]) -> None:
    """Run a broker until interrupted."""
    if not arguments:
        raise SystemExit(__doc__)
    directory, *rest = arguments
    port = int(rest.pop(0)) if rest and rest[0].isdigit() else 0
    properties = dict(item.split("=", 1) for item in rest)
    with running_broker(Path(directory).resolve(), port, properties) as broker:
        print(f"ready {broker.bootstrap} pid {broker.pid} after {broker.ready_s:.1f} s", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
