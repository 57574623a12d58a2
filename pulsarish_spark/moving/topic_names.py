# SPDX-License-Identifier: Apache-2.0
"""Finds where a program compares the column ``topic`` with a short name, which a full name never equals.

Owns telling such a comparison from others: one with a variable ``topic``, a setting of that name or a text that is not
SQL is none, nor one on a DataFrame that was read from elsewhere. A comparison is sure on a DataFrame that is seen to be
read by the format; it is not on one whose origin is not in sight, such as a parameter. Evaluates nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from pulsarish_spark.moving.chains import Names, methods, readers

_IN_SQL: Final = re.compile(r"""(?<![\w.])topic\s*(?:==?|<>|!=)\s*['"]((?:(?!://)[^'"])+)['"]""", re.IGNORECASE)
"""A comparison of the column ``topic`` with a short name, in a text such as ``where`` takes."""

_TAKES_SQL: Final = frozenset({"where", "filter", "selectExpr", "expr", "sql"})
_TAKES_COLUMNS: Final = frozenset({"agg", "join", "select", "withColumn", "withColumns", *_TAKES_SQL}) - {"expr", "sql"}
"""Methods of a DataFrame whose arguments speak of its columns."""

_MIXES: Final = frozenset({"crossJoin", "join", "union", "unionAll", "unionByName"})
_VIEWS: Final = frozenset({"sql", "table"})
"""What may lead to the rows of any DataFrame."""


class _Origin(Enum):
    """Where the rows come from that an expression speaks of; ``NONE``: it speaks of no rows, as far as can be seen."""

    FORMAT = "format"
    OTHER = "other"
    UNKNOWN = "unknown"
    NONE = "none"


class ShortName(NamedTuple):
    """A short name that is compared with the column. ``is_sure``: the rows are seen to be of the format."""

    line: int
    name: str
    is_sure: bool


def short_names(tree: ast.Module, format_: str) -> Iterator[ShortName]:
    """The comparisons in a program with the topics of ``format_``."""
    search = _Search(Names(tree), format_)
    # A text in a variable is found where each method takes it.
    return iter(dict.fromkeys(search.within(tree, _Origin.NONE)))


class _Search:
    """Finds the names of topics in one program."""

    def __init__(self, names: Names, format_: str) -> None:
        self._names = names
        self._format = format_

    def within(self, node: ast.AST, rows: _Origin) -> Iterator[ShortName]:
        """All in ``node``, which speaks of ``rows``."""
        match node:
            case ast.Compare(left=left, comparators=[ast.Constant(value=str(name))]) if "://" not in name:
                yield from self._found(node.lineno, name, self._rows_of_column(left, rows))
            case ast.Call(func=ast.Attribute(attr=method, value=receiver)) if method in _TAKES_COLUMNS:
                yield from self.within(receiver, rows)
                yield from self._in_arguments(node, method, self._origin(receiver))
                return
            case ast.Call(func=ast.Attribute(attr=method) | ast.Name(id=method)) if method in _TAKES_SQL:
                yield from self._in_arguments(node, method, _Origin.UNKNOWN if rows is _Origin.NONE else rows)
                return
        for child in ast.iter_child_nodes(node):
            yield from self.within(child, rows)

    def _in_arguments(self, call: ast.Call, method: str, rows: _Origin) -> Iterator[ShortName]:
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
            yield from self.within(argument, rows)
            text = self._names.value(argument)
            if method in _TAKES_SQL and isinstance(text, ast.Constant | ast.JoinedStr):
                yield from self._in_sql(text, rows)

    def _in_sql(self, text: ast.Constant | ast.JoinedStr, rows: _Origin) -> Iterator[ShortName]:
        for part in [text] if isinstance(text, ast.Constant) else text.values:
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                for name in _IN_SQL.findall(part.value):
                    yield from self._found(part.lineno, name, rows)

    def _rows_of_column(self, node: ast.expr, rows: _Origin) -> _Origin:
        """Whose column ``topic`` a node is, of an expression that speaks of ``rows``; NONE if it is no such column."""
        match node:
            case ast.Call(func=ast.Name(id="col") | ast.Attribute(attr="col"), args=[ast.Constant(value="topic")]):
                return _Origin.UNKNOWN if rows is _Origin.NONE else rows
            case (
                ast.Subscript(value=owner, slice=ast.Constant(value="topic")) | ast.Attribute(value=owner, attr="topic")
            ):
                origin = self._origin(owner)
                return rows if origin is _Origin.UNKNOWN else origin
        return _Origin.NONE

    def _origin(self, node: ast.expr) -> _Origin:
        """Where the rows of a DataFrame come from."""
        found = readers(node, self._names)
        if any(use.format == self._format for use in found):
            return _Origin.FORMAT
        steps = {*methods(node, self._names)}
        is_computed = any(use.format is None and "format" in use.lines for use in found)
        return _Origin.UNKNOWN if not found or is_computed or steps & (_MIXES | _VIEWS) else _Origin.OTHER

    def _found(self, line: int, name: str, rows: _Origin) -> Iterator[ShortName]:
        if rows in (_Origin.FORMAT, _Origin.UNKNOWN):
            yield ShortName(line, name, rows is _Origin.FORMAT)
