# SPDX-License-Identifier: Apache-2.0
"""The page about schemas has every limit of a client that the table of exceptions has, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.behaviour.schema_exceptions import SCHEMA_LIMITS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "schemas.md"


def test_limits_of_clients_are_on_the_page() -> None:
    """Row for row, in its order."""
    section = PAGE.read_text(encoding="utf-8").split("\n## Clients\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| (.+) \|$", section, re.MULTILINE)[1:]
    assert rows == [(client.capitalize(), limit) for client, limits in SCHEMA_LIMITS.items() for limit in limits]
