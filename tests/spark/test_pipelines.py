# SPDX-License-Identifier: Apache-2.0
"""A Declarative Pipeline that ``spark-pipelines`` runs: a topic is the source of a table, and another one its sink."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from broker_core.base.errors import OperationTimeoutError
from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from tests.spark.programs import run_program

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

SPEC = """
name: topics
libraries: [{{glob: {{include: definitions.py}}}}]
storage: file://{folder}/storage
"""


def test_a_pipeline_reads_a_topic_and_writes_one(tmp_path: Path) -> None:
    """An update reads what is there, and the next one what came since."""
    (tmp_path / "pipeline.yml").write_text(SPEC.format(folder=tmp_path), encoding="utf-8")
    (tmp_path / "definitions.py").symlink_to(Path(__file__).with_name("pipeline_job.py"))
    # Spark's own catalog is in memory, and a second update would not know the table of the first one.
    (tmp_path / "spark-defaults.conf").write_text("spark.sql.catalogImplementation hive\n", encoding="utf-8")
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run", "--spec", str(tmp_path / "pipeline.yml")]
    with (
        RunningBroker(tmp_path / "data") as broker,
        Client(broker.service_url) as client,
        client.create_producer("orders") as producer,
        client.subscribe("copies", "reader", initial_position="earliest") as consumer,
    ):
        for value in (b"a", b"b"):
            producer.send(value)
            environment = {"PULSARISH_URL": broker.service_url, "SPARK_CONF_DIR": str(tmp_path)}
            assert "Run is COMPLETED" in run_program(*command, folder=tmp_path, **environment)
            assert consumer.receive(60).value == value.upper()
        with pytest.raises(OperationTimeoutError):
            consumer.receive(1)
