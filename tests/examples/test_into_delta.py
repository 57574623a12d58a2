# SPDX-License-Identifier: Apache-2.0
"""The example with Delta: on a Spark that Delta has JARs for (``make test-spark``), and its error on others."""

from __future__ import annotations

import subprocess
import sys

import pyspark
import pytest

from tests.examples.conftest import EXAMPLES

HAS_DELTA = pyspark.__version__.startswith("4.2.")


def run_example() -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / "into_delta.py")], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(not HAS_DELTA, reason="Delta has no JARs for this Spark")
def test_a_batch_that_runs_again_changes_the_table_once() -> None:
    """The query fails between the MERGE and Spark's note of its batch, and begins with that batch."""
    done = run_example()
    if "unresolved dependency" in done.stdout + done.stderr:
        pytest.skip("Delta's JARs cannot be had from here")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "it starts again" in done.stdout
    assert "check: passed" in done.stderr


@pytest.mark.skipif(HAS_DELTA, reason="Delta has JARs for this Spark")
def test_a_spark_that_delta_has_no_jars_for_is_told_in_one_line() -> None:
    """Spark would say so on a page of Java's words."""
    done = run_example()
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"Delta has no JARs for Spark {pyspark.__version__}" in done.stderr
