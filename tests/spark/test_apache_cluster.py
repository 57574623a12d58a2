# SPDX-License-Identifier: Apache-2.0
"""Spark on a secure cluster of two Apache Pulsar brokers: a short version of ``make cluster``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from broker_core.base.names import TopicName
from tests.apache_pulsar.cluster import running_cluster
from tests.apache_pulsar.start import UnavailableError
from tests.spark.cluster_parts import WATCHED_PARTITION, Rig, send
from tests.spark.cluster_scenarios import moved_and_killed, under
from tests.spark.cluster_watching import POSITIONS, SHARED
from tests.spark.standalone import rows_over_a_killed_worker

pytestmark = [pytest.mark.spark, pytest.mark.pulsar, pytest.mark.slow, pytest.mark.timeout(900)]

SESSION_MS = 6_000
"""A killed broker keeps its bundles for so long."""


@pytest.fixture(scope="module")
def rig(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """The cluster is of these tests alone, for they kill its brokers."""
    folder = tmp_path_factory.mktemp("rig")
    try:
        with running_cluster(
            folder / "cluster", {"metadataStoreSessionTimeoutMillis": str(SESSION_MS)}, secure=True
        ) as cluster:
            yield Rig(cluster, spark, folder)
    except UnavailableError as missing:
        pytest.skip(str(missing))


def test_streams_outlive_a_moved_bundle_and_a_killed_broker_of_a_secure_cluster(rig: Rig) -> None:
    """By positions each row comes once, in order; of a shared subscription the query or its other consumer has each."""
    found = under(moved_and_killed, rig, modes=(POSITIONS, SHARED))
    assert {mode: each.faults for mode, each in found.items()} == {"positions": [], "shared": []}


def test_any_broker_of_a_secure_cluster_is_asked_for_any_topic(rig: Rig) -> None:
    """Those that do not serve it redirect to the one that does, with TLS, which wants the token too."""
    topic = rig.make_topic("asked")
    send(rig, topic, range(100))
    entries = []
    for broker in rig.cluster.brokers:
        with rig.admin(broker) as api:
            stats = api.internal_stats(TopicName.parse(f"{topic}-partition-{WATCHED_PARTITION}"), 0)
            entries.append(stats["numberOfEntries"])
    assert entries[0] == entries[1] > 0


def test_a_query_outlives_a_killed_worker_while_a_bundle_of_a_secure_cluster_moves(rig: Rig, tmp_path: Path) -> None:
    """Spark runs the task that died elsewhere, where it finds the new broker; each message is a row, once."""
    topic = rig.make_topic("worker")
    send(rig, topic, range(400))

    def move_and_send() -> None:
        rig.cluster.move(f"{topic}-partition-{WATCHED_PARTITION}")
        send(rig, topic, range(400, 800))

    options = rig.options | {"topic": topic, "startingOffsets": "earliest"}
    found = rows_over_a_killed_worker(tmp_path, options, 800, move_and_send)
    assert found == {"values": list(range(800)), "failure": None}
