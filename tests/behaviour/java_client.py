# SPDX-License-Identifier: Apache-2.0
"""The official Java client, in a process that runs ``java/Driver.java``.

Owns building that driver: Maven resolves, javac compiles, both kept in the user's cache. Where Java, javac or Maven is
missing, UnavailableError says which.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from tests.apache_pulsar.start import SHORT_LIVED, UnavailableError, class_path, java
from tests.behaviour.builds import built, cache, compile_program
from tests.behaviour.driver import Driver

HERE: Final = Path(__file__).resolve().parent / "java"
SOURCE: Final = HERE / "Driver.java"
BESIDE: Final = (HERE / "Schemas.java", HERE / "Order.java")
POM: Final = HERE / "pom.xml"

OPENED: Final = ("java.lang", "java.nio", "java.util", "sun.net")
"""Packages that Java 17 keeps closed, which Pulsar's client and Flink reach into."""

VERSION: Final = "PULSARISH_TEST_JAVA_CLIENT"
"""The environment's name for the version of the client, where it is not that of ``pom.xml``."""


MORE: Final = {
    "5.0.0-M1": """<dependency>
      <groupId>org.apache.pulsar</groupId>
      <artifactId>pulsar-client-admin-api</artifactId>
      <version>VERSION</version>
    </dependency>"""
}
"""What a release needs and does not ask for: this one cannot load its own names of topics otherwise."""


def start_java(log: Path, version: str | None = None) -> Driver:
    """The Java client in a process; ``version`` of it where that is not the one of ``pom.xml``."""
    classes, jars = compiled(SOURCE, POM, *BESIDE)
    return Driver(java_command(classes, jars_of(version) if version else jars, "Driver"), log)


def compiled(source: Path, pom: Path = POM, *beside: Path) -> tuple[Path, str]:
    """The folder of the classes of ``source`` and those ``beside``, and the class path of ``pom``, which they need."""
    jars = class_path(pom)

    def compile_into(classes: Path) -> None:
        javac = shutil.which("javac")
        if javac is None:
            raise UnavailableError(f"javac is not on the PATH, so {source.name} cannot be built")
        compile_program([javac, "-d", str(classes), "-cp", jars, *map(str, sources)], source.parent)

    name, sources = f"java-{source.stem.lower()}", (source, *beside)
    return built(name, *(each.read_bytes() for each in sources), jars.encode(), build=compile_into), jars


def java_command(classes: Path, jars: str, main: str) -> list[str]:
    """What starts ``main`` of the folder ``classes``; its arguments come behind it."""
    opened = [flag for package in OPENED for flag in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]
    return [java(), "-Xmx512m", *SHORT_LIVED, *opened, "-cp", os.pathsep.join([str(classes), jars]), main]


def jars_of(version: str) -> str:
    """The class path of the client of a version."""
    pom = cache() / f"java-client-{version}.xml"
    text = (HERE / "any_version.xml").read_text().replace("<!-- MORE -->", MORE.get(version, ""))
    pom.write_text(text.replace("VERSION", version))
    return class_path(pom)
