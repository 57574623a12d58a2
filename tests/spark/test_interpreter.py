# SPDX-License-Identifier: Apache-2.0
"""Which Python Spark's workers get."""

import os
import shutil
import sys
from pathlib import Path

from pulsarish_spark import use_this_python


def test_workers_get_the_interpreter_of_the_driver() -> None:
    """By its name, found first on the PATH: Spark would cut a path at its first space."""
    environment = {"PATH": "/usr/bin"}
    use_this_python(environment)
    found = shutil.which(environment["PYSPARK_PYTHON"], path=environment["PATH"])
    assert found is not None
    assert os.path.samefile(Path(found).parent, Path(sys.executable).parent)
    assert environment["PATH"].endswith(os.pathsep + "/usr/bin")


def test_a_choice_of_the_user_stays() -> None:
    """Someone who set PYSPARK_PYTHON knows why."""
    environment = {"PYSPARK_PYTHON": "/opt/python"}
    use_this_python(environment)
    assert environment == {"PYSPARK_PYTHON": "/opt/python"}
