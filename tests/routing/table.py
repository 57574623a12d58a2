# SPDX-License-Identifier: Apache-2.0
"""The table of routes: where the official clients sent each key, as ``make routing`` found it and stored it.

One line for each key: the key as JSON, or as ``base64:`` and its bytes, then for each client one digit for each number
of partitions (0 to g, as there are up to 17). So the suite
compares without those clients, and a change shows in a diff.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Final

from tests.routing.clients import CLIENTS, Client, Routes
from tests.routing.keys import BYTES, TEXTS

PATH: Final = Path(__file__).resolve().parent / "table.txt"
_DIGITS: Final = "0123456789abcdefg"
_ABSENT: Final = "-"


def store(found: dict[Client, Routes], versions: dict[str, str]) -> None:
    """Write what was found of all clients."""
    names = " ".join(f"{name} {version}" for name, version in versions.items())
    lines = [f"# made by: make routing ROUTING_ARGS=--write, with {names}", f"# {' | '.join(map(str, CLIENTS))}"]
    keys: tuple[str | bytes, ...] = (*TEXTS, *BYTES)
    for key in keys:
        routes = [found[client].get(key) for client in CLIENTS]
        cells = ["".join(_DIGITS[each] for each in route) if route else _ABSENT for route in routes]
        lines.append("\t".join([_shown(key), *cells]))
    PATH.write_text("\n".join(lines) + "\n")


def stored() -> dict[Client, Routes]:
    """What the file says."""
    found: dict[Client, Routes] = {client: {} for client in CLIENTS}
    for line in PATH.read_text().splitlines():
        if line.startswith("#"):
            continue
        shown, *cells = line.split("\t")
        for client, cell in zip(CLIENTS, cells, strict=True):
            if cell != _ABSENT:
                found[client][_key(shown)] = [_DIGITS.index(digit) for digit in cell]
    return found


def _shown(key: str | bytes) -> str:
    return json.dumps(key) if isinstance(key, str) else "base64:" + base64.b64encode(key).decode()


def _key(shown: str) -> str | bytes:
    data = shown.removeprefix("base64:")
    return str(json.loads(shown)) if data == shown else base64.b64decode(data)
