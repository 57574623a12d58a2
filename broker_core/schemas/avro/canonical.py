# SPDX-License-Identifier: Apache-2.0
"""The canonical text of an Avro schema: the same for two schemas exactly where ``equality`` finds them the same."""

from __future__ import annotations

import json
from typing import Any

from broker_core.schemas.avro.types import Array, AvroType, Enum, Field, Fixed, Map, NoDefault, Record, Union


def canonical(schema: AvroType) -> str:
    """JSON without documentation, aliases and defaults of enums; a record that comes again is a number."""
    return json.dumps(_form(schema, {}), sort_keys=True, separators=(",", ":"))


def _form(schema: AvroType, numbers: dict[int, int]) -> Any:
    match schema:
        case Record():
            if id(schema) in numbers:
                return numbers[id(schema)]
            numbers[id(schema)] = len(numbers)
            fields = [_field(each, numbers) for each in schema.fields]
            return [schema.kind, schema.name.full, fields, schema.properties]
        case Enum():
            return [schema.kind, schema.name.full, schema.symbols, schema.properties]
        case Fixed():
            return [schema.kind, schema.name.full, schema.size, schema.properties]
        case Array():
            return [schema.kind, _form(schema.items, numbers), schema.properties]
        case Map():
            return [schema.kind, _form(schema.values, numbers), schema.properties]
        case Union():
            return [schema.kind, [_form(each, numbers) for each in schema.branches]]
        case _:
            return [schema.kind, schema.properties]


def _field(field: Field, numbers: dict[int, int]) -> list[Any]:
    default = [] if isinstance(field.default, NoDefault) else [field.default]
    return [field.name, _form(field.type, numbers), default, field.order, field.properties]
