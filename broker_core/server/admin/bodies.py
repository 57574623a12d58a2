# SPDX-License-Identifier: Apache-2.0
"""Reading JSON as leniently as Pulsar's brokers read it, which is what its admin clients count on.

Owns what may stand for what: null for a field of an object that has a default, text for a number or a yes or no and the
other way round, 4.0 for 4. Stricter than Pulsar where it would guess: 4.7 is not 4, 7 is not true, and neither null nor
empty text is 0. Unknown fields and bounds are msgspec's and the types' own. Knows no requests.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

T = TypeVar("T")


class _Written(str):
    """A number with a fraction or an exponent, as it was written."""

    __slots__ = ()


_JSON: Final = msgspec.json.Decoder(float_hook=_Written)

_DIGITS_MAX: Final = 20
"""Digits of the largest whole number of 64 bits; a longer text is not read as one."""

_TRUTHS: Final = {
    **dict.fromkeys((1, "true", "True", "TRUE"), True),
    **dict.fromkeys((0, "false", "False", "FALSE"), False),
}


def decoded(content: bytes, kind: Any) -> Any:
    """``content`` as ``kind``; msgspec.DecodeError if it cannot be read as that."""
    try:
        content.decode()  # msgspec looks at the bytes of text only, and says where in which text the wrong one is
    except UnicodeDecodeError as error:
        wrong = f"byte {error.start} is {content[error.start]:#04x}"
        raise msgspec.DecodeError(f"JSON is written in UTF-8, and this is not: {wrong}") from error
    try:
        return converted(_JSON.decode(content), kind)
    except RecursionError as error:
        raise msgspec.DecodeError("the JSON is nested too deeply") from error


def converted(value: Any, kind: Any) -> Any:
    """``value``, which JSON was decoded to before, as ``kind``; errors as those of ``decoded``."""
    return msgspec.convert(_read(value, _known(kind)), kind)


@cache
def _known(kind: Any) -> inspect.Type:
    return inspect.type_info(kind)


def _read(value: Any, kind: inspect.Type) -> Any:
    """``value``, in which what is only written in another way is put as ``kind`` has it; msgspec refuses the rest."""
    match kind:
        case inspect.StructType() if isinstance(value, dict):
            return _object(value, kind)
        case inspect.DictType() if isinstance(value, dict):
            return {name: _read(each, kind.value_type) for name, each in value.items()}
        case inspect.ListType() if isinstance(value, list):
            return [_read(each, kind.item_type) for each in value]
        case inspect.UnionType():
            return _one_of(value, kind)
        case inspect.StrType() if isinstance(value, bool):
            return str(value).lower()
        case inspect.StrType() if isinstance(value, int | _Written):
            return str(value)
        case inspect.IntType():
            return _whole(value)
        case inspect.FloatType() if isinstance(value, _Written):
            return float(value)
        case inspect.BoolType():
            return _TRUTHS.get(value, value) if type(value) in (int, str) else value
    return value


def _object(value: dict[str, Any], kind: inspect.StructType) -> dict[str, Any]:
    """A client that leaves a field out may send null: the field's default holds."""
    fields = {field.encode_name: field.type for field in kind.fields}
    given = {name: each for name, each in value.items() if each is not None or name not in fields}
    return {name: _read(each, fields[name]) if name in fields else each for name, each in given.items()}


def _one_of(value: Any, kind: inspect.UnionType) -> Any:
    """Read as the first of the types that it can be read as; a text where text is one of them stays one."""
    if any(isinstance(each, inspect.StrType) for each in kind.types) and type(value) is str:
        return value
    for each in kind.types:
        if (read := _read(value, each)) is not value:
            return read
    return value


def _whole(value: Any) -> Any:
    if not isinstance(value, str) or len(value) > _DIGITS_MAX:
        return value
    text = value.strip()
    if text.isascii() and text.removeprefix("-").isdigit():
        return int(text)
    if (
        isinstance(value, _Written)
        and (number := Decimal(value)) == number.to_integral_value()
        and number.adjusted() < 19
    ):
        return int(number)
    return value
