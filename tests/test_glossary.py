# SPDX-License-Identifier: Apache-2.0
"""``docs/glossary.md`` names classes and files that are there."""

from __future__ import annotations

from typing import Final

from tests.named_places import ROOT, missing_names, missing_paths, names_in, paths_in

PAGE: Final = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


def test_every_path_exists() -> None:
    assert len(paths_in(PAGE)) > 60
    assert missing_paths(PAGE) == []


def test_every_class_is_in_the_file_beside_it() -> None:
    assert len(names_in(PAGE)) > 60
    assert missing_names(PAGE) == []
