# SPDX-License-Identifier: Apache-2.0
"""Random Avro schemas and their evolutions, as JSON. Some are not valid: two parsers should refuse the same ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Final

from hypothesis import strategies as st

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_LOGICAL: Final = (
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
    {"type": "string", "logicalType": "uuid"},
    {"type": "string", "avro.java.string": "String"},
)
_SHORT: Final = ("R", "X", "Y", "p.X", "q.X", "p.Y")
_FIELDS: Final = ("a", "b", "c", "d", "e", "é")
_SYMBOLS: Final = ("A", "B", "C", "D")
_DEFAULTS: Final[tuple[Any, ...]] = (None, 0, 1, 1.5, True, "", "A", "xyz", [], [1], {}, {"a": 1}, {"a": "A"})
_DEFAULT_OF: Final = {"int": 1, "long": 2, "float": 0.5, "double": 1.0, "string": "s", "bytes": "b", "boolean": True}

_DEPTH_MAX: Final = 3


class _Names:
    """Names that a definition has given so far: no second type may have one, and any may be referred to."""

    def __init__(self) -> None:
        self.given: list[str] = []


@st.composite
def definitions(draw: st.DrawFn) -> Any:
    """A record, or now and then another type."""
    names = _Names()
    return _record(draw, names, 0) if draw(st.integers(0, 9)) else _type(draw, names, 0)


def _type(draw: st.DrawFn, names: _Names, depth: int) -> Any:
    kind = draw(st.integers(0, 11 if depth < _DEPTH_MAX else 5))
    if kind <= 3:
        return draw(st.sampled_from(PRIMITIVES))
    if kind == 4:
        return dict(draw(st.sampled_from(_LOGICAL)))
    if kind == 5:
        return draw(st.sampled_from(names.given)) if names.given else "int"
    if kind == 6:
        return {"type": "array", "items": _type(draw, names, depth + 1)}
    if kind == 7:
        return {"type": "map", "values": _type(draw, names, depth + 1)}
    if kind == 8:
        return _enum_or_fixed(draw, names)
    if kind == 9:
        return _record(draw, names, depth + 1)
    return _union(draw, names, depth)


def _union(draw: st.DrawFn, names: _Names, depth: int) -> list[Any]:
    if draw(st.booleans()):
        branch = _type(draw, names, depth + 1)
        return ["null", "int" if isinstance(branch, list) or branch == "null" else branch]
    branches = [_type(draw, names, depth + 1) for _ in range(draw(st.integers(1, 4)))]
    return [each for each in branches if not isinstance(each, list)] or ["null", "string"]


def _named(draw: st.DrawFn, names: _Names, kind: str) -> dict[str, Any]:
    name = draw(st.sampled_from(_SHORT))
    while name in names.given and draw(st.integers(0, 9)):
        name += "1"
    names.given.append(name)
    named: dict[str, Any] = {"type": kind, "name": name}
    if not draw(st.integers(0, 4)):
        named["aliases"] = draw(st.lists(st.sampled_from(_SHORT), min_size=1, max_size=2, unique=True))
    return named


def _enum_or_fixed(draw: st.DrawFn, names: _Names) -> dict[str, Any]:
    if draw(st.booleans()):
        return {**_named(draw, names, "fixed"), "size": draw(st.sampled_from((0, 4, 8)))}
    named = _named(draw, names, "enum")
    named["symbols"] = draw(st.lists(st.sampled_from(_SYMBOLS), min_size=1, unique=True))
    if draw(st.booleans()):
        named["default"] = named["symbols"][0]
    return named


def _record(draw: st.DrawFn, names: _Names, depth: int) -> dict[str, Any]:
    record = _named(draw, names, "record")
    chosen = draw(st.lists(st.sampled_from(_FIELDS), max_size=4, unique=True))
    record["fields"] = [_field(draw, names, depth, each) for each in chosen]
    return record


def _field(draw: st.DrawFn, names: _Names, depth: int, name: str) -> dict[str, Any]:
    field: dict[str, Any] = {"name": name, "type": _type(draw, names, depth + 1)}
    _give_default(draw, field)
    if not draw(st.integers(0, 5)):
        field["aliases"] = [draw(st.sampled_from(_FIELDS))]
    if not draw(st.integers(0, 9)):
        field["order"] = draw(st.sampled_from(("ascending", "descending", "ignore")))
    return field


def _give_default(draw: st.DrawFn, field: dict[str, Any]) -> None:
    """A default that fits, or any, or none."""
    kind = draw(st.integers(0, 5))
    if kind < 2:
        return
    if kind == 2:
        field["default"] = draw(st.sampled_from(_DEFAULTS))
        return
    schema = field["type"]
    first = schema[0] if isinstance(schema, list) and schema else schema
    if first == "null":
        field["default"] = None
    elif isinstance(first, str) and first in _DEFAULT_OF:
        field["default"] = _DEFAULT_OF[first]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """A definition, and a later one of the same topic, as an evolution would make it; sometimes one that is unlike."""
    old = draw(definitions())
    if not draw(st.integers(0, 9)):
        return old, draw(definitions())
    new = copy.deepcopy(old)
    for _ in range(draw(st.integers(1, 3))):
        new = evolved(draw, new)
    return (old, new) if draw(st.booleans()) else (new, old)


def evolved(draw: st.DrawFn, definition: Any) -> Any:
    """``definition`` after one step of an evolution, which changes it in place."""
    holders = list(_places(definition))
    if not holders:
        return draw(st.sampled_from((definition, ["null", definition] if definition != "null" else definition, "long")))
    holder, key = draw(st.sampled_from(holders))
    steps: list[Callable[[], None]] = [lambda: _retype(draw, holder, key)]
    if isinstance(holder, dict):
        steps += [lambda: _rename(draw, holder), lambda: _redefault(draw, holder)] if "name" in holder else []
    value = holder[key]
    if isinstance(value, dict):
        steps += [lambda: _rename(draw, value)] if "name" in value else []
        steps += [lambda: _change_parts(draw, value)] * 2
    draw(st.sampled_from(steps))()
    return definition


def _places(definition: Any) -> Iterator[tuple[Any, Any]]:
    """Where types stand: the list or object that holds each, and its key there."""
    if isinstance(definition, list):
        for number in range(len(definition)):
            yield definition, number
            yield from _places(definition[number])
    elif isinstance(definition, dict):
        for key in ("items", "values"):
            if key in definition:
                yield definition, key
                yield from _places(definition[key])
        for each in definition.get("fields", ()):
            yield each, "type"
            yield from _places(each["type"])


def _retype(draw: st.DrawFn, holder: Any, key: Any) -> None:
    old = holder[key]
    wider = {"int": "long", "long": "double", "float": "double", "string": "bytes", "bytes": "string"}
    choices: list[Any] = [draw(st.sampled_from(PRIMITIVES))]
    if isinstance(old, str) and old in wider:
        choices += [wider[old]] * 2
    if isinstance(old, list):
        choices += [old[:-1] or old, [*old[1:], old[0]], [*old, "long"], old[-1]]
    else:
        choices += [["null", old], [old, "null"], {"type": "array", "items": old}]
    holder[key] = draw(st.sampled_from(choices))


def _rename(draw: st.DrawFn, named: dict[str, Any]) -> None:
    is_field = "type" in named and named["type"] not in ("record", "enum", "fixed")
    old = named["name"]
    named["name"] = draw(st.sampled_from(_FIELDS if is_field else _SHORT))
    if draw(st.booleans()):
        named["aliases"] = [old]


def _redefault(draw: st.DrawFn, field: dict[str, Any]) -> None:
    if "default" in field and draw(st.booleans()):
        del field["default"]
    elif "symbols" not in field:
        field["default"] = draw(st.sampled_from(_DEFAULTS))


def _change_parts(draw: st.DrawFn, definition: dict[str, Any]) -> None:
    if "fields" in definition:
        fields = definition["fields"]
        if fields and draw(st.booleans()):
            fields.pop(draw(st.integers(0, len(fields) - 1)))
        free = sorted(set(_FIELDS) - {each["name"] for each in fields})
        if draw(st.booleans()) and free:
            fields.insert(0, _field(draw, _Names(), _DEPTH_MAX, draw(st.sampled_from(free))))
        if draw(st.booleans()):
            fields.reverse()
    elif "symbols" in definition:
        definition["symbols"] = draw(st.lists(st.sampled_from(_SYMBOLS), min_size=1, unique=True))
    elif "size" in definition:
        definition["size"] = draw(st.sampled_from((0, 4, 8, 16)))
