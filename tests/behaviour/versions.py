# SPDX-License-Identifier: Apache-2.0
"""``make clients``: the behaviour suite with older and newer official clients, on our broker and on Apache Pulsar.

Owns the list of versions. A client that is old cannot say everything, and has faults of its own, so a behaviour counts
against us only where a client shows it on Apache Pulsar and not on our broker, twice; no version is listed with
exceptions.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.behaviour.access import PLAIN
from tests.behaviour.builds import cache
from tests.behaviour.comparing import ONLY_ON_APACHE, examine_all
from tests.behaviour.conftest import KIND
from tests.behaviour.java_client import VERSION

JAVA: Final = ("2.0.1-incubating", "2.11.4", "3.0.7", "3.3.9", "4.0.8", "4.1.3", "4.2.4", "5.0.0-M1")
"""The oldest that Apache Pulsar 4.2 serves (1.x knows only names of topics with a cluster in them, which 4.2 has no way
to make), the long-term releases, the last of others, the newest that is published. Of 3.0 the last that Maven Central
has whole."""

PYTHON: Final = ("3.1.0", "3.5.0", "3.13.0")
"""The oldest that has a wheel for Python 3.11, one in between, the newest."""


@dataclass(frozen=True, slots=True)
class Client:
    """One version of one official client."""

    language: str
    version: str

    @property
    def name(self) -> str:
        return f"{self.language} {self.version}"

    @property
    def keyword(self) -> str:
        return self.language

    def environment(self) -> dict[str, str]:
        """The version, and servers that ask for no identity."""
        plain = {**os.environ, KIND: PLAIN.kind}
        if self.language == "java":
            return {**plain, VERSION: self.version}
        folder = cache() / f"python-client-{self.version}"
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache()) as scratch:
                fresh = Path(scratch) / "packages"
                arguments = ["--quiet", "--no-deps", "--only-binary=:all:", "--target", str(fresh)]
                subprocess.run(
                    [sys.executable, "-m", "pip", "install", *arguments, f"pulsar-client=={self.version}"], check=True
                )
                fresh.replace(folder)
        paths = [str(folder), os.environ.get("PYTHONPATH", "")]
        return {**plain, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


if __name__ == "__main__":
    clients = [Client("java", each) for each in JAVA] + [Client("python", each) for each in PYTHON]
    sys.exit(examine_all(clients, {ONLY_ON_APACHE}, __doc__ or "", sys.argv[1:]))
