# SPDX-License-Identifier: Apache-2.0
"""Spark on several machines, with our broker on another one: TLS, a token, killed workers.

The machines are network namespaces of Linux, each with an address of its own and a loopback device that leads nowhere
else. Making them takes root; elsewhere these tests are skipped, and say so.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from broker_core.client import AuthenticationToken, Client
from broker_core.testing.running_broker import RunningBroker
from tests.server.credentials import private, secret_file, token
from tests.spark.brokers import numbers
from tests.spark.standalone import WORKERS, Machine, rows_over_a_killed_worker, running_standalone

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces take root and ip"),
]

BROKER_ADDRESS = "10.77.0.1"
BRIDGE = "pulsarish0"
MACHINES = range(1 + WORKERS)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def machines() -> Iterator[list[Machine]]:
    """The driver's machine and the workers', on one network with this one."""
    _remove_network()  # of a run that was killed
    may = subprocess.run(["ip", "link", "add", "name", BRIDGE, "type", "bridge"], check=False, capture_output=True)
    if may.returncode:
        pytest.skip(f"no network can be made here: {may.stderr.decode().strip()}")
    try:
        ip("addr", "add", f"{BROKER_ADDRESS}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        yield [_machine(number) for number in MACHINES]
    finally:
        _remove_network()


def _machine(number: int) -> Machine:
    name, address = _namespace(number), f"10.77.0.{2 + number}"
    ip("netns", "add", name)
    ip("link", "add", _link(number), "type", "veth", "peer", "name", "eth0", "netns", name)
    ip("link", "set", _link(number), "master", BRIDGE, "up")
    ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
    ip("-n", name, "link", "set", "eth0", "up")
    ip("-n", name, "link", "set", "lo", "up")
    return Machine(address, ("ip", "netns", "exec", name))


def _namespace(number: int) -> str:
    return f"{BRIDGE}-{number}"


def _link(number: int) -> str:
    return f"pulsarish-h{number}"


def _remove_network() -> None:
    """Remove what is there of bridge, machines and their links."""
    parts = [("link", BRIDGE)]
    parts += [each for number in MACHINES for each in (("link", _link(number)), ("netns", _namespace(number)))]
    for kind, name in parts:
        subprocess.run(["ip", kind, "del", name], check=False, capture_output=True)


@dataclass(frozen=True, slots=True)
class Remote:
    """A broker that other machines reach by TLS alone, with a token. ``options`` are those of the source and sink."""

    running: RunningBroker
    options: dict[str, str]

    def client(self) -> Client:
        return Client(
            self.options["service.url"],
            authentication=AuthenticationToken.from_file(self.options["tokenFile"]),
            tls_trust_certs_file_path=self.options["tlsTrustCertsFilePath"],
        )

    def send(self, topic: str, values: list[str]) -> None:
        with self.client() as client, client.create_producer(topic, batching_enabled=False) as producer:
            for value in values:
                producer.send_async(value.encode(), key=value)
            producer.flush()


@pytest.fixture
def remote(machines: list[Machine], tmp_path: Path) -> Iterator[Remote]:
    authority, key = trustme.CA(), tmp_path / "broker.key"
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = authority.issue_cert(BROKER_ADDRESS)
    (tmp_path / "broker.pem").write_bytes(b"".join(each.bytes() for each in certificate.cert_chain_pems))
    private(key, certificate.private_key_pem.bytes())
    settings = {
        "authenticationEnabled": True,
        "tokenSecretKey": secret_file(tmp_path).as_uri(),
        "bindAddress": BROKER_ADDRESS,
        "brokerServicePortTls": 0,
        "webServicePortTls": 0,
        "tlsCertificateFilePath": str(tmp_path / "broker.pem"),
        "tlsKeyFilePath": str(key),
    }
    options = {
        "tokenFile": str(private(tmp_path / "spark.token", token("spark").encode())),
        "tlsTrustCertsFilePath": str(tmp_path / "ca.pem"),
    }
    with RunningBroker(tmp_path / "data", settings, port=-1, http_port=-1) as running:
        yield Remote(running, options | {"service.url": running.service_url})


def test_workers_on_other_machines_write_and_read(remote: Remote, machines: list[Machine], tmp_path: Path) -> None:
    """Batch, stream and sink; every connection comes from the machine of a task, and none without TLS."""
    assert remote.options["service.url"].startswith(f"pulsar+ssl://{BROKER_ADDRESS}:")
    with running_standalone(tmp_path, machines) as standalone:
        result = standalone.run("cluster_job.py", json.dumps(remote.options), "t", str(tmp_path / "checkpoint"))
        assert result == {"batch": list(range(1000)), "copied": list(range(1000))}
        assert all(standalone.executors(number) for number in range(WORKERS))


@pytest.mark.parametrize("mode", [{}, {"subscriptionType": "Shared"}], ids=["positions", "queue"])
def test_a_query_outlives_the_death_of_a_machine(
    remote: Remote, machines: list[Machine], tmp_path: Path, mode: dict[str, str]
) -> None:
    """A stream by positions and one in queue mode: each message is a row, once."""
    remote.send("t", numbers(0, 300))
    options = remote.options | {"topic": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "200"}
    options |= mode | {"subscriptionName": "work"}
    more = numbers(300, 600)
    found = rows_over_a_killed_worker(tmp_path, options, 600, lambda: remote.send("t", more), machines)
    assert found == {"values": list(range(600)), "failure": None}


def test_a_machine_without_the_token_is_refused(remote: Remote, machines: list[Machine], tmp_path: Path) -> None:
    """In one error that says what to do."""
    without = {name: value for name, value in remote.options.items() if name != "tokenFile"}
    with running_standalone(tmp_path, machines) as standalone, pytest.raises(AssertionError, match="wants to know who"):
        standalone.run("cluster_job.py", json.dumps(without), "t", str(tmp_path / "checkpoint"))
