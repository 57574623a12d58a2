# SPDX-License-Identifier: Apache-2.0
"""Programs of clients in other languages: compiled once, and skipped only where the machine lacks something."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.apache_pulsar.start import UnavailableError
from tests.behaviour.builds import built, compile_program, fetch

FAILING = (sys.executable, "-c", "import sys; sys.exit('first\\nsecond')")


def test_the_same_sources_are_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other sources have a build of their own, and each stays where it is."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    builds: list[Path] = []

    def build(path: Path) -> None:
        builds.append(path)
        path.write_text(str(len(builds)))

    paths = [built("program", source, b"more", build=build) for source in (b"a", b"b", b"a")]
    assert [path.read_text() for path in paths] == ["1", "2", "1"]
    assert not any(path.exists() for path in builds)


def test_what_cannot_be_fetched_is_missing_here(tmp_path: Path) -> None:
    """Tests skip with the first words of the tool."""
    with pytest.raises(UnavailableError, match=r"failed: first$"):
        fetch(FAILING, tmp_path)


def test_a_program_that_does_not_compile_is_a_fault(tmp_path: Path) -> None:
    """Tests fail with all that the compiler says."""
    with pytest.raises(RuntimeError, match="second"):
        compile_program(FAILING, tmp_path)
