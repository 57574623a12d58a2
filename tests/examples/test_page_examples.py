# SPDX-License-Identifier: Apache-2.0
"""Pages whose examples need no Spark: programs of the client, and the commands that run a broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

PAGES: Final = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: str, kind: str) -> list[str]:
    """The blocks of code of one kind."""
    text = (PAGES / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def said_by(command: list[str], folder: Path) -> str:
    """The output of a command in ``folder``, with the commands of this Python on its PATH and data in ``folder``."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("number", [0, 1], ids=["blocking", "asyncio"])
def test_programs_of_the_client_run_as_they_are_copied(tmp_path: Path, number: int) -> None:
    said = said_by([sys.executable, "-c", blocks("python-client.md", "python")[number]], tmp_path)
    (told,) = blocks("python-client.md", "text")
    assert said == told or said.splitlines() == [f"1:{each}:-1 order {each}" for each in range(3)]


def test_the_program_with_a_schema_runs_as_it_is_copied(tmp_path: Path) -> None:
    assert said_by([sys.executable, "-c", blocks("python-client.md", "python")[2]], tmp_path) == "Ghent 0\n"


def test_a_broker_is_started_used_stopped_and_backed_up_as_the_page_says(tmp_path: Path) -> None:
    """On free ports, so that it meets no other broker of this machine."""
    (commands,) = blocks("running.md", "sh")
    free = commands.replace("pulsarish serve", "pulsarish serve --port 0 --http-port 0")
    said = said_by(["bash", "-euo", "pipefail", "-c", free + "ls -R backup-of-today"], tmp_path)
    assert {"1:0:-1", "1.log", "catalogue", "FORMAT"} <= set(said.splitlines())
    assert '"problems": []' in (tmp_path / "checked.jsonl").read_text()
