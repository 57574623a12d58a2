# SPDX-License-Identifier: Apache-2.0
"""Expressions that a stranger may send: the same answers as Python's, in bounded time, or a refusal that says why."""

from __future__ import annotations

import random
import re
from itertools import product

import pytest

from broker_core.base.errors import NotAllowedError
from broker_core.broker.directory.name_pattern import ATOMS_MAX, DEPTH_MAX, PATTERN_CHARACTERS_MAX, NamePattern

WORDS = ["".join(letters) for length in range(5) for letters in product("ab.", repeat=length)]

ATOMS = ["a", "b", ".", "[ab]", "[^a]", r"\w", r"\.", r"\Qa.\E|b"]
REPETITIONS = ["*", "+", "?", "*?", "+?", "{0}", "{2}", "{1,3}", "{0,2}", "{2,}", "{0,}"]


def drawn(draw: random.Random, depth: int) -> tuple[str, str]:
    """A random expression as a broker gets it, and as Python writes it."""
    kind = draw.random()
    if depth == 0 or kind < 0.3:
        atom = draw.choice(ATOMS)
        return f"(?:{atom})", f"(?:{atom})".replace(r"\Qa.\E", r"a\.")
    ours, pythons = drawn(draw, depth - 1)
    if kind < 0.6:
        others, pythons_others = drawn(draw, depth - 1)
        joint = draw.choice(["", "|"])
        return f"({ours}{joint}{others})", f"({pythons}{joint}{pythons_others})"
    if kind < 0.7:
        return f"(?:{ours}|)", f"(?:{pythons}|)"
    repetition = draw.choice(REPETITIONS)
    return f"({ours}){repetition}", f"({pythons}){repetition}"


@pytest.mark.parametrize("seed", range(20))
def test_it_answers_as_python_does(seed: int) -> None:
    """Semantics 7.12: for random expressions and all short names."""
    draw = random.Random(seed)
    compared = 0
    while compared < 50:
        ours, pythons = drawn(draw, 3)  # deeper ones take Python for ever
        try:
            pattern = NamePattern(ours)
        except NotAllowedError:
            assert len(ours) > PATTERN_CHARACTERS_MAX or "{" in ours, ours
            continue
        compared += 1
        expected = re.compile(pythons, re.ASCII | re.DOTALL)
        for word in draw.sample(WORDS, 60):
            assert pattern.matches(word) == bool(expected.fullmatch(word)), (ours, word)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("public/default/(?:one|two)", ["public/default/one"], ["public/default/three", "one", ""]),
        ("^a.*b$", ["ab", "a-b"], ["abc", "xab"]),
        ("^$", [""], ["a"]),
        (r"a\$", ["a$"], ["a"]),
        (r"\Qa.b\E-[0-9]+", ["a.b-10"], ["axb-1", "a.b-"]),
        ("(?P<name>a)(?<other>b)", ["ab"], ["a"]),
        ("größe-.", ["größe-ß"], ["grosse-1"]),
        (r"[\w-]+", ["a-1"], ["a.1", "é"]),
    ],
)
def test_names_match_whole(pattern: str, matching: list[str], others: list[str]) -> None:
    """Semantics 7.12: with what Python, Java and RE2 write in the same way, and Java's quotations."""
    known = NamePattern(pattern)
    assert all(known.matches(name) for name in matching)
    assert not any(known.matches(name) for name in others)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(a", "not closed"), ("a)", "not opened"), ("a**", "repeated"), ("a++", "repeated"), ("*a", "nothing"),
        ("a|+", "nothing"), ("(?=a)", "looks around"), ("(?<!a)b", "looks around"), ("(?i)a", "flags"),
        (r"(a)\1", r"\\1"), (r"\bx", r"\\b"), ("a\\", "not known"), ("a{", "count"), ("a{3,2}", "ends before"),
        ("[", "class"), ("[]a]", "class"), ("[a&&b]", "class"), ("[b-a]", "range"), ("a^b", "inside"),
        ("a$b", "inside"), (r"\Qab\E*", "quotation"), ("x" * (PATTERN_CHARACTERS_MAX + 1), "longer"),
        (f"a{{{ATOMS_MAX + 1}}}", "written out"), ("(" * (DEPTH_MAX + 1) + ")" * (DEPTH_MAX + 1), "groups"),
    ],
)  # fmt: skip
def test_what_cannot_be_matched_is_refused(pattern: str, why: str) -> None:
    """Semantics 7.12: the error says which part it was, and clients look by themselves."""
    with pytest.raises(NotAllowedError, match=why):
        NamePattern(pattern)


def test_no_expression_takes_long() -> None:
    """Semantics 7.12: these would keep Python's own expressions busy for years, or never be read to their end."""
    assert not NamePattern("(((.*)*)*)*x").matches("a" * 255)
    assert not NamePattern("a?" * 100 + "a" * 50 + "b").matches("a" * 150)
    assert NamePattern("((){9999}){9999}").matches("")
    assert not NamePattern("(a|b|ab)*c").matches("ab" * 100)
