# SPDX-License-Identifier: Apache-2.0
"""The rules of the registry, each with the smallest history that breaks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.kill.schema_history import Event, Kind, check

Step = tuple[Any, ...]


def history(steps: Sequence[Step]) -> list[Event]:
    """Operations one after the other: kind, version, schema. The bytes are the schema's number, or what comes fourth;
    a fifth value makes an operation last until so many later ones are over."""
    events = []
    for time, (kind, version, schema, *more) in enumerate(steps):
        data = more[0] if more else b"" if schema is None else str(schema).encode()
        lasts = more[1] if len(more) > 1 else 0
        events.append(Event(kind, "t", time, time + 0.5 + lasts, version, schema, data))
    return events


def broken(steps: Sequence[Step]) -> set[str]:
    return set(check(history(steps)).broken)


ADD, READ, LATEST, DELETE, FORGET = Kind.ADD, Kind.READ, Kind.LATEST, Kind.DELETE, Kind.FORGET


@pytest.mark.parametrize(
    "steps",
    [
        [(ADD, 0, 7), (ADD, 1, 8), (ADD, 0, 7), (READ, 0, 7), (LATEST, 1, 8), (READ, 2, None)],
        [(ADD, 0, 7), (DELETE, 1, None), (LATEST, None, None), (ADD, 2, 7), (READ, 0, 7), (READ, 1, None)],
        [(ADD, 0, 7), (DELETE, None, None), (LATEST, None, None), (ADD, 2, 7), (READ, 1, None)],
        [(ADD, 0, 7), (FORGET, -1, None), (READ, 0, None), (ADD, 0, 8), (LATEST, 0, 8)],
        [(ADD, 0, 7, b"7", 9), (FORGET, -1, None, b"", 3), (ADD, 0, 8), (READ, 0, 7), (LATEST, None, None)],
        [(ADD, 0, 7), (DELETE, 1, None), (FORGET, None, None), (ADD, 2, 7), (READ, 0, 7), (READ, 1, None)],
        [(ADD, None, 7), (READ, 0, 7), (READ, 0, 7)],
        [(ADD, None, 7), (LATEST, None, None), (ADD, 0, 8)],
        [(ADD, 0, 7), (DELETE, 1, None, b"", 2), (LATEST, None, None)],
    ],
)
def test_histories_that_break_no_rule(steps: list[Step]) -> None:
    """Deletions with and without an answer, schemas that were never confirmed, and what overlaps the end of all."""
    assert broken(steps) == set()


@pytest.mark.parametrize(
    ("rule", "steps"),
    [
        ("G1", [(ADD, 0, 7), (ADD, 0, 8)]),
        ("G1", [(ADD, None, 8), (ADD, 0, 7), (READ, 0, 8)]),
        ("G1", [(ADD, 0, 7), (DELETE, 0, None)]),
        ("G2", [(ADD, 0, 7), (READ, 0, None)]),
        ("G2", [(ADD, None, 7), (READ, 0, 7), (READ, 0, None)]),
        ("G2", [(ADD, 0, 7), (LATEST, None, None)]),
        ("G3", [(ADD, 0, 7), (READ, 0, 7, b"other")]),
        ("G3", [(ADD, 0, 7), (ADD, 0, 7, b"longer"), (READ, 0, 7), (READ, 0, 7, b"longer")]),
        ("G4", [(ADD, 0, 7), (ADD, 1, 7)]),
        ("G4", [(ADD, 0, 7), (ADD, 1, 8), (DELETE, 3, None), (ADD, 2, 7)]),
        ("G5", [(ADD, 0, 7), (ADD, 2, 8), (READ, 1, None)]),
        ("G6", [(ADD, 0, 7), (ADD, 1, 8), (LATEST, 0, 7)]),
        ("G6", [(ADD, 0, 7), (DELETE, 1, None), (LATEST, 0, 7)]),
        ("G1", [(FORGET, -1, None), (ADD, 0, 7), (ADD, 0, 8)]),
        ("G4", [(ADD, 0, 7), (DELETE, 1, None), (FORGET, -1, None), (ADD, 0, 7), (ADD, 2, 7)]),
    ],
)
def test_each_rule_is_broken_by_a_history_of_some_steps(rule: str, steps: list[Step]) -> None:
    """A check that was never seen to complain cannot be trusted."""
    assert rule in broken(steps)
