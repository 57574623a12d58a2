# SPDX-License-Identifier: Apache-2.0
"""``ARCHITECTURE.md`` names files, and names in them, that are there."""

from __future__ import annotations

from typing import Final

from tests.named_places import ROOT, missing_names, missing_paths, names_in

PAGE: Final = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def test_what_it_names_is_there() -> None:
    """The seams of the rooms that come next, above all, where work on them begins."""
    assert len(names_in(PAGE)) > 20
    assert missing_paths(PAGE) == []
    assert missing_names(PAGE) == []
