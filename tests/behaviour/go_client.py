# SPDX-License-Identifier: Apache-2.0
"""The official Go client, in a process that runs the program in ``go``. UnavailableError where Go is missing or old."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from tests.apache_pulsar.start import UnavailableError
from tests.behaviour.builds import built, compile_program, fetch
from tests.behaviour.driver import Driver

SOURCES: Final = Path(__file__).resolve().parent / "go"


def start_go(log: Path) -> Driver:
    """The Go client in a process. ``go.mod`` says its version."""
    go = shutil.which("go")
    if go is None:
        raise UnavailableError("go is not on the PATH, so the driver of the Go client cannot be built")

    def compile_to(program: Path) -> None:
        fetch([go, "mod", "download"], SOURCES)
        compile_program([go, "build", "-o", str(program), "."], SOURCES)

    sources = [path.read_bytes() for path in sorted(SOURCES.iterdir())]
    return Driver([str(built("go-driver", *sources, build=compile_to))], log)
