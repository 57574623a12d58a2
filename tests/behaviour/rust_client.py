# SPDX-License-Identifier: Apache-2.0
"""The Rust client, in a process that runs the program in ``rust``. UnavailableError where cargo is missing or old.

Cargo compiles the client's crates once, for a minute, into the user's cache. They need ``protoc``, which is that of the
Python package grpcio-tools.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

from tests.apache_pulsar.start import UnavailableError
from tests.behaviour.builds import built, cache, compile_program, fetch
from tests.behaviour.driver import Driver

SOURCES: Final = Path(__file__).resolve().parent / "rust"


def start_rust(log: Path) -> Driver:
    """The Rust client in a process. ``Cargo.toml`` says its version."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise UnavailableError("cargo is not on the PATH, so the driver of the Rust client cannot be built")

    def compile_to(program: Path) -> None:
        target = cache() / "rust-target"
        environment = {**os.environ, "PROTOC": str(_protoc())}
        fetch([cargo, "fetch", "--locked"], SOURCES)
        compile_program([cargo, "build", "--locked", "--target-dir", str(target)], SOURCES, environment)
        shutil.copy(target / "debug" / "driver", program)

    sources = [path.read_bytes() for path in sorted(SOURCES.rglob("*.*")) if path.is_file()]
    return Driver([str(built("rust-driver", *sources, build=compile_to))], log)


def _protoc() -> Path:
    """A program with a path that stays, as cargo compiles the client anew when it changes."""
    program = cache() / "protoc"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m grpc_tools.protoc "$@"\n')
    program.chmod(0o700)
    return program
