# SPDX-License-Identifier: Apache-2.0
"""The official command line tools: how they are started, and what their shell says.

pulsar-shell runs any number of commands of pulsar-admin and pulsar-client in one Java. Its option to end where one
fails ends it behind its first command, failed or not, so failures are found by what they print.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.apache_pulsar.start import HERE as APACHE_PULSAR
from tests.apache_pulsar.start import OPENED, SHORT_LIVED, UnavailableError, class_path, java

HERE: Final = Path(__file__).resolve().parent
PATIENCE_S: Final = 400.0

FAILED: Final = ("Reason:", "Unmatched argument", "Missing required", "Unknown option", "Usage:")
"""How the lines begin that these tools print where a command fails."""


def tools_command(home: Path) -> list[str]:
    """What starts a tool: its name, its configuration and its arguments come behind it. ``home`` has its own files."""
    try:
        jars = class_path(HERE / "tools.xml")
        return [
            *(java(), "-Xmx512m", *SHORT_LIVED, f"-Duser.home={home}"),
            *(flag for module in OPENED for flag in ("--add-opens", f"{module}=ALL-UNNAMED")),
            *(f"-Dlog4j.configurationFile={APACHE_PULSAR / 'log4j2.xml'}", "-cp", jars),
        ]
    except UnavailableError as missing:
        pytest.skip(str(missing))


def shell(tool: list[str], folder: Path, commands: Sequence[str]) -> list[str]:
    """Run commands in one pulsar-shell, with the ``client.conf`` of ``folder``; the output of each."""
    name = ["org.apache.pulsar.shell.PulsarShell", "-c", str(folder / "client.conf")]
    done = subprocess.run(
        [*tool, *name, "--no-progress", "-"],
        input="".join(f"{command}\n" for command in commands),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return re.split(r"\[\d+/\d+\] Executing [^\n]*\n", done.stdout)[1:]


def failures(text: str) -> list[str]:
    """The lines of an output that tell of a failure."""
    return [line for line in text.splitlines() if line.startswith(FAILED)]


def what_the_shell_says(tool: list[str], folder: Path, commands: Sequence[str]) -> dict[str, str]:
    """The same for commands that must all end well. Command -> its output."""
    said = dict(zip(commands, shell(tool, folder, commands), strict=True))
    assert {command: failures(text) for command, text in said.items() if failures(text)} == {}, said
    return said
