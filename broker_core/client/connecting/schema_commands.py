# SPDX-License-Identifier: Apache-2.0
"""How schemas stand in commands, as a client writes and reads them. Pure. Source: Pulsar docs, "Binary protocol"."""

from __future__ import annotations

from typing import cast

from broker_core.base.errors import UnsupportedVersionError
from broker_core.schemas.info import SchemaInfo, type_of_wire
from broker_core.wire.proto.pulsar_api_pb2 import Schema


def schema_message(info: SchemaInfo) -> Schema:
    """``info`` as a command has it."""
    schema = Schema(name="", schema_data=info.data)
    schema.type = cast("Schema.Type", info.type.wire_number)
    for key, value in info.properties.items():
        schema.properties.add(key=key, value=value)
    return schema


def read_schema(schema: Schema) -> SchemaInfo:
    """The schema in an answer; UnsupportedVersionError for a type that this client does not know."""
    kind = type_of_wire(schema.type) if schema.HasField("type") else None
    if kind is None:
        raise UnsupportedVersionError("the broker has a schema of a type that this client does not know")
    return SchemaInfo(kind, schema.schema_data, {each.key: each.value for each in schema.properties})
