# SPDX-License-Identifier: Apache-2.0
"""The examples with ``foreachBatch``: a driver is killed between a write and Spark's note of it, and each row is there
once. Delta's needs a Spark that it has JARs for (``make test-spark``); on others its error is tested."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.examples.conftest import EXAMPLES

HAS_DELTA = pyspark.__version__.startswith("4.2.")
PARQUET, JDBC, DELTA = "into_parquet.py", "into_jdbc.py", "into_delta.py"

KEYS = {
    PARQUET: ('f"batch={number}"', 'f"batch={uuid.uuid4()}"'),
    JDBC: ("'{query_id}', {number})", "'{uuid.uuid4()}', {number})"),
    DELTA: ('txnAppId", query_id', 'txnAppId", str(os.getpid())'),
}
"""The place of each example where a batch gets its name, and another name, which is new in each run of the batch."""


def run(example: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=False)
    if "unresolved dependency" in done.stdout + done.stderr:
        pytest.skip("Delta's JARs cannot be had from here")
    return done


needs_delta = pytest.mark.skipif(not HAS_DELTA, reason="Delta has no JARs for this Spark")
examples = pytest.mark.parametrize("example", [PARQUET, JDBC, pytest.param(DELTA, marks=needs_delta)])


@pytest.mark.slow
@pytest.mark.spark
@examples
def test_a_batch_that_runs_again_is_written_once(example: str) -> None:
    """A killed driver has written its batch; the next one begins with the same batch."""
    done = run(EXAMPLES / example)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "it starts again" in done.stdout
    assert "check: passed" in done.stderr


@pytest.mark.slow
@pytest.mark.spark
@examples
def test_without_its_name_a_batch_is_written_twice(example: str, tmp_path: Path) -> None:
    """Or the check would not see whether the name is of any use."""
    shutil.copy(EXAMPLES / "killed_driver.py", tmp_path)
    text = (EXAMPLES / example).read_text(encoding="utf-8")
    name, other = KEYS[example]
    assert text.count(name) == 1
    (tmp_path / example).write_text(text.replace(name, other).replace("import sys\n", "import os\nimport sys\n"))
    done = run(tmp_path / example)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "CHECK FAILED" in done.stderr, done.stdout + done.stderr


@pytest.mark.skipif(HAS_DELTA, reason="Delta has JARs for this Spark")
def test_a_spark_that_delta_has_no_jars_for_is_told_in_one_line() -> None:
    """Spark would say so on a page of Java's words."""
    done = run(EXAMPLES / DELTA)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"Delta has no JARs for Spark {pyspark.__version__}" in done.stderr
