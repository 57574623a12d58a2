# SPDX-License-Identifier: Apache-2.0
"""Finds how a program uses a format of Spark: ``spark.read.format(...).option(...).load()`` and its kin.

Owns reading such chains out of a syntax tree: over line ends, over variables, with options given
one by one or as a dict. It evaluates nothing: what is computed has the value None. Knows nothing of Kafka or Pulsar.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pulsarish_spark.options import Side

_SIDES: Final = {
    "read": Side.BATCH_READ,
    "readStream": Side.STREAM_READ,
    "write": Side.BATCH_WRITE,
    "writeStream": Side.STREAM_WRITE,
}
_ENDS: Final = frozenset({"load", "save", "start", "toTable", "saveAsTable"})
_PARAMETERS: Final = {
    "format": ("source",),
    "option": ("key", "value"),
    "mode": ("saveMode",),
    "outputMode": ("outputMode",),
}
"""Arguments of methods that are given without a name as a rule, in their order."""

_NO_OPTIONS: Final = frozenset({"format", "schema", "mode", "partitionBy", "outputMode", "queryName"})
"""Arguments of ``load``, ``save`` and ``start`` by name that are no options."""


@dataclass(slots=True)
class Use:
    """One reader or writer. Values are None where the program computes them; ``lines`` says where each thing stands.

    The format and both modes are in lower case: Spark makes no difference, nor in the names of options.
    ``options``: name to value. ``triggers``: the names of the trigger's arguments.
    """

    side: Side
    line: int
    format: str | None = None
    options: dict[str, str | None] = field(default_factory=dict)
    mode: str | None = None
    has_mode: bool = False
    output_mode: str | None = None
    triggers: tuple[str, ...] = ()
    is_ended: bool = False
    lines: dict[str, int] = field(default_factory=dict)

    def line_of(self, what: str) -> int:
        """The line of an option, ``format``, ``mode``, ``outputMode`` or ``trigger``; of its begin if not known."""
        return self.lines.get(what, self.line)

    def named(self, option: str) -> Iterator[tuple[str, str | None]]:
        """An option as the program writes it, and its value."""
        return ((name, text) for name, text in self.options.items() if name.lower() == option.lower())


class _Assigned(NamedTuple):
    """One value of a variable, None if it is computed, and the line where its assignment ends."""

    line: int
    value: ast.expr | None


class Names:
    """The values of variables that a program assigns once, wherever in it; of others what they were assigned last."""

    def __init__(self, tree: ast.Module) -> None:
        assigned: defaultdict[str, list[_Assigned]] = defaultdict(list)
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    assigned[name].append(_Assigned(node.end_lineno or node.lineno, value))
                case ast.AnnAssign(target=ast.Name(id=name), value=value):
                    assigned[name].append(_Assigned(node.end_lineno or node.lineno, value))
                case ast.AugAssign(target=ast.Name(id=name)) | ast.arg(arg=name):
                    assigned[name].append(_Assigned(node.lineno, None))
        self._assigned = assigned
        self._once = {name: found[0].value for name, found in assigned.items() if len(found) == 1}
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        self._functions = [range(each.lineno, (each.end_lineno or each.lineno) + 1) for each in functions]

    def last(self, name: ast.Name) -> ast.expr | None:
        """What stands for ``name`` in a chain: a reader is often assigned again with one more option.

        That is the last assignment above it in its function, as if every branch was taken.
        """
        if name.id in self._once:
            return self._once[name.id]
        scope = self._function(name.lineno)
        above = sorted(
            (each for each in self._assigned[name.id] if each.line < name.lineno), key=lambda each: each.line
        )
        return next((each.value for each in above[::-1] if self._function(each.line) == scope), None)

    def _function(self, line: int) -> range | None:
        """The lines of the innermost function that has ``line``."""
        return min((lines for lines in self._functions if line in lines), key=len, default=None)

    def value(self, node: ast.expr | None) -> ast.expr | None:
        """``node``, or what the variable that it names was assigned."""
        seen: set[str] = set()
        while isinstance(node, ast.Name) and node.id in self._once and node.id not in seen:
            seen.add(node.id)
            node = self._once[node.id]
        return node

    def text(self, node: ast.expr | None) -> str | None:
        """The value as Spark would take it for an option; None where it is computed."""
        found = self.value(node)
        if not isinstance(found, ast.Constant) or found.value is None:
            return None
        return str(found.value).lower() if isinstance(found.value, bool) else str(found.value)

    def items(self, node: ast.expr | None) -> Iterator[tuple[str, str | None, int]]:
        """The names and values of a dict that is written down, with their lines; nothing of one that is computed."""
        found = self.value(node)
        if isinstance(found, ast.Dict):
            for key, value in zip(found.keys, found.values, strict=True):
                if (name := self.text(key)) is not None:
                    yield name, self.text(value), key.lineno if key else found.lineno


def uses(tree: ast.Module) -> list[Use]:
    """All readers and writers of a program, each once, in the order of their lines."""
    names = Names(tree)
    found: dict[tuple[int, int], Use] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call | ast.Attribute):
            for place, use in _along(node, names).items():
                if place not in found or _says_more(use, found[place]):
                    found[place] = use
    return sorted(found.values(), key=lambda use: use.line)


def readers(node: ast.expr, names: Names) -> list[Use]:
    """The readers that ``node``, a chain, begins with."""
    return [use for use in _along(node, names).values() if use.side in Side.READ]


def methods(node: ast.expr, names: Names) -> list[str]:
    """The names of what a chain calls or reads, from its begin."""
    return [step.attr for step, _ in _steps(node, names)]


def _says_more(one: Use, other: Use) -> bool:
    return (len(one.lines), one.is_ended) > (len(other.lines), other.is_ended)


def _along(node: ast.expr, names: Names) -> dict[tuple[int, int], Use]:
    """The readers and writers along one chain, by where their ``read`` or ``write`` stands."""
    found: dict[tuple[int, int], Use] = {}
    current: Use | None = None
    for step, call in _steps(node, names):
        if call is None and step.attr in _SIDES:
            line = step.end_lineno or step.lineno
            current = Use(_SIDES[step.attr], line)
            found[line, step.end_col_offset or 0] = current
        elif current is not None and call is not None and not current.is_ended:
            _apply(current, step.attr, call, names)
    return found


def _steps(node: ast.expr, names: Names) -> list[tuple[ast.Attribute, ast.Call | None]]:
    """The attributes along a chain from its begin, each with its call, if it is called."""
    steps: list[tuple[ast.Attribute, ast.Call | None]] = []
    seen: set[int] = set()
    at: ast.expr | None = node
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        match at:
            case ast.Call(func=ast.Attribute() as attribute):
                steps.append((attribute, at))
                at = attribute.value
            case ast.Attribute():
                steps.append((at, None))
                at = at.value
            case ast.Name():
                at = names.last(at)
            case _:
                at = None
    return steps[::-1]


def _apply(use: Use, method: str, call: ast.Call, names: Names) -> None:
    """What one call says of a reader or a writer."""
    line = call.func.end_lineno or call.lineno
    keywords: Mapping[str | None, ast.expr] = {each.arg: each.value for each in call.keywords}
    given = [*call.args, *(keywords[name] for name in _PARAMETERS.get(method, ()) if name in keywords)]
    first = given[0] if given else None
    match method:
        case "format":
            use.format, use.lines["format"] = _word(first, names), line
        case "option" if len(given) == 2 and (name := names.text(first)) is not None:
            _note_option(use, name, names.text(given[1]), line)
        case "options":
            _note_options(use, keywords, line, names)
        case "mode":
            use.has_mode, use.mode, use.lines["mode"] = True, _word(first, names), line
        case "outputMode":
            use.output_mode, use.lines["outputMode"] = _word(first, names), line
        case "trigger":
            use.triggers, use.lines["trigger"] = tuple(name for name in keywords if name), line
        case _ if method in _ENDS:
            use.is_ended = True
            _end(use, first, keywords, line, names)


def _word(node: ast.expr | None, names: Names) -> str | None:
    text = names.text(node)
    return None if text is None else text.lower()


def _end(use: Use, first: ast.expr | None, keywords: Mapping[str | None, ast.expr], line: int, names: Names) -> None:
    """``load``, ``save`` and ``start`` take a path, and everything else by name."""
    if first is not None:
        _note_option(use, "path", names.text(first), line)
    if "format" in keywords:
        use.format, use.lines["format"] = _word(keywords["format"], names), line
    if "mode" in keywords:
        use.has_mode, use.mode, use.lines["mode"] = True, _word(keywords["mode"], names), line
    if "outputMode" in keywords:
        use.output_mode, use.lines["outputMode"] = _word(keywords["outputMode"], names), line
    _note_options(use, {name: value for name, value in keywords.items() if name not in _NO_OPTIONS}, line, names)


def _note_options(use: Use, keywords: Mapping[str | None, ast.expr], line: int, names: Names) -> None:
    for name, value in keywords.items():
        if name is None:
            for key, text, line_of_key in names.items(value):
                _note_option(use, key, text, line_of_key)
        else:
            _note_option(use, name, names.text(value), line)


def _note_option(use: Use, name: str, value: str | None, line: int) -> None:
    use.options[name] = value
    use.lines[name] = line
