# SPDX-License-Identifier: Apache-2.0
"""Schemas as the admin REST and the files of its tools have them: a type, a definition as text, and properties.

The definition of a KEY_VALUE schema is an object with two definitions there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from broker_core.schemas.definition import InvalidSchemaError
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.schemas.key_value import KeyValueError, from_json, to_json


def definition_text(info: SchemaInfo) -> str:
    """The definition as text."""
    data = to_json(info.data) if info.type is SchemaType.KEY_VALUE else info.data
    return data.decode(errors="replace")


def to_rest(info: SchemaInfo) -> dict[str, Any]:
    """The object that is sent, and that tools keep in files."""
    return {"type": info.type.name, "schema": definition_text(info), "properties": dict(info.properties)}


def from_rest(kind: object, definition: object, properties: object = None) -> SchemaInfo:
    """The schema of what an object has under these names; InvalidSchemaError. A definition may also be JSON itself."""
    if kind not in SchemaType.__members__:
        raise InvalidSchemaError(f"there is no schema type {str(kind)[:80]!r}")
    properties = {} if properties is None else properties
    if not isinstance(properties, Mapping) or not all(isinstance(each, str) for each in properties.values()):
        raise InvalidSchemaError("its properties are no object of texts")
    data = (definition if isinstance(definition, str) else json.dumps(definition)).encode()
    try:
        known = SchemaType[str(kind)]
        return SchemaInfo(known, from_json(data) if known is SchemaType.KEY_VALUE else data, dict(properties))
    except KeyValueError as error:
        raise InvalidSchemaError(f"Invalid schema definition data for KEY_VALUE schema: {error.message}") from error
