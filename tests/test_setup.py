# SPDX-License-Identifier: Apache-2.0
"""What ``setup.py`` says to tools that still call it."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def test_a_setuptools_that_is_too_old_is_told_in_one_line(tmp_path: Path) -> None:
    """It cannot read pyproject.toml, and would print its schema of that file."""
    (tmp_path / "setuptools.py").write_text('__version__ = "65.5.0"\n')
    command = [sys.executable, str(REPOSITORY / "setup.py"), "--version"]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "setuptools 65.5.0 cannot read pyproject.toml" in done.stderr
    assert "use pip install ." in done.stderr
