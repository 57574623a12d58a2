# SPDX-License-Identifier: Apache-2.0
"""A client of schemas by raw frames."""

from __future__ import annotations

from typing import cast

from broker_core.schemas.info import SchemaInfo
from broker_core.testing.raw_client import RawClient
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandSubscribe, Schema

INCOMPATIBLE, NOT_FOUND = 18, 11


def on_wire(info: SchemaInfo) -> Schema:
    """A schema as commands have it."""
    schema = Schema(name="a name that means nothing", schema_data=info.data)
    schema.type = cast("Schema.Type", info.type.wire_number)
    for key, value in info.properties.items():
        schema.properties.add(key=key, value=value)
    return schema


class SchemaClient(RawClient):
    """One connection; its requests have ids of their own, and its producers and consumers too."""

    _number = 100

    def number(self) -> int:
        self._number += 1
        return self._number

    def producer(self, topic: str, schema: Schema | None = None, producer_id: int = 0) -> BaseCommand:
        """The answer to PRODUCER."""
        return self.ask(self.producer_command(topic, schema, producer_id or self.number()))

    def producer_command(self, topic: str, schema: Schema | None, producer_id: int) -> BaseCommand:
        command = BaseCommand(type=BaseCommand.PRODUCER)
        command.producer.topic, command.producer.producer_id = topic, producer_id
        command.producer.request_id = self.number()
        if schema is not None:
            command.producer.schema.CopyFrom(schema)
        return command

    def consumer(self, topic: str, schema: Schema | None = None, subscription: str = "") -> BaseCommand:
        """The answer to SUBSCRIBE; each has a subscription of its own, unless one is named."""
        number = self.number()
        command = BaseCommand(type=BaseCommand.SUBSCRIBE)
        subscribe = command.subscribe
        subscribe.topic, subscribe.subscription = topic, subscription or f"s{number}"
        subscribe.subType, subscribe.initialPosition = CommandSubscribe.Shared, CommandSubscribe.Earliest
        subscribe.consumer_id, subscribe.request_id = number, number
        if schema is not None:
            subscribe.schema.CopyFrom(schema)
        return self.ask(command)

    def get(self, topic: str, version: bytes | None = None) -> BaseCommand:
        """The answer to GET_SCHEMA; ``version`` None: the last one."""
        command = BaseCommand(type=BaseCommand.GET_SCHEMA)
        command.getSchema.topic, command.getSchema.request_id = topic, self.number()
        if version is not None:
            command.getSchema.schema_version = version
        return self.ask(command)

    def get_or_create(self, topic: str, schema: Schema) -> BaseCommand:
        """The answer to GET_OR_CREATE_SCHEMA."""
        command = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA)
        command.getOrCreateSchema.topic, command.getOrCreateSchema.request_id = topic, self.number()
        command.getOrCreateSchema.schema.CopyFrom(schema)
        return self.ask(command)


def version_of(answer: BaseCommand) -> int | None:
    """The version that a producer was told; None for an empty one."""
    assert answer.type == BaseCommand.PRODUCER_SUCCESS, answer
    told = answer.producer_success.schema_version
    return int.from_bytes(told, "big") if told else None


def code_of(answer: BaseCommand) -> int:
    """The code of a refusal; 0 for success."""
    if answer.type == BaseCommand.GET_SCHEMA_RESPONSE:
        response = answer.getSchemaResponse
        return response.error_code if response.HasField("error_code") else 0
    if answer.type == BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE:
        made = answer.getOrCreateSchemaResponse
        return made.error_code if made.HasField("error_code") else 0
    return answer.error.error if answer.type == BaseCommand.ERROR else 0
