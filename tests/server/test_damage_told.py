# SPDX-License-Identifier: Apache-2.0
"""A real broker on a damaged data directory: what stderr, the health check, statistics and clients are told."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from broker_core.base.settings import Settings
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import BrokerExitedError, RunningBroker
from broker_core.testing.sim_disk import SimDisk
from broker_core.wire.core.hot_commands import parse_message
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata, ServerError
from tests.server.server_thread import ServerThread

TOPIC = "persistent://public/default/t"
ENTRIES = 20


@contextmanager
def killed_broker(data_dir: Path, **settings: object) -> Iterator[RunningBroker]:
    """A broker that was killed; of one topic some entries were confirmed. A test may start it."""
    with RunningBroker(data_dir, settings) as broker:
        with RawClient(broker.service_url) as client:
            must_succeed(client.open_producer(TOPIC))
            for number in range(ENTRIES):
                metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1000 + number)
                client.send_entry(0, number, seal_entry(metadata.SerializeToString(), b"%d" % number))
                assert client.next_command().type == BaseCommand.SEND_RECEIPT
            must_succeed(client.subscribe(TOPIC, "s", permits=0))
        broker.kill()
        yield broker


def doctor(data_dir: Path) -> str:
    """What it says, on either of its outputs."""
    command = [sys.executable, "-m", "broker_core", "doctor", "--data-dir", str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


def only_ledger(data_dir: Path) -> Path:
    (found,) = (data_dir / "ledgers").iterdir()
    return found


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("flipped", "nothing of them is lost"),
        ("cut", "nothing of them is lost"),
        ("gone", "is missing; "),
        ("snapshot", "is damaged; "),
    ],
)
def test_a_damaged_catalogue_is_mended_and_told(tmp_path: Path, how: str, told: str) -> None:
    """Reliability row 9: on a real disk, nothing that was confirmed is lost."""
    data_dir = tmp_path / "data"
    file = data_dir / "catalogue"
    with killed_broker(data_dir) as broker:
        data = bytearray(file.read_bytes())
        if how == "gone":
            file.unlink()
        else:
            data[1000 if how == "snapshot" else -300] ^= 1
            file.write_bytes(data[:-300] if how == "cut" else bytes(data))
        assert told in " ".join(doctor(data_dir).split())
        broker.start()
        assert "damage found" in broker.stderr
        answer = httpx.get(f"{broker.http_url}/admin/v2/brokers/health", timeout=60)
        assert (answer.status_code, answer.text.startswith("damaged\n")) == (200, True)
        assert told in answer.text
        assert httpx.get(f"{broker.http_url}/admin/v2/brokers/ready", timeout=60).text == "ok"
        with RawClient(broker.service_url) as client:
            must_succeed(client.subscribe(TOPIC, "check", permits=ENTRIES))
            heads = [parse_message(client.next_frame().command) for _ in range(ENTRIES)]
        assert [head.entry for head in heads if head is not None] == list(range(ENTRIES))
        broker.restart()
        assert httpx.get(f"{broker.http_url}/admin/v2/brokers/health", timeout=60).text == "ok"


@pytest.mark.parametrize("how", ["gone", "empty", "a pipe"])
def test_clients_of_a_topic_whose_entries_are_gone_are_refused_with_what_is_missing(tmp_path: Path, how: str) -> None:
    """7.1 [autoSkipNonRecoverableData] A SUBSCRIBE and a PRODUCER are told which file is missing, and what to do."""
    data_dir = tmp_path / "data"
    with killed_broker(data_dir) as broker:
        path = only_ledger(data_dir)
        path.write_bytes(b"") if how == "empty" else path.unlink()
        if how == "a pipe":
            os.mkfifo(path)
        told = {"gone": "is missing", "empty": "entries 1:0 to 1:19 are lost", "a pipe": "is a pipe instead of a file"}
        assert told[how] in doctor(data_dir)
        broker.start()
        with RawClient(broker.service_url) as client:
            must_succeed(client.open_producer("of others"))  # one topic is down, the broker is not
            for answer in (client.subscribe(TOPIC, "check"), client.open_producer(TOPIC, 1)):
                assert answer.error.error == ServerError.PersistenceError
                assert path.name in answer.error.message
                assert "autoSkipNonRecoverableData" in answer.error.message
        stats = httpx.get(f"{broker.http_url}/admin/v2/persistent/public/default/t/stats", timeout=60).json()
        assert [line for line in stats["damages"] if "20 entries of ledger 1 are lost" in line]
        assert path.name in httpx.get(f"{broker.http_url}/admin/v2/brokers/health", timeout=60).text
        assert "20 entries of ledger 1 are lost" in broker.stderr


def test_a_catalogue_that_is_damaged_in_both_files_is_refused_with_its_name(tmp_path: Path) -> None:
    """Reliability row 9: a flipped bit in a name would be another topic; nothing is believed that is not as written."""
    data_dir = tmp_path / "data"
    with killed_broker(data_dir) as broker:
        broker.start()
        broker.stop()
        for name in ("catalogue", "catalogue.copy"):
            file = data_dir / name
            data = bytearray(file.read_bytes())
            data[data.index(b"default/t")] ^= 1
            file.write_bytes(data)
        told = rf"{data_dir}/catalogue is damaged, and its copy {data_dir}/catalogue.copy is damaged"
        assert re.search(told, " ".join(doctor(data_dir).split()))
        with pytest.raises(BrokerExitedError, match=told):
            broker.start()


@pytest.mark.parametrize("what", ["subscription/s", "all_subscription"])
def test_messages_that_cannot_be_read_are_not_answered_as_expired(what: str) -> None:
    """7.2: 503 with the entry from which on nothing was looked at."""
    disk = SimDisk()
    with (
        ServerThread(disk, Settings(managed_ledger_cache_size_mbytes=0)) as server,
        RawClient(server.service_url) as client,
    ):
        must_succeed(client.open_producer("t"))
        must_succeed(client.subscribe("t", "s", permits=0))
        metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
        client.send_entry(0, 0, seal_entry(metadata.SerializeToString(), b""))
        assert client.next_command().type == BaseCommand.SEND_RECEIPT
        url = f"{server.http_url}/admin/v2/persistent/public/default/t/{what}/expireMessages/5"
        disk.fail(1, forever=True, kinds=("read",))
        answer = httpx.post(url, timeout=60)
        assert (answer.status_code, "before 1:0 only" in answer.json()["reason"]) == (503, True)
        disk.heal()
        assert httpx.post(url, timeout=60).status_code == 204
        assert not server.failures
