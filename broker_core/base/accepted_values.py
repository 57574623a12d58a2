# SPDX-License-Identifier: Apache-2.0
"""Values that a declared setting accepts, in the words of error texts and documentation."""

from __future__ import annotations

import msgspec


def accepts(kind: msgspec.inspect.Type) -> str:
    """Values that a field of type ``kind`` accepts, for example "an integer from 1024 to 268435456"."""
    match kind:
        case msgspec.inspect.Metadata(type=inner):
            return accepts(inner)
        case msgspec.inspect.UnionType(types=kinds):
            return " or ".join(accepts(each) for each in kinds)
        case msgspec.inspect.NoneType():
            return "None"
        case msgspec.inspect.LiteralType(values=values):
            return " or ".join(text_of(value) for value in values)
        case msgspec.inspect.VarTupleType(item_type=inner):
            return f"a list, with commas between, of {accepts(inner)}"
        case msgspec.inspect.DictType():
            return "a dict of texts"
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.IntType():
            return "an integer" + _bounds(kind)
        case msgspec.inspect.FloatType():
            return "a number" + _bounds(kind)
        case msgspec.inspect.StrType(min_length=minimum):
            return "a text that is not empty" if minimum else "a text"
    raise TypeError(f"settings of type {kind} have no words yet: add them here")


def text_of(value: object) -> str:
    """A value as it is written in a TOML file."""
    return msgspec.json.encode(value).decode()


def _bounds(kind: msgspec.inspect.IntType | msgspec.inspect.FloatType) -> str:
    if kind.gt is not None:
        return f" above {kind.gt:g}"
    if kind.ge is not None and kind.le is not None:
        return f" from {kind.ge} to {kind.le}"
    if kind.ge is not None:
        return f" of at least {kind.ge}"
    return f" of at most {kind.le}" if kind.le is not None else ""
