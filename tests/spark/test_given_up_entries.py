# SPDX-License-Identifier: Apache-2.0
"""Damaged entries that our broker has given up (autoSkipNonRecoverableData) are lost for a read, and no holes."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from pulsarish_spark import DataLossError, read_arrow

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


@pytest.mark.parametrize(
    ("numbers", "lost"),
    [((4,), "1 message lost"), ((3, 4, 5), "3 messages lost"), ((7, 8), "an unknown number of messages lost")],
    ids=["one", "run", "end"],
)
def test_entries_that_were_given_up_are_told_as_lost(
    tmp_path: Path, numbers: tuple[int, ...], lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    """7.1 [autoSkipNonRecoverableData] Our broker gives each entry that it has: what does not come of it is lost."""
    with damaged_broker(tmp_path / "data", numbers=numbers) as broker:
        options = {"service.url": broker.service_url, "startingOffsets": "earliest"}
        with pytest.raises(DataLossError, match=lost):
            read_arrow(TOPIC, **options).read_all()
        rows = read_arrow(TOPIC, **options, failOnDataLoss="false").read_all()
    kept = [number for number in range(ROWS) if number not in numbers]
    assert rows["value"].to_pylist() == [b"value %d" % number for number in kept]
    assert lost in caplog.text
