# SPDX-License-Identifier: Apache-2.0
"""A compaction of many messages goes in many turns of the loop, and takes memory for keys alone."""

from __future__ import annotations

from pathlib import Path

from tests.broker.compaction_stress import Stress

MIB = 1 << 20


def test_a_run_takes_turns_and_little_memory(tmp_path: Path) -> None:
    """7.4.5: `python -m tests.broker.compaction_stress` does it with ten million messages of a million keys."""
    stress = Stress(str(tmp_path / "data"))
    stress.fill(20_000, 2_000, 0)
    run = stress.compact()
    assert 1_990 < run.entries <= 2_000
    assert run.memory_bytes < 64 * MIB
    assert run.turns > 10
    stress.fill(1_000, 2_000, 1)
    assert stress.compact().entries >= run.entries
    stress.broker.close()
    stress.store.close()
