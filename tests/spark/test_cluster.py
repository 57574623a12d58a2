# SPDX-License-Identifier: Apache-2.0
"""The format on a Spark standalone cluster: a master and two workers from the installed pyspark, on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from pulsarish_spark import use_this_python
from tests.spark.brokers import Broker
from tests.spark.queries import eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")


@contextlib.contextmanager
def daemon(name: str, log: Path, *arguments: str) -> Iterator[None]:
    """One of Spark's own processes, for the length of the block."""
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "300m"}
    environment["SPARK_DAEMON_JAVA_OPTS"] = os.environ["SPARK_SUBMIT_OPTS"]
    use_this_python(environment)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [SPARK_CLASS, f"org.apache.spark.deploy.{name}", *arguments], stdout=out, stderr=out, env=environment
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(120)


def found(log: Path, pattern: str) -> str:
    """The first group of ``pattern`` once it is in the log."""
    eventually(lambda: re.search(pattern, log.read_text()) is not None, f"{log.name} says {pattern}")
    match = re.search(pattern, log.read_text())
    assert match is not None
    return match[1]


def test_two_worker_processes_write_and_read(broker: Broker, topic: str, tmp_path: Path) -> None:
    """Executors share nothing with the driver but what travels in the partitions."""
    broker.create(topic, 2)
    log = tmp_path / "master.log"
    with contextlib.ExitStack() as cluster:
        cluster.enter_context(daemon("master.Master", log, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"))
        master = found(log, r"Starting Spark master at (spark://\S+)")
        for number in range(2):
            worker = tmp_path / f"worker-{number}.log"
            size = ["--cores", "1", "--memory", "600m", "--webui-port", "0", "--host", "127.0.0.1"]
            folder = ["--work-dir", str(tmp_path / f"work-{number}")]
            cluster.enter_context(daemon("worker.Worker", worker, *size, *folder, master))
            found(worker, r"(Successfully registered with master)")
        job = Path(__file__).with_name("cluster_job.py")
        command = [sys.executable, str(job), master, broker.service_url, topic, str(tmp_path / "checkpoint")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result == {"batch": list(range(1000)), "copied": list(range(1000))}
    assert all(list((tmp_path / f"work-{number}").glob("app-*/*/stderr")) for number in range(2))
