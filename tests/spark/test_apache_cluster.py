# SPDX-License-Identifier: Apache-2.0
"""Spark on a secure cluster of two Apache Pulsar brokers: a short version of ``make cluster``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.apache_pulsar.cluster import running_cluster
from tests.apache_pulsar.start import UnavailableError
from tests.spark.cluster_parts import Rig
from tests.spark.cluster_scenarios import moved_and_killed, under
from tests.spark.cluster_watching import POSITIONS, SHARED

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
