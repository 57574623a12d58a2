# SPDX-License-Identifier: Apache-2.0
"""Expressions that stand for some names, and those that stand for any."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.topics_pattern import CHOICES_MAX, literal_choices


@pytest.mark.parametrize(
    ("expression", "choices"),
    [
        ("default", ("default",)),
        ("a|b", ("a", "b")),
        ("(a|b)", ("a", "b")),
        ("team-(?:red|blue(s|))", ("team-red", "team-blues", "team-blue")),
        (r"v1.2|v1\.2", ("v1.2",)),
        ("(a|b)/(c|d)", ("a/c", "a/d", "b/c", "b/d")),
        ("", ("",)),
    ],
)
def test_alternatives_are_spelled_out(expression: str, choices: tuple[str, ...]) -> None:
    """In the order of the expression, each once; a dot is a dot."""
    assert literal_choices(expression) == choices


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("a.*", '"*" at character 3'),
        ("(a|b", r'a "\(" has no "\)"'),
        ("a)", r'"\)" at character 2'),
        (r"\d", r'"\\" at character 1'),
        ("[ab]", r'"\[" at character 1'),
        ("x?", r'"\?" at character 2'),
        ("(a|b)" * 20, f"more than {CHOICES_MAX} names"),
        ("|".join(f"n{number}" for number in range(CHOICES_MAX + 1)), f"more than {CHOICES_MAX} names"),
    ],
)
def test_what_stands_for_any_name_is_refused(expression: str, why: str) -> None:
    """With the character that does it, and before there are too many to write down."""
    with pytest.raises(ValueError, match=why):
        literal_choices(expression)


@given(st.lists(st.text("ab-", max_size=3), min_size=1, max_size=4), st.text("ab", max_size=3))
def test_choices_are_what_the_expression_matches(names: list[str], more: str) -> None:
    """As Python's own expressions understand it."""
    expression = f"({'|'.join(names)}){more}"
    found = literal_choices(expression)
    assert set(found) == {name + more for name in names}
    assert all(re.fullmatch(expression, text) for text in found)
