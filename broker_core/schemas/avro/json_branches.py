# SPDX-License-Identifier: Apache-2.0
"""The branch of a union that a JSON value means, which JSON does not say."""

from __future__ import annotations

from typing import Any, Final

from broker_core.schemas.avro.types import AvroType, Enum, Primitive, Record

_NUMBERS: Final = frozenset(("int", "long", "float", "double"))


def shows_as_it_is(branch: AvroType, value: Any) -> bool:
    """Whether ``branch`` shows ``value`` as it is, if it takes it at all.

    Readers are lax: a record leaves out what it has no field for, an enum has its default for any other value, and text
    may be a number. A branch that need not be lax comes before those.
    """
    match branch:
        case Enum():
            return value in branch.symbols
        case Record():
            return isinstance(value, dict) and value.keys() <= branch.by_name.keys()
        case Primitive():
            return branch.kind not in _NUMBERS or not isinstance(value, str)
    return True
