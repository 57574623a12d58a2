# SPDX-License-Identifier: Apache-2.0
"""The format under a Spark Connect server: a client reads, writes and gives rows up as in a session of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.spark.brokers import Broker
from tests.spark.programs import run_program

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_client_of_connect_reads_writes_and_gives_rows_up(broker: Broker, tmp_path: Path) -> None:
    """Batch and stream, source and sink, a listener, and ``foreachBatch`` with both kinds of copies."""
    job = Path(__file__).with_name("connect_job.py")
    paths = {"PYTHONPATH": str(job.parents[2])}
    run_program(sys.executable, str(job), broker.service_url, str(tmp_path), folder=tmp_path, **paths)
    assert json.loads((tmp_path / "found.json").read_text(encoding="utf-8")) == {
        "in": ["0", "1", "2", "3"],
        "out": ["0", "1", "2", "3"],
        "told": [0, None],
        "lag": 0,
        "dead": [["1", None], ["2", "2"]],
    }
