# SPDX-License-Identifier: Apache-2.0
"""``RecordType``: a class of records as a schema sees it, however the class declares its fields."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from broker_core.base.errors import UsageError
from broker_core.client.schemas.dataclass_records import shape_of
from broker_core.client.schemas.records import Record, made_record, plain_record, record_definition, record_enums


class RecordType(NamedTuple):
    """``definition``: as Avro has it. ``plain``: an instance to dicts and lists; ``made``: back. ``enums``: by name."""

    definition: Any
    plain: Callable[[Any], Any]
    made: Callable[[Any], Any]
    enums: Mapping[str, type[enum.Enum]]


def record_type_of(cls: Any) -> RecordType:
    """The record type of a dataclass or a subclass of ``Record``; UsageError for any other class."""
    if isinstance(cls, type) and issubclass(cls, Record):
        parts = (partial(plain_record, cls), partial(made_record, cls), record_enums(cls))
        return RecordType(record_definition(cls), *parts)
    if isinstance(cls, type) and dataclasses.is_dataclass(cls):
        shape, enums = shape_of(cls)
        return RecordType(shape.definition, shape.plain, shape.made, enums)
    raise UsageError(
        f"{getattr(cls, '__name__', cls)!r} is no class of records",
        hint="decorate it with @dataclass, or derive it from Record",
    )


def dicts_of(definition: Any) -> RecordType:
    """The record type whose instances are dicts."""
    return RecordType(definition, _same, _same, {})


def _same(value: Any) -> Any:
    return value
