# SPDX-License-Identifier: Apache-2.0
"""Programs that start a Spark Connect server of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_program(*command: str, folder: Path, **environment: str) -> str:
    """The output of a program that runs in ``folder`` and must end well."""
    python = Path(sys.executable)
    # Under SPARK_TESTING the server takes a port that is free. Spark's scripts cut a path of Python at its blanks.
    here = {"SPARK_TESTING": "1", "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python.name, **environment}
    here["PATH"] = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        command,
        env=os.environ | here,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    said = [line for line in run.stdout.splitlines() if not line.strip().startswith("at ")]
    assert run.returncode == 0, "\n".join(said[-100:])
    return run.stdout
