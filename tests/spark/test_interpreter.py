# SPDX-License-Identifier: Apache-2.0
"""Which Python Spark's workers get."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from pulsarish_spark import use_this_python


def test_workers_get_the_interpreter_of_the_driver() -> None:
    """By its name, found first on the PATH: Spark would cut a path at its first space."""
    environment = {"PATH": "/usr/bin"}
    use_this_python(environment)
    found = shutil.which(environment["PYSPARK_PYTHON"], path=environment["PATH"])
    assert found is not None
    assert os.path.samefile(Path(found).parent, Path(sys.executable).parent)
    assert environment["PATH"].endswith(os.pathsep + "/usr/bin")


def said_in_time_or_late(tmp_path: Path, program: str, *command: str, **environment: str) -> str:
    """The output of a Python that runs ``program``; the first ``python3`` on the PATH is another one."""
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho another\n")
    other.chmod(0o755)
    script = tmp_path / "job.py"
    script.write_text(program)
    kept = {name: text for name, text in os.environ.items() if name not in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    path = os.pathsep.join([str(other.parent), os.environ["PATH"]])
    given = {**kept, "PATH": path, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), **environment}
    done = subprocess.run([*command, str(script)], env=given, capture_output=True, text=True, check=False, timeout=300)
    assert "ended" in done.stdout, done.stderr
    return done.stdout + done.stderr  # Java writes both to its stdout


_CALL = "import pulsarish_spark; pulsarish_spark.use_this_python(); print('ended')"
_STARTED = f"from pyspark import SparkContext; SparkContext._ensure_initialized(); {_CALL}"
_WHY = "Java runs already, as under spark-submit and in the pyspark shell it always does, and starts"
_SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")


@pytest.mark.spark
@pytest.mark.apart
def test_a_call_under_spark_submit_says_that_it_is_too_late(tmp_path: Path) -> None:
    """Java came first, with another Python for its workers than the one that it gave the driver by a setting."""
    command = (_SUBMIT, "--conf", f"spark.pyspark.python={sys.executable}")
    said = said_in_time_or_late(tmp_path, _CALL, *command)
    assert (
        f"use_this_python() comes too late: {_WHY} its Python processes with python3 ({tmp_path}/bin/python3)" in said
    )
    assert f"which is not this Python, {sys.executable}; " in said
    assert f'begin the command with PATH="{Path(sys.executable).parent}:$PATH" PYSPARK_PYTHON=' in said


@pytest.mark.spark
@pytest.mark.apart
@pytest.mark.parametrize("name", ["PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"])
def test_a_call_under_spark_submit_with_this_python_says_nothing(tmp_path: Path, name: str) -> None:
    """Nothing is too late where Java starts this Python anyway."""
    assert "too late" not in said_in_time_or_late(tmp_path, _CALL, _SUBMIT, **{name: sys.executable})


@pytest.mark.spark
@pytest.mark.apart
def test_a_call_after_spark_has_started_says_that_it_is_too_late(tmp_path: Path) -> None:
    """The call would change nothing, and the error about the format comes only later."""
    said = said_in_time_or_late(tmp_path, _STARTED, sys.executable)
    assert f"comes too late: {_WHY} its Python processes with python3 (" in said
    assert "restart Python (or the notebook's kernel) and call it before the session is made" in said


@pytest.mark.spark
@pytest.mark.apart
def test_a_second_call_says_nothing(tmp_path: Path) -> None:
    """The first one came in time."""
    call = "import pulsarish_spark; pulsarish_spark.use_this_python(); "
    assert "too late" not in said_in_time_or_late(tmp_path, call + _STARTED, sys.executable)


def test_a_notebook_that_was_started_as_the_driver_has_workers_all_the_same() -> None:
    """Java would start ``jupyter`` for them, which PYSPARK_DRIVER_PYTHON names for the shell."""
    environment = {"PATH": "/usr/bin", "PYSPARK_DRIVER_PYTHON": "jupyter"}
    use_this_python(environment)
    assert environment["PYSPARK_DRIVER_PYTHON"] == environment["PYSPARK_PYTHON"]


def test_a_choice_of_the_user_stays() -> None:
    """Someone who set PYSPARK_PYTHON knows why."""
    environment = {"PYSPARK_PYTHON": "/opt/python"}
    use_this_python(environment)
    assert environment == {"PYSPARK_PYTHON": "/opt/python"}
