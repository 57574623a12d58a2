# SPDX-License-Identifier: Apache-2.0
"""Set-up: the words of ``setup.py`` for tools that still call it, and the steps of ``scripts/setup.sh``."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


def test_a_setuptools_that_is_too_old_is_told_in_one_line(tmp_path: Path) -> None:
    """Such a version cannot read pyproject.toml, and would print its schema of that file."""
    (tmp_path / "setuptools.py").write_text('__version__ = "65.5.0"\n')
    command = [sys.executable, str(REPOSITORY / "setup.py"), "--version"]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "setuptools 65.5.0 cannot read pyproject.toml" in done.stderr
    assert "use pip install ." in done.stderr


STAND_IN = r"""#!/bin/sh
# A Python that knows its version and what set-up reads, and writes down all else that it is asked for.
echo "$*" >> "$SAID"
case "$*" in
    "-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python && cp "$0" .venv/bin/pip ;;
    *tomllib*) echo "setuptools cython" ;;
    *build_ext*) [ -z "$UNCOMPILABLE" ] ;;
    "--version") echo Python 3.11 ;;
esac
"""


class SetUp:
    """``scripts/setup.sh`` on a folder of what it reads, with a stand-in for each program that it starts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder / "project", folder / "bin"
        (self.folder / "scripts").mkdir(parents=True)
        (self.folder / "broker_core/wire/core").mkdir(parents=True)
        (self.folder / "broker_core/wire/core/frames.py").touch()
        for name in ("pyproject.toml", "setup.py", "scripts/setup.sh"):
            shutil.copy(REPOSITORY / name, self.folder / name)
        java = folder / "java/bin/java"
        for program, text in {
            self.bin / "python3": STAND_IN,
            java: "#!/bin/sh\necho 'version \"17.0.1\"' >&2\n",
        }.items():
            program.parent.mkdir(parents=True)
            program.write_text(text)
            program.chmod(0o755)
        self.said = folder / "said"
        path = os.pathsep.join([str(self.bin), os.environ["PATH"]])
        self.environment = {"PATH": path, "CC": "true", "JAVA_HOME": str(java.parents[1]), "SAID": str(self.said)}

    def run(self, *arguments: str, code: int = 0, **environment: str) -> tuple[list[str], str]:
        """The commands for Python that make something, and the text on stderr."""
        self.said.write_text("")
        done = subprocess.run(
            ["bash", "scripts/setup.sh", *arguments],
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        makes = ("venv", "build_ext", "pip", "archive")
        return [line for line in self.said.read_text().splitlines() if any(word in line for word in makes)], done.stderr


@pytest.fixture
def set_up(tmp_path: Path) -> SetUp:
    """A fresh clone."""
    return SetUp(tmp_path)


def last_words(lines: list[str]) -> list[str]:
    """The end of each command: what is installed, compiled or archived."""
    return sorted(line.rpartition(" ")[2] for line in lines)


def test_the_demo_installs_no_more_than_it_needs_and_tests_install_the_rest(set_up: SetUp) -> None:
    """The core is compiled once, and Spark's classes are archived for tests alone."""
    asked, shown = set_up.run("demo")
    asked = [line for line in asked if "ensurepip" not in line]
    assert last_words(asked) == ["--inplace", ".[demo]", ".venv", "cython"]
    assert [line.partition("): ")[2].split(",")[0] for line in shown.splitlines()][-2:] == [
        "packages for demo",
        "done",
    ]
    assert set_up.run("demo")[0] == []
    asked, _ = set_up.run()
    assert last_words(asked) == [".[dev]", ".[spark]", "cython", "scripts.archive_spark_classes"]
    assert set_up.run("demo")[0] == []  # tests have all that it needs
    assert set_up.run()[0] == []


def test_a_changed_core_is_compiled_and_nothing_else_is_done(set_up: SetUp) -> None:
    """After a change of its sources, at the next command."""
    set_up.run("demo")
    (set_up.folder / "broker_core/wire/core/frames.py").write_text("changed = True\n")
    assert last_words(set_up.run("demo")[0]) == ["--inplace"]


def test_a_core_that_cannot_be_compiled_stops_set_up_and_the_next_one_begins_there(set_up: SetUp) -> None:
    """A failure beside pip's work is seen."""
    _, shown = set_up.run("demo", code=1, UNCOMPILABLE="1")
    assert "error: the core could not be compiled" in shown
    assert last_words(set_up.run("demo")[0]) == ["--inplace", ".[demo]", "cython"]
