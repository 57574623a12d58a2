# SPDX-License-Identifier: Apache-2.0
"""Many large messages in chunks at once, small enough for every day; HACKING.md has the command for full size."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.chunk_stress import MIB, Memory, Stress


@pytest.mark.slow
def test_twenty_large_messages_interleave_in_bounded_memory(tmp_path: Path) -> None:
    """5.2, 5.3.3, 5.3.4, 5.3.7 (I5.2, I5.3, I5.4, I5.8): each whole message comes once, at one of two consumers; gaps,
    orphans, duplicates and incomplete ones come never and leave the backlog; nobody holds more than what is open."""
    stress = Stress(producers=20, message_bytes=10 * MIB, chunk_bytes=MIB // 2)
    found = stress.run(tmp_path)
    assert found.received == stress.expected
    assert found.backlog == 0
    over = {name: taken for name, taken in zip(Memory._fields, found.memory, strict=True)
            if taken > getattr(stress.bounds, name)}  # fmt: skip
    assert not over
