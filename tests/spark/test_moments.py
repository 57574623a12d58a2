# SPDX-License-Identifier: Apache-2.0
"""Times as users write them, and where they divide messages, which have whole milliseconds."""

from __future__ import annotations

import pytest

from broker_core.base.moments import LONG_MAX, parse_moment
from pulsarish_spark.options import Side, read_options

NEW_YEAR_MS = 1767225600000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1960-01-01T00:00:00Z", -315_619_200_000),
        ("1969-12-31T23:59:59.999Z", -1),
        ("1969-12-31T23:59:59.9985Z", -1),
        ("1969-12-31T23:59:59.9995Z", 0),
        ("1970-01-01T00:00:00.0005Z", 1),
        ("2026-01-01T00:00:00.000001Z", NEW_YEAR_MS + 1),
        ("2026-01-01T00:00:00.0000001Z", NEW_YEAR_MS + 1),
        ("2026-01-01T00:00:00.0010000000Z", NEW_YEAR_MS + 1),
        ("-999999999999999999w", -LONG_MAX),
    ],
)
def test_a_bound_is_the_next_whole_millisecond(text: str, ms: int) -> None:
    """Before 1970 too for event times, not for publish times, which do not begin before: so it takes and leaves out
    just the messages that it says."""
    address = {"topic": "t", "service.url": "pulsar://host:6650"}
    starting = address | {"startingEventTime": text, "endingEventTime": "9999-01-01T00:00:00Z"}
    ending = address | {"endingEventTime": text}
    assert read_options(starting, Side.READ, {}).kept.window.start_ms == ms
    assert read_options(ending, Side.READ, {}).kept.window.end_ms == ms
    assert parse_moment(text).published_at(NEW_YEAR_MS) == max(ms, 0)
