# SPDX-License-Identifier: Apache-2.0
"""The Kafka job of the example before and after it moves: what ``lint`` has named is what was changed."""

from __future__ import annotations

import difflib
from typing import Final

from pulsarish_spark import lint
from tests.examples.conftest import EXAMPLES

BEFORE: Final = EXAMPLES / "kafka_job" / "before.py"
AFTER: Final = EXAMPLES / "kafka_job" / "after.py"


def test_each_line_that_is_changed_was_named() -> None:
    """Of the two named lines that stay, one is set right by an option elsewhere, the other by ``foreachBatch``."""
    old, new = (path.read_text(encoding="utf-8").splitlines() for path in (BEFORE, AFTER))
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    changed = {
        line + 1 for tag, begin, end, _, _ in blocks if tag in ("replace", "delete") for line in range(begin, end)
    }
    named = {int(finding.place.rpartition(":")[2]) for finding in lint(BEFORE)}
    assert [old[line - 1].strip() for line in sorted(changed - named) if '"""' not in old[line - 1]] == [
        "return writer.trigger(availableNow=True).start()"
    ]
    stay = [old[line - 1] for line in sorted(named - changed)]
    assert ["topic = 'orders'" in stay[0], 'outputMode("update")' in stay[1]] == [True, True]
    assert len(stay) == 2
    assert lint(AFTER) == []
