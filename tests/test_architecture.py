# SPDX-License-Identifier: Apache-2.0
"""``ARCHITECTURE.md`` names paths that are there."""

from __future__ import annotations

from tests.named_places import ROOT, missing_paths


def test_every_path_exists() -> None:
    assert missing_paths((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")) == []
