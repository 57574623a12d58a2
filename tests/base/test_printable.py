# SPDX-License-Identifier: Apache-2.0
"""What of a foreign text a terminal gets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.printable import printable, printable_json

OBEYED = [
    *map(chr, range(0x20)),
    *map(chr, range(0x7F, 0xA0)),
    *map(chr, range(0x202A, 0x202F)),
    *map(chr, range(0x2066, 0x206A)),
    *"\u2028\u2029\u200e\u200f\u061c\ufeff\u00ad\U000e0041\ud800\ue000",
]


@pytest.mark.parametrize("character", OBEYED, ids=ascii)
def test_a_character_that_a_terminal_obeys_is_written_as_its_number(character: str) -> None:
    """Controls of both sets, directions of writing, separators, what nobody sees; in JSON it means the same."""
    for written in (printable(f"a{character}b"), printable_json({f"a{character}b": [character]})):
        assert character not in written
        assert written.isascii()
        assert written.isprintable()
    assert json.loads(printable_json([character])) == [character]


@pytest.mark.parametrize(
    "text",
    [
        "Grüße, 世界",
        "\N{IDEOGRAPHIC SPACE}\N{NO-BREAK SPACE}",
        "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{ROCKET}",
        "\N{ARABIC LETTER MEEM}\N{ZERO WIDTH NON-JOINER}\N{ARABIC LETTER KHAH}",
        "\\x1b",
    ],
)
def test_what_people_write_is_left_as_it_is(text: str) -> None:
    """Letters of all scripts, spaces of all widths, and what joins them."""
    assert printable(text) == text
    assert printable_json(text) == json.dumps(text, ensure_ascii=False)


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_says_the_same_in_both_forms(value: object) -> None:
    """Whatever characters there are in texts and names of fields."""
    for indent in (None, 2):
        assert json.loads(printable_json(value, indent=indent)) == value


def test_lines_stay_where_they_are_wanted() -> None:
    """Help and errors have several."""
    assert printable("a\n\tb\x1b[0m", keep="\n\t") == "a\n\tb\\x1b[0m"
    assert printable("a\nb\r\t") == "a\\nb\\r\\t"
