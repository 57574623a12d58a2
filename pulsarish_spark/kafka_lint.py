# SPDX-License-Identifier: Apache-2.0
"""The options of a job of Spark's Kafka format that have to change, so that it runs on ``pulsarish``.

A reader or a writer is followed along its calls, over variables too, and the source or the sink itself judges each of
its options; a value that the program computes is not judged, only the name. Names of Kafka's settings, ``kafka.*``, are
found wherever a text of the program has one. Nothing is changed or run.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from broker_core.base.errors import ConfigError, UsageError
from pulsarish_spark.options import Side, check_option

_KAFKA: Final = "kafka"
_SETTING: Final = re.compile(r"kafka(\.\w+)+", re.IGNORECASE)
_SIDES: Final = {
    "read": Side.BATCH_READ,
    "readStream": Side.STREAM_READ,
    "write": Side.BATCH_WRITE,
    "writeStream": Side.STREAM_WRITE,
}
_ENDS: Final = frozenset({"load", "save", "start", "toTable", "saveAsTable"})
_NO_OPTIONS: Final = frozenset({"format", "schema", "mode", "partitionBy", "outputMode", "queryName"})
"""Arguments of ``load``, ``save`` and ``start`` by name that are no options."""

_MEASURED: Final = re.compile(r"^([ \t]*)%time(?:it)?[ \t]+", re.MULTILINE)
_NOTEBOOKS_OWN: Final = re.compile(r"^([ \t]*)([%!?].*|[\w., ]+=[ \t]*[%!].*|[\w.]+\?{1,2}[ \t]*)$", re.MULTILINE)
"""A line for the notebook: `%sql ...`, `!ls`, `files = !ls`, `frame?`."""
_OTHER_LANGUAGE: Final = re.compile(r"\s*(?:%%|%\w+[ \t]*$)", re.MULTILINE)
"""The beginning of a cell that may be in another language: Databricks writes `%sql` where Jupyter has `%%sql`."""


class Finding(NamedTuple):
    """One line that has to change. ``place``: as a person finds it, with the file."""

    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


@dataclass(slots=True)
class _Use:
    """One reader or writer, with its options in the order of the program: name, value (None: computed) and line."""

    side: Side
    format: str | None = None
    format_line: int = 0
    options: list[tuple[str, str | None, int]] = field(default_factory=list)


def lint(path: str | os.PathLike[str]) -> list[Finding]:
    """The lines to change in a Python file or a notebook that uses Spark's Kafka format, in their order.

    Empty where it does not use it. UsageError where ``path`` cannot be read, or is no Python.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{file} cannot be read: {why}", hint="give a Python file or a notebook") from error
    program, places = ast.Module([], []), [""]
    for where, source in _cells(file, text) if file.suffix == ".ipynb" else [(f"{file}:", text)]:
        program.body += ast.increment_lineno(_parsed(where, source), len(places) - 1).body
        places += [f"{where}{line}" for line in range(1, source.count("\n") + 2)]
    return [Finding(places[line], text) for line, text in sorted(set(_found(program)))]


# -- reading programs


def _cells(file: Path, text: str) -> Iterator[tuple[str, str]]:
    """The code cells of a notebook as Python, with their places; not those in another language."""
    try:
        cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file} is no notebook of format 4", hint="save it with a present Jupyter") from error
    for number, (kind, source) in enumerate(cells, 1):
        if kind == "code":
            yield f"{file}: cell {number}, line ", _python_of(source)


def _python_of(cell: str) -> str:
    """A cell without its lines for the notebook; no line of Python is taken for one as long as the cell is Python."""
    measured = _MEASURED.sub(r"\1", cell)
    for attempt in (cell, measured, _NOTEBOOKS_OWN.sub(r"\1pass", measured)):
        with suppress(SyntaxError):
            ast.parse(attempt)
            return attempt
    return "" if _OTHER_LANGUAGE.match(cell) else cell


