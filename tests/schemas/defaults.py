# SPDX-License-Identifier: Apache-2.0
"""Defaults as strict as Java's ``Schema.isValidDefault``, which it asks when it makes a schema anew; it reads laxly."""

from __future__ import annotations

from typing import Any

from broker_core.schemas.avro.defaults import fits
from broker_core.schemas.avro.types import Array, AvroType, Map, NoDefault, Record, Union, named_types


def is_valid(schema: AvroType, value: Any) -> bool:
    """Whether ``value``, as JSON has it, is one of ``schema``; of a union any branch will do."""
    match schema:
        case Record():
            return isinstance(value, dict) and all(
                is_valid(each.type, value.get(each.name, each.default)) for each in schema.fields
            )
        case Array():
            return isinstance(value, list) and all(is_valid(schema.items, each) for each in value)
        case Map():
            return isinstance(value, dict) and all(is_valid(schema.values, each) for each in value.values())
        case Union():
            return any(is_valid(each, value) for each in schema.branches)
    if isinstance(value, NoDefault) or (schema.kind in ("int", "long") and not isinstance(value, int)):
        return False
    return fits(schema, value, 1_000)


def has_valid_defaults(schema: AvroType) -> bool:
    """Whether each default within ``schema`` is one of its type."""
    records = (each for each in named_types(schema) if isinstance(each, Record))
    fields = [field for record in records for field in record.fields]
    return all(isinstance(each.default, NoDefault) or is_valid(each.type, each.default) for each in fields)
