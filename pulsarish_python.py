# SPDX-License-Identifier: Apache-2.0
"""The command ``pulsarish-python``: this Python, as a quick start for the Python processes of Spark.

Spark puts ``pyspark.zip`` in front of everything else that its Python processes can import. Nothing in a zip file has
bytecode, so each of them compiles half of pyspark first: the planner of every stream, and the first worker of every
kind, half a second of processor time each. The folder that the zip file was made from lies in the same installation of
Spark; here pyspark is loaded from that, with bytecode. All else is found where it would be found anyway.

The planner of a stream is forked from a process that has imported everything, where there is one; the module
``pulsarish_planners`` owns how.

``pulsarish_spark.use_this_python`` gives this command to Spark. It stands alone, because to import anything of
``pulsarish_spark`` is to import pyspark. Sources: Python docs, ``zipimport``; Spark, ``PythonUtils.sparkPythonPath``.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pulsarish_planners import PLANNER, ask_for_planner, start_server

_ZIP: Final = "pyspark.zip"

_MAKER: Final = ["-m", "pyspark.daemon", "pyspark.sql.worker.create_data_source"]
"""What Spark starts before the first stream of any source is read, and keeps until its session is stopped."""


class Unzipped(NamedTuple):
    """A zip file of pyspark, as it is named on the path, and the package's folder in the same installation."""

    zip_path: str
    folder: Path


def main() -> None:
    """Do as ``python`` does; ``-m MODULE`` of Spark's with pyspark from its folder, if there is one."""
    option, module = (*sys.argv[1:3], "", "")[:2]
    found = unzipped(sys.path) if option == "-m" and module.startswith("pyspark.") else None
    if found is None:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606 - no shell is wanted
    if not sys.flags.safe_path:
        sys.path[0] = _working_directory()  # where ``-m`` begins to look; it was the folder of this command
    sys.path.remove(found.zip_path)
    sys.path_importer_cache.pop(found.zip_path, None)  # or Spark's workers read its table of contents once more
    if module == PLANNER and ask_for_planner():
        return
    if sys.argv[1:] == _MAKER and start_server(lambda: _load_pyspark(found.folder)):
        module, sys.argv = PLANNER, [PLANNER]
    else:
        _load_pyspark(found.folder)
        sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def unzipped(path: Sequence[str]) -> Unzipped | None:
    """The first zip file of pyspark on ``path``, if the folder that it was made from is there too."""
    for entry in path:
        if Path(entry).name != _ZIP:
            continue
        home = Path(entry).parent.parent.parent  # of home/python/lib/pyspark.zip
        for folder in (home, home / "python" / "pyspark"):  # as pip installs Spark, as its archive is laid out
            if folder.name == "pyspark" and (folder / "__init__.py").is_file():
                return Unzipped(entry, folder)
    return None


def _working_directory() -> str:
    """ "" where it was deleted under Spark, in which nothing is found either."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def _load_pyspark(folder: Path) -> None:
    spec = importlib.util.spec_from_file_location(
        "pyspark", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["pyspark"] = module
    spec.loader.exec_module(module)
