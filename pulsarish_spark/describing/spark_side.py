# SPDX-License-Identifier: Apache-2.0
"""Spark's part in the description of a read: the Python of its workers, Java, and settings that matter.

Needs no ``pyspark``: where nobody has imported it, no session is active. Must not know brokers.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pulsarish_spark.describing.description import WorkersPython
from pulsarish_spark.workers.interpreter import tried

_PYTHON_DEFAULT: Final = "python3"
"""The command that Spark starts unless something says otherwise: the first one on the PATH."""

_TRIAL: Final = "import sys; print('%d.%d' % sys.version_info[:2], flush=True); import pulsarish_spark, pyarrow"

JAVA_MIN: Final = 17
"""The lowest version that Spark 4 runs on."""

SETTINGS: Final = ("spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.shuffle.partitions")


def workers_python(environment: Mapping[str, str]) -> WorkersPython:
    """The Python of the active session's workers, else of a session that would be made now. It is tried."""
    session = _active_session()
    context = getattr(session, "_sc", None)  # A session of Spark Connect has none: its workers are elsewhere.
    command = getattr(context, "pythonExec", "") or environment.get("PYSPARK_PYTHON") or _PYTHON_DEFAULT
    path = shutil.which(command, path=environment.get("PATH"))
    if path is None:
        return WorkersPython(command, None, None, "there is no such program on the PATH")
    return _tried(command, path, environment)


def _tried(command: str, path: str, environment: Mapping[str, str]) -> WorkersPython:
    done = tried([path, "-c", _TRIAL], environment)
    if isinstance(done, Exception):
        return WorkersPython(command, path, None, f"it does not run: {done}")
    version = done.stdout.strip() or None
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2] or f"it ended with code {done.returncode}"
        return WorkersPython(command, path, version, last)
    if version != here:
        return WorkersPython(command, path, version, f"the driver is Python {here}, and Spark wants the same for both")
    return WorkersPython(command, path, version)


def spark_settings() -> dict[str, str] | None:
    """Version, master and settings of the active session; None if there is none."""
    session = _active_session()
    if session is None:
        return None
    found = {"pyspark": sys.modules["pyspark"].__version__, "spark.master": session.conf.get("spark.master")}
    return found | {name: session.conf.get(name) for name in SETTINGS}


class Java(NamedTuple):
    """A Java, in words, and what is wrong with it, or ""."""

    name: str
    problem: str = ""


def find_java(environment: Mapping[str, str]) -> Java:
    """The Java that Spark would start: that of JAVA_HOME, else the first on the PATH. It is tried."""
    if home := environment.get("JAVA_HOME"):
        path = shutil.which(str(Path(home) / "bin" / "java"))
        return _tried_java(path) if path else Java("not found", f"JAVA_HOME is {home}, which has no bin/java")
    path = shutil.which("java", path=environment.get("PATH"))
    return _tried_java(path) if path else Java("not found", "there is none on the PATH")


def _tried_java(path: str) -> Java:
    done = tried([path, "-version"])
    if isinstance(done, Exception):
        return Java(path, f"it does not run: {done}")
    version = re.search(r'version "((\d+)[^"]*)"', done.stderr)
    if done.returncode or version is None:
        return Java(path, f"it does not tell its version: {done.stderr.strip()[:100]}")
    if int(version[2]) < JAVA_MIN:
        return Java(path, f"it is Java {version[1]}, too old for Spark")
    return Java(f"{path} ({version[1]})")


def _active_session() -> Any:
    found = getattr(sys.modules.get("pyspark.sql"), "SparkSession", None)
    return None if found is None else found.getActiveSession()
