# SPDX-License-Identifier: Apache-2.0
"""GET_SCHEMA and GET_OR_CREATE_SCHEMA, and how schemas stand in commands. Producers and consumers bring theirs with
PRODUCER and SUBSCRIBE.

Source: Pulsar docs, "Binary protocol"; semantics 10.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from broker_core.base.errors import IncompatibleSchemaError, ServerError, TopicNotFoundError
from broker_core.base.names import TopicName
from broker_core.broker.schema_registry import schema_id
from broker_core.schemas.info import SchemaInfo, type_of_wire
from broker_core.server.handlers.transactions import requester_of
from broker_core.server.session import Session
from broker_core.wire.commands import error_code
from broker_core.wire.proto.pulsar_api_pb2 import (
    BaseCommand,
    CommandGetOrCreateSchema,
    CommandProducer,
    CommandSubscribe,
    Schema,
)
from broker_core.wire.schema_versions import version_bytes, version_of


def schema_in(command: CommandProducer | CommandSubscribe | CommandGetOrCreateSchema) -> SchemaInfo | None:
    """The schema that a command brings; None if it says no more than that messages are bytes (semantics 10.4).
    IncompatibleSchemaError: it cannot be one of any topic."""
    if not command.HasField("schema"):
        return None
    schema = command.schema
    kind = type_of_wire(schema.type) if schema.HasField("type") else None
    if kind is None:
        raise IncompatibleSchemaError("the type of the schema is none that this broker knows")
    properties = {pair.key: pair.value for pair in schema.properties}
    if len(properties) < len(schema.properties):
        raise IncompatibleSchemaError("duplicate schema property")
    info = SchemaInfo(kind, schema.schema_data, properties)
    return None if info.is_none else info


def _version(data: bytes) -> int:
    """The version in a command. Old clients send 64 bytes, of which the first eight count."""
    if not data:
        raise IncompatibleSchemaError("Empty schema version")
    version = version_of(data)
    if version is None:
        raise IncompatibleSchemaError(f"Malformed schema version: it has {len(data)} bytes, and not 8")
    return version


def handle_get_schema(session: Session, command: BaseCommand, name: TopicName) -> None:
    """The newest schema of a topic, or that of a version, deleted ones too: stored messages may need it."""
    asked = command.getSchema
    schemas = session.node.broker.schemas
    if asked.HasField("schema_version"):
        found = schemas.version(name, _version(asked.schema_version))
    else:
        found = schemas.latest(name)
    if found is None or found.info is None:
        raise TopicNotFoundError(f"Topic not found or no-schema {name}")
    answer = BaseCommand(type=BaseCommand.GET_SCHEMA_RESPONSE)
    answer.getSchemaResponse.request_id = asked.request_id
    answer.getSchemaResponse.schema.CopyFrom(_schema(name, found.info))
    answer.getSchemaResponse.schema_version = version_bytes(found.version)
    session.send(answer)


def _schema(name: TopicName, info: SchemaInfo) -> Schema:
    schema = Schema(name=schema_id(name), schema_data=info.data)
    schema.type = cast("Schema.Type", info.type.wire_number)
    for key, value in info.properties.items():
        schema.properties.add(key=key, value=value)
    return schema


def schema_refusal(request_id: int, error: ServerError) -> BaseCommand:
    """The answer to a GET_SCHEMA that is refused."""
    answer = BaseCommand(type=BaseCommand.GET_SCHEMA_RESPONSE)
    answer.getSchemaResponse.request_id = request_id
    answer.getSchemaResponse.error_code = error_code(error)
    answer.getSchemaResponse.error_message = str(error)
    return answer


def handle_get_or_create_schema(session: Session, command: BaseCommand, name: TopicName) -> Iterator[None] | None:
    """The version of a schema, which a topic gets as a producer would give it; no topic is made by that."""
    asked = command.getOrCreateSchema
    broker = session.node.broker
    if not broker.registry.exists(name):
        raise TopicNotFoundError(f"Topic not found {name}")
    info = schema_in(asked)
    if info is None:
        broker.schemas.check_schemaless(name)
        _answer(session, asked.request_id, None)
        return None
    return _get_or_create(session, asked.request_id, name, info)


def _get_or_create(session: Session, request_id: int, name: TopicName, info: SchemaInfo) -> Iterator[None]:
    broker = session.node.broker
    admission = yield from session.outcome(broker.schemas.for_producer(name, info))
    if not broker.registry.exists(name):
        raise TopicNotFoundError(f"Topic not found {name}")
    _answer(session, request_id, broker.schemas.admit(admission, role_of(session)))


def _answer(session: Session, request_id: int, version: int | None) -> None:
    answer = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE)
    answer.getOrCreateSchemaResponse.request_id = request_id
    answer.getOrCreateSchemaResponse.schema_version = version_bytes(version)
    session.send(answer)


def role_of(session: Session) -> str:
    """The role that adds a schema; empty where nobody asks for roles."""
    return requester_of(session).role or ""


def made_schema_refusal(request_id: int, error: ServerError) -> BaseCommand:
    """The answer to a GET_OR_CREATE_SCHEMA that is refused."""
    answer = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE)
    answer.getOrCreateSchemaResponse.request_id = request_id
    answer.getOrCreateSchemaResponse.error_code = error_code(error)
    answer.getOrCreateSchemaResponse.error_message = str(error)
    return answer
