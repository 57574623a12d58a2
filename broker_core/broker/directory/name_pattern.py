# SPDX-License-Identifier: Apache-2.0
"""``NamePattern``: regular expressions that any client may send to a broker, because matching takes linear time.

Python's ``re`` tries one alternative after the other, so that a short expression can keep it busy for years. This one
follows all alternatives at once (Glushkov's automaton): for each character at most one step for each atom of the
expression. An atom is what matches one character: a letter, a dot, an escape, a class in brackets. There are groups,
``|``, ``*``, ``+``, ``?`` and counts; everything that needs more (looking around, references, flags, anchors inside) is
refused by name.

Why not google-re2, which accepts the same expressions: its newest release (1.1.20251105) has no wheels for CPython
3.15, nor for musl, and to build it RE2, Abseil and pybind11 have to be installed. A broker should not fail to install
for the sake of names. Once all supported Pythons have wheels this file can go.
Source: V. Glushkov, "The abstract theory of automata", 1961; the subset is that of RE2 which Pulsar's broker uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from broker_core.base.errors import NotAllowedError

PATTERN_CHARACTERS_MAX: Final = 256
"""About as long as a name may be. Pulsar's broker takes 50."""

ATOMS_MAX: Final = 256
"""Atoms after counts are written out, as ``a{100}`` is a hundred of them; bounds the work for each character."""

DEPTH_MAX: Final = 32
"""Groups inside of groups; far below what Python can call."""

_COUNT: Final = re.compile(r"\{(\d{1,4})(,(\d{1,4})?)?\}")
_GROUP: Final = re.compile(r"\((?:\?(?::|P?<[A-Za-z]\w*>))?")
_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|\Z)", re.DOTALL)
_CLASS: Final = re.compile(r"\[\^?(?:\\.|[^\\\[\]])+\]", re.DOTALL)
_SHORTHANDS: Final = frozenset("dDsSwW")
_REPETITIONS: Final = frozenset("*+?{")

_Matcher = Callable[[str], object]


class _Piece(NamedTuple):
    """A piece of the automaton: ``first`` and ``last`` are sets of atoms, a bit for each. ``empty``: it may match
    nothing."""

    first: int
    last: int
    empty: bool


_NOTHING: Final = _Piece(0, 0, True)


