# SPDX-License-Identifier: Apache-2.0
"""``docs/how-to-add.md`` leads to files, and to names in them, that are there."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.named_places import ROOT, missing_names, missing_paths, names_in, paths_in

PAGE: Final = (ROOT / "docs" / "how-to-add.md").read_text(encoding="utf-8")
RECIPES: Final = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")[1:]}


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_leads_to_what_is_there(title: str) -> None:
    """Its files exist, a name that stands before a file is defined in it, and all others are words of these files."""
    recipe = RECIPES[title]
    assert len(names_in(recipe)) >= 4
    assert missing_paths(recipe) == []
    assert missing_names(recipe) == []
    files = [path for path in paths_in(recipe) if (ROOT / path).is_file()]
    known = {word for path in files for word in re.findall(r"\w+", (ROOT / path).read_text(encoding="utf-8"))}
    assert [name for name in re.findall(r"`(\w+)`", recipe) if name not in known] == []
