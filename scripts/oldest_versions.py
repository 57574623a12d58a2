# SPDX-License-Identifier: Apache-2.0
"""Prints the lower bounds of pyproject.toml as constraints for pip: the oldest versions that we claim to run with.

``make test-oldest`` installs these and runs tests on them. A requirement without a lower bound is an error, since no
environment would ever test it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

_PYPROJECT: Final = Path(__file__).resolve().parents[1] / "pyproject.toml"

_OWN_NAME: Final = "pulsarish"

_LOWER_BOUND: Final = re.compile(r"^(?P<name>[\w.-]+)>=(?P<version>[\d.]+)(?P<other>[^;]*)(?P<marker>;.*)?$")


def constraints(requirements: list[str]) -> list[str]:
    """``name==version`` for each requirement; ValueError for one without a lower bound."""
    pins: dict[str, str] = {}
    for requirement in requirements:
        if requirement.startswith(f"{_OWN_NAME}["):
            continue
        found = _LOWER_BOUND.match(requirement)
        if found is None:
            raise ValueError(f"{requirement} has no lower bound")
        pins[found["name"]] = f"{found['name']}=={found['version']}{found['marker'] or ''}"
    return list(pins.values())


def main() -> None:
    project = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]
    requirements = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        requirements += extra
    sys.stdout.write("\n".join(constraints(requirements)) + "\n")


if __name__ == "__main__":
    main()
