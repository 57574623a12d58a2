# SPDX-License-Identifier: Apache-2.0
"""Whether the default of a field is a value of its type, which matters only where a reader needs it.

As lax as Java's library: the default of an array or a map need not be one, it is empty then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from broker_core.schemas.avro.types import Array, AvroType, Enum, Field, Map, NoDefault, Record, Union


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_CHECKS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "int": _is_number,
    "long": _is_number,
    "float": _is_number,
    "double": _is_number,
    "bytes": _is_text,
    "string": _is_text,
    "fixed": _is_text,
}


def fits(schema: AvroType, value: Any, steps_max: int) -> bool:
    """Whether ``value``, as JSON has it, may stand for data of ``schema``. Of a union any branch will do. A value that
    is not found to fit in ``steps_max`` steps does not."""
    return _Fitting(steps_max).fits(schema, value)


class _Fitting:
    """A look at one default. Pairs of a type and a value are looked at once: a union tries each of its branches."""

    def __init__(self, steps_max: int) -> None:
        self._known: dict[tuple[int, int], bool] = {}
        self._steps_max = steps_max

    def fits(self, schema: AvroType, value: Any) -> bool:
        pair = (id(schema), id(value))
        if pair not in self._known:
            self._steps_max -= 1
            self._known[pair] = False  # until it is known: a value that is a part of itself is none
            self._known[pair] = self._steps_max > 0 and self._fits(schema, value)
        return self._known[pair]

    def _fits(self, schema: AvroType, value: Any) -> bool:
        match schema:
            case Record():
                return all(self._fits_field(each, value) for each in schema.fields)
            case Enum():
                return value in schema.symbols
            case Array():
                items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
                return all(self.fits(schema.items, each) for each in items)
            case Map():
                return not isinstance(value, dict) or all(self.fits(schema.values, each) for each in value.values())
            case Union():
                return any(self.fits(each, value) for each in schema.branches)
            case _:
                return _CHECKS[schema.kind](value)

    def _fits_field(self, field: Field, value: Any) -> bool:
        given = value[field.name] if isinstance(value, dict) and field.name in value else field.default
        return not isinstance(given, NoDefault) and self.fits(field.type, given)
