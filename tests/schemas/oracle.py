# SPDX-License-Identifier: Apache-2.0
"""Oracles: Apache Pulsar's own classes, asked by a Java program about pairs of schemas (``Verdicts``) or about values
(``Values``)."""

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

JAVA: Final = Path(__file__).resolve().parent / "java"


@dataclass(frozen=True, slots=True)
class Oracle:
    """A running oracle."""

    _process: subprocess.Popen[str]

    def verdict(self, old: str, new: str) -> dict[str, Any]:
        """Pulsar's verdict about a pair: ``backward``, ``forward``, ``full``, ``same``, ``valid``, and its errors."""
        return self.answer({"old": old, "new": new})

    def answer(self, question: dict[str, str]) -> dict[str, Any]:
        """The answer of the program to one question."""
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None
        assert answers is not None
        questions.write(json.dumps(question) + "\n")
        questions.flush()
        answer: dict[str, Any] = json.loads(answers.readline())
        return answer


@contextmanager
def running_oracle(log: Path, program: str = "Verdicts") -> Iterator[Oracle]:
    """An oracle; what Java says beside its answers goes to ``log``. UnavailableError without a compiler or jars."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise UnavailableError("javac is not on the PATH")
    jars, source = class_path(), JAVA / f"{program}.java"

    def compile_into(folder: Path) -> None:
        folder.mkdir()
        compile_program([compiler, "-cp", jars, "-d", str(folder), str(source)], folder)

    classes = built(f"schema-{program.lower()}", source.read_bytes(), jars.encode(), build=compile_into)
    command = jvm(SHORT_LIVED)
    command[-1] = os.pathsep.join((str(classes), jars))
    with (
        log.open("w") as said,
        subprocess.Popen(
            [*command, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
        ) as process,
    ):
        try:
            yield Oracle(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
