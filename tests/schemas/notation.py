# SPDX-License-Identifier: Apache-2.0
"""A short notation of Avro schemas, for tables of tests: ``{a:int, b:?string=null}`` is a record R of two fields.

``?T`` is a union of null and T, ``[A | B]`` one of A and B, ``enum<A,B ; default A>``, ``fixed(4)``, ``array<T>``,
``map<T>``, ``X{...}`` a record of that name; ``(alias n)`` and ``(order descending)`` follow a name or a field, a
logical type follows its type. A field's default follows ``=`` as JSON. A text that is no notation is taken as it is.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAME: Final = re.compile(r"[^\W\d][\w$.-]*|\$[\w$.-]*")
_LOGICAL: Final = re.compile(r" (?:(decimal)\((\d+),(\d+)\)|([a-z]+(?:-[a-z]+)*))")
_ALIAS: Final = re.compile(r" ?\(alias ([\w.]+)\)")
_ORDER: Final = re.compile(r" ?\(order (\w+)\)")


def definition(text: str) -> str:
    """The JSON text of a schema in this notation."""
    if text.startswith('{"'):
        return text
    made = json.dumps(_Reader(text).schema(), ensure_ascii=False)
    return made.replace("Infinity", "1e999")  # which Python reads as that, and does not write


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def schema(self) -> Any:
        if self._skip("(doc)"):
            return {**self.schema(), "doc": "said"}
        if self._skip("?"):
            return ["null", self.schema()]
        if self._skip("["):
            return self._branches()
        if self._next("{"):
            return self._record("R", [])
        name = self._name()
        if name in ("array", "map") and self._skip("<"):
            inner = self.schema()
            self._expect(">")
            return {"type": name, {"array": "items", "map": "values"}[name]: inner}
        if name in ("enum", "fixed"):
            return self._symbols_or_size(name)
        if name in _PRIMITIVES:
            return self._logical(name)
        aliases = self._aliases()
        return self._record(name, aliases) if self._next("{") else name

    def _branches(self) -> list[Any]:
        branches = [self.schema()]
        while self._skip(" | "):
            branches.append(self.schema())
        self._expect("]")
        return branches

    def _record(self, name: str, aliases: list[str]) -> dict[str, Any]:
        self._expect("{")
        fields = []
        while not self._skip("}"):
            fields.append(self._field())
            self._skip(", ")
        return {"type": "record", "name": name, **({"aliases": aliases} if aliases else {}), "fields": fields}

    def _field(self) -> dict[str, Any]:
        name = self._name()
        self._expect(":")
        field: dict[str, Any] = {"name": name, "type": self.schema()}
        if self._skip("="):
            field["default"], used = json.JSONDecoder().raw_decode(self._text[self._at :])
            self._at += used
        if aliases := self._aliases():
            field["aliases"] = aliases
        if found := self._match(_ORDER):
            field["order"] = found[1]
        return field

    def _symbols_or_size(self, kind: str) -> dict[str, Any]:
        name = self._name() if self._skip(" ") else kind[0].upper()
        named: dict[str, Any] = {"type": kind, "name": name}
        if aliases := self._aliases():
            named["aliases"] = aliases
        if kind == "fixed":
            self._expect("(")
            named["size"] = int(self._until(")"))
            sized: dict[str, Any] = self._logical(named)
            return sized
        self._expect("<")
        symbols, _, default = self._until(">").partition(" ; default ")
        return {**named, "symbols": symbols.split(","), **({"default": default} if default else {})}

    def _logical(self, schema: Any) -> Any:
        base = {"type": schema} if isinstance(schema, str) else schema
        if self._skip("+prop"):
            return {**base, "avro.java.string": "String"}
        found = self._match(_LOGICAL)
        if found is None:
            return schema
        if found[1]:
            return {**base, "logicalType": found[1], "precision": int(found[2]), "scale": int(found[3])}
        return {**base, "logicalType": found[4]}

    def _aliases(self) -> list[str]:
        found = self._match(_ALIAS)
        return [found[1]] if found else []

    def _name(self) -> str:
        found = self._match(_NAME)
        assert found is not None, f"no name at {self._text[self._at :]!r} of {self._text!r}"
        return found[0]

    def _until(self, end: str) -> str:
        text, _, _ = self._text[self._at :].partition(end)
        self._at += len(text) + 1
        return text

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._at)
        if found:
            self._at = found.end()
        return found

    def _next(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _skip(self, text: str) -> bool:
        if self._next(text):
            self._at += len(text)
            return True
        return False

    def _expect(self, text: str) -> None:
        assert self._skip(text), f"no {text!r} at {self._text[self._at :]!r} of {self._text!r}"
