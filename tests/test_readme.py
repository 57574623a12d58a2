# SPDX-License-Identifier: Apache-2.0
"""The README's example does what it says, as a newcomer would run it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from broker_core.base.runtime import RUNTIME_FILE, RuntimeInfo
from pulsarish_spark import use_this_python

REPOSITORY: Final = Path(__file__).resolve().parents[1]
README: Final = (REPOSITORY / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A data directory whose embedded broker is stopped at the end."""
    yield tmp_path / "data"
    file = tmp_path / "data" / RUNTIME_FILE
    info = RuntimeInfo.decode(file.read_bytes(), file.stat().st_ino) if file.exists() else None
    if info:
        os.kill(info.pid, signal.SIGTERM)


@pytest.mark.spark
def test_the_example_runs_with_no_server_to_start(tmp_path: Path, data_dir: Path) -> None:
    """Every Python block of the README in one script: rows out through the sink, back through the source, counted."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", README, re.DOTALL))
    assert 8 <= len(code.strip().splitlines()) <= 12
    script = tmp_path / "readme.py"
    script.write_text(code)
    environment = {**os.environ, "PULSARISH_DATA_DIR": str(data_dir)}
    use_this_python(environment)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    rows = re.findall(r"\|\s+(\d)\|\s+(\d+)\|", done.stdout)
    assert rows == [(str(digit), "100") for digit in range(10)]


def test_the_first_screen_ends_with_exactly_two_commands() -> None:
    """What it is, an example, then `make demo` and `make test`, before any section."""
    first_screen = README.partition("\n## ")[0]
    assert re.findall(r"```sh\n(.*?)```", first_screen, re.DOTALL) == ["make demo\nmake test\n"]
