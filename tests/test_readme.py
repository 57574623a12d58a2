# SPDX-License-Identifier: Apache-2.0
"""The README's example does what it says, in the ways newcomers run it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from pulsarish_spark.connecting import embedded

REPOSITORY: Final = Path(__file__).resolve().parents[1]
README: Final = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def code() -> str:
    """Every Python block of the README in one program."""
    found = "\n".join(re.findall(r"```python\n(.*?)```", README, re.DOTALL))
    assert 10 <= len(found.strip().splitlines()) <= 15
    return found


def as_an_editor_does(folder: Path) -> tuple[list[str], str]:
    """A command and its input: the program's file, by the full path of the environment's Python."""
    script = folder / "readme.py"
    script.write_text(code())
    return [sys.executable, str(script)], ""


def as_a_notebook_does(folder: Path) -> tuple[list[str], str]:
    """A command and its input: statement by statement, in no file, in the main module of a Python that runs already."""
    return [sys.executable, "-q", "-i"], code()


@pytest.mark.spark
@pytest.mark.parametrize("way", [as_an_editor_does, as_a_notebook_does])
def test_the_example_runs_as_it_is_copied(tmp_path: Path, way: Callable[[Path], tuple[list[str], str]]) -> None:
    """No environment is activated, no server to start: rows go out through the sink, come back and are counted."""
    unset = {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV"}
    environment = {name: text for name, text in os.environ.items() if name not in unset}
    environment |= {"PULSARISH_DATA_DIR": str(tmp_path / "data"), "PATH": without_this_environment(os.environ["PATH"])}
    command, typed = way(tmp_path)
    done = subprocess.run(
        command, input=typed, capture_output=True, text=True, timeout=500, cwd=tmp_path, env=environment, check=False
    )
    if (info := embedded.find(tmp_path / "data")) is not None:
        os.kill(info.pid, signal.SIGTERM)
    assert done.returncode == 0, done.stderr[-4000:]
    rows = re.findall(r"\|\s+(\d)\|\s+(\d+)\|", done.stdout)
    assert rows == [(str(digit), "100") for digit in range(10)], done.stderr[-4000:]


def without_this_environment(path: str) -> str:
    """The PATH of somebody who has not activated the environment."""
    scripts = Path(sys.executable).parent
    return os.pathsep.join(folder for folder in path.split(os.pathsep) if Path(folder) != scripts)


def test_the_first_screen_ends_with_exactly_two_commands() -> None:
    """What it is, an example, then `make demo` and `make test`, before any section."""
    first_screen = README.partition("\n## ")[0]
    assert re.findall(r"```sh\n(.*?)```", first_screen, re.DOTALL) == ["make demo\nmake test\n"]
