# SPDX-License-Identifier: Apache-2.0
"""Flink's official sink for Pulsar, with its guarantee of exactly once: our source reads what it has committed.

Flink leaves the transaction of a checkpoint that a failure came upon open, so that readers wait for its timeout, three
hours where nothing is said; here an administrator aborts it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.heads import TxnId
from tests.apache_pulsar.start import UnavailableError
from tests.client.helpers import take
from tests.spark.batches import read_values
from tests.spark.brokers import Broker, eventually
from tests.spark.conftest import Load, values
from tests.spark.flink_sink import finished, start_flink

pytestmark = pytest.mark.pulsar

PARTITIONS: Final = 3
ROWS: Final = 2000
ROWS_BEFORE_A_KILL: Final = 200


@pytest.fixture(scope="module", params=["pulsarish", "apache-transactions"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Ours, and one of Apache that has transactions."""
    if request.param == "pulsarish":
        with RunningBroker(tmp_path_factory.mktemp("flink") / "data") as running:
            yield Broker(running.service_url, running.http_url)
            assert "Traceback" not in running.stderr
        return
    pulsar = request.getfixturevalue("apache_pulsar_transactions")
    yield Broker(pulsar.service_url, pulsar.http_url, "apache")


def writing(broker: Broker, topic: str) -> subprocess.Popen[str]:
    """Flink, which writes a new topic."""
    broker.create(topic, PARTITIONS)
    try:
        return start_flink(broker, topic, ROWS)
    except UnavailableError as missing:
        pytest.skip(str(missing))


def abort_left_open(broker: Broker, topic: str) -> None:
    """Abort the transactions that Flink has left open in a topic."""
    with broker.control() as api:
        for text, found in api.open_transactions().items():
            if any(f"/{topic}-partition-" in partition for partition in found["producedPartitions"]):
                api.abort_transaction(TxnId(*map(int, text.strip("()").split(","))))


def statistics(broker: Broker, topic: str) -> list[dict[str, Any]]:
    """Of each partition."""
    path = f"persistent/public/default/{topic}-partition-"
    return [broker.admin("GET", f"{path}{number}/stats") for number in range(PARTITIONS)]


def stored(broker: Broker, topic: str) -> int:
    """How many messages came since the broker was started."""
    return sum(int(partition["msgInCounter"]) for partition in statistics(broker, topic))


@pytest.mark.spark
def test_rows_of_flink_are_read_once(broker: Broker, topic: str, source: Load) -> None:
    """9.4.2, 9.4.4, 9.5.2, 9.9.2: though the job failed on its way and wrote some of them twice; our client agrees."""
    run = finished(writing(broker, topic))
    assert run.failed
    assert run.checkpoints > 1
    abort_left_open(broker, topic)
    assert sum(partition["abortedTxnCount"] for partition in statistics(broker, topic)) > 0
    assert values(source(topic)) == list(range(ROWS))
    with Client(broker.service_url) as client:
        consumer = client.subscribe(topic, "s", initial_position="earliest")
        assert sorted(int(message.value or b"") for message in take(consumer, ROWS)) == list(range(ROWS))


def test_rows_of_flink_are_read_once_though_the_broker_is_killed(tmp_path: Path, topic: str) -> None:
    """9.5.1, 9.5.3, 9.6, 1.7.2: what clients then send again is known by its sequence id, where the broker looks."""
    with RunningBroker(tmp_path / "data", {"brokerDeduplicationEnabled": True}) as running:
        broker = Broker(running.service_url, running.http_url)
        job = writing(broker, topic)
        for _ in range(2):
            eventually(
                lambda: stored(broker, topic) > ROWS_BEFORE_A_KILL or job.poll() is not None,
                "Flink writes, or has ended",
            )
            running.kill()
            running.start()
        assert finished(job).failed
        abort_left_open(broker, topic)
        assert read_values(broker, topic) == list(range(ROWS))
