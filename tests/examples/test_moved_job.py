# SPDX-License-Identifier: Apache-2.0
"""The Kafka job of the example before and after it moves: what ``lint`` has named is what was changed."""

from __future__ import annotations

import difflib
from typing import Final

from pulsarish_spark import lint
from tests.examples.conftest import EXAMPLES

BEFORE: Final = EXAMPLES / "kafka_job" / "before.py"
AFTER: Final = EXAMPLES / "kafka_job" / "after.py"


def test_each_format_and_option_that_is_changed_was_named() -> None:
    """And no line that stays; what is no option is changed by hand."""
    old, new = (path.read_text(encoding="utf-8").splitlines() for path in (BEFORE, AFTER))
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    changed = {
        line + 1 for tag, begin, end, _, _ in blocks if tag in ("replace", "delete") for line in range(begin, end)
    }
    named = {int(finding.place.rpartition(":")[2]) for finding in lint(BEFORE)}
    assert named < changed
    assert {
        number for number in changed if 'format("kafka")' in old[number - 1] or '"kafka.' in old[number - 1]
    } == named
    assert lint(AFTER) == []
