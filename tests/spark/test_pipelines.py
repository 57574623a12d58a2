# SPDX-License-Identifier: Apache-2.0
"""A Declarative Pipeline that ``spark-pipelines`` runs: a topic is the source of a table, and another one its sink."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker_core.base.errors import OperationTimeoutError
from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

SPEC = """
name: topics
libraries: [{{glob: {{include: definitions.py}}}}]
storage: file://{folder}/storage
"""


def update(folder: Path, url: str) -> None:
    """Run the pipeline once, up to the end of its topic."""
    here = {"PULSARISH_URL": url, "SPARK_TESTING": "1", "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    run = subprocess.run(
        [str(Path(sys.executable).with_name("spark-pipelines")), "run", "--spec", str(folder / "pipeline.yml")],
        env=os.environ | here,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )
    assert run.returncode == 0, run.stdout[-5000:]
    assert "Run is COMPLETED" in run.stdout


def test_a_pipeline_reads_a_topic_and_writes_one(tmp_path: Path) -> None:
    """An update reads what is there, and the next one what came since."""
    (tmp_path / "pipeline.yml").write_text(SPEC.format(folder=tmp_path), encoding="utf-8")
    (tmp_path / "definitions.py").symlink_to(Path(__file__).with_name("pipeline_job.py"))
    with (
        RunningBroker(tmp_path / "data") as broker,
        Client(broker.service_url) as client,
        client.create_producer("orders") as producer,
        client.subscribe("copies", "reader", initial_position="earliest") as consumer,
    ):
        for value in (b"a", b"b"):
            producer.send(value)
            update(tmp_path, broker.service_url)
            assert consumer.receive(60).value == value.upper()
        with pytest.raises(OperationTimeoutError):
            consumer.receive(1)
