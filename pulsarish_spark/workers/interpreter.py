# SPDX-License-Identifier: Apache-2.0
"""The Python that Spark starts for its workers: the one that runs the driver, unless the user chose another.

Left alone, Spark takes the first ``python3`` on the PATH, which in a virtual environment that is not activated lacks
this package; all that users then see is "failed to find the data source". A path with a space in it does not work
either (Spark cuts it there), so the folder goes to the front of the PATH and the name alone is handed over.

Spark's Java reads the names from the environment that it was started with. Started by this process it has this
process's; ``spark-submit`` starts it first, the ``pyspark`` shell before its prompt, and nothing that Python does then
reaches it.
Source: Spark, ``PythonUtils.defaultPythonExec``, ``bin/pyspark``.
"""

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Final

_OF_WORKERS: Final = "PYSPARK_PYTHON"
_OF_DRIVERS: Final = "PYSPARK_DRIVER_PYTHON"
"""Java takes it before the other, also where it is ``jupyter``; its own meaning is over once the driver runs."""

_JAVA_CAME_FIRST: Final = "PYSPARK_GATEWAY_PORT"
"""The variable in which a Java that started this process says its port."""

_TRIAL: Final = "import sys; print(sys.prefix, *sys.version_info[:2], sep=chr(10))"
_TRIAL_S: Final = 60.0
"""Time that a program may take to say what it is; a cold disk is slow."""


def use_this_python(environment: MutableMapping[str, str] | None = None) -> None:
    """Make Spark run its Python workers with this interpreter. Call it before the session is made.

    Args:
        environment: What the driver is started with; by default this process's own. ``PYSPARK_PYTHON`` wins if set.

    Where Spark's Java runs already, nothing is changed, for it would not reach that: Java keeps the environment that it
    was started with, also when the session is stopped and made again. Warns then, with what to do, if Java starts
    another Python than this one.
    """
    jvm = _running_java() if environment is None else None
    if jvm is not None:
        command = _command_of(jvm)
        if other := _other_python(command, jvm.System.getenv("PATH")):
            warnings.warn(_too_late(command, other), stacklevel=2)
        return
    environment = os.environ if environment is None else environment
    if _OF_WORKERS not in environment:
        python = Path(sys.executable)
        environment["PATH"] = os.pathsep.join([str(python.parent), *filter(None, [environment.get("PATH")])])
        environment[_OF_WORKERS] = python.name
    if _OF_DRIVERS in environment:
        environment[_OF_DRIVERS] = environment[_OF_WORKERS]


def _running_java() -> Any:
    """Spark's Java, if this process has started it or was started by it. Who has neither need not import pyspark."""
    if _JAVA_CAME_FIRST in os.environ:
        from pyspark import SparkContext

        SparkContext._ensure_initialized()
    context: Any = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return None if getattr(context, "_gateway", None) is None else context._jvm


def _command_of(jvm: Any) -> str:
    """The Python of every process that Java starts for a format which it has found."""
    return next(filter(None, map(jvm.System.getenv, (_OF_DRIVERS, _OF_WORKERS))), "python3")


def _other_python(command: str, path: str | None) -> str:
    """The Python that ``command`` starts, which is tried; empty if it is this one."""
    found = shutil.which(command, path=path)
    if found is None:
        return "which is not on the PATH"
    own = [sys.prefix, *map(str, sys.version_info[:2])]
    said = tried([found, "-c", _TRIAL])
    if isinstance(said, Exception):
        return f"{found}, which does not run ({said})"
    return "" if said.stdout.splitlines() == own else f"{found}"


def tried(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str] | Exception:
    """The result of a program that is run to its end, or why it does not run."""
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_TRIAL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return error


def _too_late(command: str, other: str) -> str:
    """The warning: what, why, what to do."""
    python = Path(sys.executable)
    unset = f", without {_OF_DRIVERS}" if _OF_DRIVERS in os.environ else ""
    return (
        "use_this_python() comes too late: Java runs already, as under spark-submit and in the pyspark shell it always "
        f"does, and starts its Python processes with {command} ({other}), which is not this Python, {python}; "
        "restart Python (or the notebook's kernel) and call it before the session is made, or, for spark-submit and "
        f'pyspark, begin the command with PATH="{python.parent}:$PATH" PYSPARK_PYTHON={python.name}{unset}'
    )