class NamePattern:
    """``text`` as the client sent it. NotAllowedError if it is not one of these expressions."""

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARACTERS_MAX:
            raise _refused(text, f"it is longer than {PATTERN_CHARACTERS_MAX} characters")
        builder = _Builder(text)
        self.text = text
        self._whole = builder.build()
        self._atoms = builder.atoms
        self._follow = builder.follow
        self._taken_by: dict[str, int] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole of ``name`` matches."""
        if not name:
            return self._whole.empty
        open_atoms, reached = self._whole.first, 0
        for character in name:
            reached = open_atoms & self._takers(character)
            if not reached:
                return False
            open_atoms = self._behind(reached)
        return bool(reached & self._whole.last)

    def _takers(self, character: str) -> int:
        """The atoms that match ``character``."""
        known = self._taken_by.get(character)
        if known is None:
            known = sum(1 << number for number, matches in enumerate(self._atoms) if matches(character))
            if character.isascii():  # there are too many other characters to keep them all
                self._taken_by[character] = known
        return known

    def _behind(self, atoms: int) -> int:
        """The atoms that may come behind one of ``atoms``."""
        behind = 0
        while atoms:
            lowest = atoms & -atoms
            behind |= self._follow[lowest.bit_length() - 1]
            atoms ^= lowest
        return behind


class _Builder:
    """Reads an expression once, from left to right; a count reads its part again and again."""

    def __init__(self, text: str) -> None:
        self.atoms: list[_Matcher] = []
        self.follow: list[int] = []
        self._text = text
        self._end = len(text)
        self._at = 0
        self._depth = 0

    def build(self) -> _Piece:
        """The whole expression. Anchors around it say nothing, since names are matched whole."""
        if self._text.startswith("^"):
            self._at = 1
        escapes = len(self._text[:-1]) - len(self._text[:-1].rstrip("\\"))
        if self._text.endswith("$") and escapes % 2 == 0:
            self._end -= 1
        whole = self._alternatives()
        if self._at < self._end:
            raise self._refusal("a parenthesis is closed that was not opened")
        return whole

    def _alternatives(self) -> _Piece:
        first, last, empty = self._sequence()
        while self._peek() == "|":
            self._at += 1
            other = self._sequence()
            first, last, empty = first | other.first, last | other.last, empty or other.empty
        return _Piece(first, last, empty)

    def _sequence(self) -> _Piece:
        whole = _NOTHING
        while self._peek() not in ("", "|", ")"):
            whole = self._joined(whole, self._repeated())
        return whole

    def _joined(self, left: _Piece, right: _Piece) -> _Piece:
        self._connect(left.last, right.first)
        return _Piece(
            left.first | right.first if left.empty else left.first,
            left.last | right.last if right.empty else right.last,
            left.empty and right.empty,
        )

    def _connect(self, before: int, behind: int) -> None:
        while before:
            lowest = before & -before
            self.follow[lowest.bit_length() - 1] |= behind
            before ^= lowest

    def _repeated(self) -> _Piece:
        """One part with what stands behind it: ``*``, ``+``, ``?`` or a count, perhaps lazy, which is the same here."""
        start = self._at
        part = self._single()
        least, most = self._quantity()
        end = self._at
        if self._peek() in _REPETITIONS:
            raise self._refusal("a repetition is repeated")
        if not part.first:
            return part
        if most is None and least <= 1:
            self._connect(part.last, part.first)
            return part if least else part._replace(empty=True)
        whole = part._replace(empty=True) if least == 0 else part
        if most == 0:
            return _NOTHING
        for number in range(1, least if most is None else most):
            self._at = start
            part = self._single()
            whole = self._joined(whole, part if number < least else part._replace(empty=True))
        if most is None:
            self._connect(part.last, part.first)
        self._at = end
        return whole

    def _quantity(self) -> tuple[int, int | None]:
        """How often at least and at most (None: any number)."""
        sign = self._peek()
        if sign in ("*", "+", "?"):
            self._at += 1
            quantity: tuple[int, int | None] = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        elif sign == "{":
            count = _COUNT.match(self._text, self._at, self._end)
            if count is None:
                raise self._refusal("a count is not {m}, {m,} or {m,n}")
            self._at = count.end()
            least = int(count[1])
            quantity = (least, least if count[2] is None else int(count[3]) if count[3] else None)
            if quantity[1] is not None and quantity[1] < least:
                raise self._refusal("a count ends before it begins")
        else:
            return 1, 1
        if self._peek() == "?":
            self._at += 1
        return quantity

    def _single(self) -> _Piece:
        """A group, a quotation or an atom."""
        text, at = self._text, self._at
        character = text[at]
        if character == "(":
            return self._group()
        if character in "*+?{)":
            raise self._refusal(f"{character!r} stands where nothing can be repeated")
        if character in "^$":
            raise self._refusal(f"{character!r} stands inside of it")
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escaped()
        self._at = at + 1
        return self._atom(_any if character == "." else character.__eq__)

    def _group(self) -> _Piece:
        opening = _GROUP.match(self._text, self._at, self._end)
        if opening is None or self._text.startswith("?", opening.end()):
            raise self._refusal("it looks around, sets flags or does something else that begins with (?")
        self._at = opening.end()
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._refusal(f"more than {DEPTH_MAX} groups are inside of each other")
        inside = self._alternatives()
        if self._peek() != ")":
            raise self._refusal("a parenthesis is not closed")
        self._depth -= 1
        self._at += 1
        return inside

    def _class(self) -> _Piece:
        found = _CLASS.match(self._text, self._at, self._end)
        if found is None or any(pair in found[0] for pair in ("&&", "--", "||", "~~")):
            raise self._refusal("a class in brackets is not closed, empty, or made of others")
        self._at = found.end()
        try:
            return self._atom(re.compile(found[0], re.ASCII | re.DOTALL).fullmatch)
        except re.error as error:
            raise self._refusal(str(error)) from error

    def _escaped(self) -> _Piece:
        quoted = _QUOTED.match(self._text, self._at, self._end)
        if quoted is not None:
            self._at = quoted.end()
            whole = _NOTHING
            for character in quoted[1]:
                whole = self._joined(whole, self._atom(character.__eq__))
            if self._peek() in _REPETITIONS:
                raise self._refusal("a quotation is repeated")
            return whole
        escaped = self._text[self._at + 1 : self._at + 2]
        self._at += 2
        if escaped in _SHORTHANDS:
            return self._atom(re.compile("\\" + escaped, re.ASCII).fullmatch)
        if not escaped or escaped.isalnum():
            raise self._refusal(f"\\{escaped} is not known")
        return self._atom(escaped.__eq__)

    def _atom(self, matches: _Matcher) -> _Piece:
        if len(self.atoms) >= ATOMS_MAX:
            raise self._refusal(f"with its counts written out it has more than {ATOMS_MAX} characters")
        bit = 1 << len(self.atoms)
        self.atoms.append(matches)
        self.follow.append(0)
        return _Piece(bit, bit, False)

    def _peek(self) -> str:
        return self._text[self._at] if self._at < self._end else ""

    def _refusal(self, why: str) -> NotAllowedError:
        return _refused(self._text, why)


def _any(_character: str) -> bool:
    return True


def _refused(text: str, why: str) -> NotAllowedError:
    return NotAllowedError(
        f"the pattern {text[:80]!r} cannot be matched by a broker: {why}",
        hint="use characters, classes, groups, | and repetitions only",
    )
