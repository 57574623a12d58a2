# SPDX-License-Identifier: Apache-2.0
"""What is made from something else, and committed, is what would be made today."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.base.settings import Settings
from broker_core.cli.settings_docs import PROFILES, Profile
from broker_core.cli.settings_sources import ORIGIN_DEFAULT, declared, resolve
from scripts.generate_docs import REPOSITORY, generated
from scripts.generate_proto import GENERATED, PROTO_DIR, generate


@pytest.mark.parametrize("path", generated())
def test_documents_agree_with_the_code(path: str) -> None:
    """``make docs`` would change nothing."""
    assert (REPOSITORY / path).read_text(encoding="utf-8") == generated()[path]


def test_protocol_code_agrees_with_the_proto_file(tmp_path: Path) -> None:
    """``make proto`` would change nothing. The generator's own version, in the header, may differ."""
    generate(tmp_path)
    for name in GENERATED:
        assert _without_version(tmp_path / name) == _without_version(PROTO_DIR / name), name


def _without_version(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("DESCRIPTOR")), 0)
    return lines[start:]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_a_profile_sets_what_it_says_and_leaves_the_rest(profile: Profile) -> None:
    """Each file of conf/ is read as by the broker: its values arrive, everything else keeps its default."""
    file = REPOSITORY / "conf" / f"{profile.name}.toml"
    resolved = resolve(file=file, env={}, assignments=())
    for name, setting in declared().items():
        value = getattr(resolved.settings, setting.field)
        assert value == (profile.values[name][0] if name in profile.values else getattr(Settings(), setting.field))
        assert resolved.origins[name] == (f"file {file}" if name in profile.values else ORIGIN_DEFAULT)
