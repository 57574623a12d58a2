# SPDX-License-Identifier: Apache-2.0
"""Damaged entries that our broker has given up (autoSkipNonRecoverableData) are holes for a read."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from pulsarish_spark import read_arrow

TOPIC = "damaged"
ROWS = 9


def damaged_broker(data_dir: Path, *, numbers: tuple[int, ...]) -> RunningBroker:
    """A broker that gives lost entries up, whose topic has ``ROWS`` entries, some of them damaged."""
    with RunningBroker(data_dir) as broker:
        with Client(broker.service_url) as client, client.create_producer(TOPIC, batching_enabled=False) as producer:
            for number in range(ROWS):
                producer.send(b"value %d" % number)
        broker.stop()
    (ledger,) = (data_dir / "ledgers").iterdir()
    content = ledger.read_bytes()
    for number in numbers:
        content = content.replace(b"value %d" % number, b"VALUE %d" % number)
    ledger.write_bytes(content)
    return RunningBroker(data_dir, {"autoSkipNonRecoverableData": True})


@pytest.mark.parametrize("numbers", [(4,), (3, 4, 5), (7, 8)], ids=["one", "run", "end"])
def test_a_read_passes_over_entries_that_were_given_up(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    """7.1 [autoSkipNonRecoverableData] As over messages of aborted transactions; the broker's statistics name them."""
    with damaged_broker(tmp_path / "data", numbers=numbers) as broker:
        rows = read_arrow(TOPIC, **{"service.url": broker.service_url, "startingOffsets": "earliest"}).read_all()
        stats = httpx.get(f"{broker.http_url}/admin/v2/persistent/public/default/{TOPIC}/stats").json()
    kept = [number for number in range(ROWS) if number not in numbers]
    assert rows["value"].to_pylist() == [b"value %d" % number for number in kept]
    assert stats["damages"]
