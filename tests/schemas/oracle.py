# SPDX-License-Identifier: Apache-2.0
"""The oracle of compatibility: Apache Pulsar's own classes, asked about pairs of schemas by a Java program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.apache_pulsar.start import SHORT_LIVED, UnavailableError, class_path, jvm
from tests.behaviour.builds import built, compile_program

SOURCE: Final = Path(__file__).resolve().parent / "java" / "Verdicts.java"


@dataclass(frozen=True, slots=True)
class Oracle:
    """A running oracle."""

    _process: subprocess.Popen[str]

    def verdict(self, old: str, new: str) -> dict[str, Any]:
        """Pulsar's verdict about a pair: ``backward``, ``forward``, ``full``, ``same``, ``valid``, and its errors."""
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None
        assert answers is not None
        questions.write(json.dumps({"old": old, "new": new}) + "\n")
        questions.flush()
        verdict: dict[str, Any] = json.loads(answers.readline())
        return verdict


@contextmanager
def running_oracle(log: Path) -> Iterator[Oracle]:
    """An oracle; what Java says beside its answers goes to ``log``. UnavailableError without a compiler or jars."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise UnavailableError("javac is not on the PATH")
    jars = class_path()

    def compile_into(folder: Path) -> None:
        folder.mkdir()
        compile_program([compiler, "-cp", jars, "-d", str(folder), str(SOURCE)], folder)

    classes = built("schema-verdicts", SOURCE.read_bytes(), jars.encode(), build=compile_into)
    command = jvm(SHORT_LIVED)
    command[-1] = os.pathsep.join((str(classes), jars))
    with (
        log.open("w") as said,
        subprocess.Popen(
            [*command, "Verdicts"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
        ) as process,
    ):
        try:
            yield Oracle(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