def _parsed(where: str, text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise UsageError(
            f"{where}{error.lineno} is no Python of version 3: {error.msg}", hint="give a file that Python can run"
        ) from error


# -- judging options


def _found(tree: ast.Module) -> Iterator[tuple[int, str]]:
    assigned = _assignments(tree)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Call | ast.Attribute)]
    uses = [use for node in nodes for use in _uses(node, assigned) if use.format == _KAFKA]
    for use in uses:
        yield use.format_line, 'format("kafka") becomes format("pulsarish")'
        for name, text, line in use.options:
            yield from _refusal(name, text, use.side, line)
    for node in ast.walk(tree) if uses else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _SETTING.fullmatch(node.value):
            refusals = [[*_refusal(node.value, None, use.side, node.lineno)] for use in uses]
            if all(refusals):
                yield from refusals[0]


def _refusal(name: str, text: str | None, side: Side, line: int) -> Iterator[tuple[int, str]]:
    try:
        check_option(name, text, side)
    except ConfigError as error:
        yield line, str(error)


# -- following readers and writers

_Assigned = dict[str, list[tuple[int, ast.expr]]]
"""The values that each variable is assigned, with the line where the assignment ends."""


def _assignments(tree: ast.Module) -> _Assigned:
    found: _Assigned = defaultdict(list)
    for node in ast.walk(tree):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                found[name].append((node.end_lineno or node.lineno, value))
    return found


def _value(node: ast.expr | None, assigned: _Assigned) -> ast.expr | None:
    """``node``, or the last value above it of the variable that it names."""
    while isinstance(node, ast.Name):
        above = [(line, value) for line, value in assigned.get(node.id, ()) if line < node.lineno]
        node = max(above, key=lambda each: each[0])[1] if above else None
    return node


def _text(node: ast.expr | None, assigned: _Assigned) -> str | None:
    """The value as Spark would take it for an option; None where it is computed."""
    found = _value(node, assigned)
    if not isinstance(found, ast.Constant) or found.value is None:
        return None
    return str(found.value).lower() if isinstance(found.value, bool) else str(found.value)


def _uses(node: ast.expr | None, assigned: _Assigned) -> list[_Use]:
    """The readers and writers along a chain of calls, from its end to its begin."""
    steps: list[tuple[ast.Attribute, ast.Call | None]] = []
    while (node := _value(node, assigned)) is not None:
        match node:
            case ast.Call(func=ast.Attribute() as attribute):
                steps.append((attribute, node))
            case ast.Attribute() as attribute:
                steps.append((attribute, None))
            case _:
                break
        node = attribute.value
    uses: list[_Use] = []
    for attribute, call in reversed(steps):
        if call is None and attribute.attr in _SIDES:
            uses.append(_Use(_SIDES[attribute.attr]))
        elif call is not None and uses:
            _apply(uses[-1], attribute.attr, call, assigned)
    return uses


def _apply(use: _Use, method: str, call: ast.Call, assigned: _Assigned) -> None:
    """Note the format and the options that one call gives a reader or a writer."""
    line = call.func.end_lineno or call.lineno
    arguments = [*call.args, *(each.value for each in call.keywords)]
    if method == "format" and arguments:
        use.format, use.format_line = (_text(arguments[0], assigned) or "").lower(), line
    elif method == "option" and len(arguments) == 2 and (name := _text(arguments[0], assigned)) is not None:
        use.options.append((name, _text(arguments[1], assigned), line))
    elif method == "options" or method in _ENDS:
        for keyword in call.keywords:
            given = _value(keyword.value, assigned)
            if keyword.arg == "format" and method in _ENDS:
                use.format, use.format_line = (_text(given, assigned) or "").lower(), line
            elif keyword.arg is None and isinstance(given, ast.Dict):
                named = [
                    (_text(key, assigned), value, key) for key, value in zip(given.keys, given.values, strict=True)
                ]
                use.options += [
                    (name, _text(value, assigned), key.lineno) for name, value, key in named if name and key
                ]
            elif keyword.arg is not None and (method == "options" or keyword.arg not in _NO_OPTIONS):
                use.options.append((keyword.arg, _text(given, assigned), line))
