# SPDX-License-Identifier: Apache-2.0
"""Writes the documents that are made from code: ``make docs``. A test compares what is committed with it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from broker_core.cli.main import PROGRAM, cli
from broker_core.cli.settings_docs import PROFILES, commands_markdown, profile_toml, settings_markdown

REPOSITORY: Final = Path(__file__).resolve().parents[1]


def generated() -> dict[str, str]:
    """Every generated document: its path in the repository and its text."""
    return {
        "docs/settings.md": settings_markdown(),
        "docs/cli.md": commands_markdown(cli, PROGRAM),
        **{f"conf/{profile.name}.toml": profile_toml(profile) for profile in PROFILES},
    }


if __name__ == "__main__":
    for path, text in generated().items():
        (REPOSITORY / path).write_text(text, encoding="utf-8")
