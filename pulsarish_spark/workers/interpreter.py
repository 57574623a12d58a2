# SPDX-License-Identifier: Apache-2.0
"""Which Python Spark starts for its workers: the one that runs the driver, unless the user chose another.

Left alone, Spark takes the first ``python3`` on the PATH, which in a virtual environment that is not activated lacks
this package; all that users then see is "failed to find the data source". A path with a space in it does not work
either (Spark cuts it there), so the folder goes to the front of the PATH and the name alone is handed over. The name is
that of ``pulsarish_python``'s command, the same interpreter that starts sooner, wherever pip has installed it.
"""

import os
import sys
import warnings
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

QUICK_START: Final = "pulsarish-python"
"""The command of ``pulsarish_python``."""


def use_this_python(environment: MutableMapping[str, str] | None = None) -> None:
    """Make Spark run its Python workers with this interpreter. Call it before the session is made.

    Args:
        environment: What the driver is started with; by default this process's own. ``PYSPARK_PYTHON`` wins if set.

    Warns if this process has started Spark already: its Java keeps the environment that it was started with, also when
    the session is stopped and made again.
    """
    own = environment is None
    environment = os.environ if environment is None else environment
    if "PYSPARK_PYTHON" in environment:
        return
    if own and _spark_runs():
        warnings.warn(
            "use_this_python() comes too late: Spark was started before, with the first python3 on the PATH for its "
            "workers; restart Python (or the notebook's kernel) and call it before the session is made",
            stacklevel=2,
        )
    python = Path(sys.executable)
    environment["PATH"] = os.pathsep.join([str(python.parent), *filter(None, [environment.get("PATH")])])
    environment["PYSPARK_PYTHON"] = QUICK_START if python.with_name(QUICK_START).exists() else python.name


def _spark_runs() -> bool:
    """Whether this process has a Java for Spark. Who never imported pyspark need not do it now."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return getattr(context, "_gateway", None) is not None
