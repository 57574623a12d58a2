# SPDX-License-Identifier: Apache-2.0
"""Flink and its official sink for Pulsar, in a process that runs ``flink/FlinkSink.java``.

UnavailableError where Java, javac or Maven is missing.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from tests.behaviour.java_client import compiled, java_command
from tests.spark.brokers import Broker

HERE: Final = Path(__file__).resolve().parent / "flink"
SOURCE: Final = HERE / "FlinkSink.java"
PATIENCE_S: Final = 400.0


class FlinkRun(NamedTuple):
    """A job that has ended well: whether it failed on its way, and how many checkpoints its tasks saw."""

    failed: bool
    checkpoints: int


def start_flink(broker: Broker, topic: str, rows: int) -> subprocess.Popen[str]:
    """A job that writes the numbers below ``rows`` to a topic, through one failure, exactly once."""
    program = java_command(*compiled(SOURCE, HERE / "pom.xml"), SOURCE.stem)
    arguments = [broker.service_url, broker.http_url, topic, str(rows)]
    return subprocess.Popen([*program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(job: subprocess.Popen[str]) -> FlinkRun:
    """Wait for its end."""
    try:
        told, log = job.communicate(timeout=PATIENCE_S)
    finally:
        job.kill()
    assert job.returncode == 0, log[-4000:]
    failed, checkpoints = told.split()
    return FlinkRun(failed == "true", int(checkpoints))
