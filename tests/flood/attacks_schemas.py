# SPDX-License-Identifier: Apache-2.0
"""Schemas that are as large as allowed and take long to parse or to compare, and as many as a broker keeps."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from broker_core.base.errors import PulsarishError
from broker_core.schemas.key_value import joined
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, Schema
from tests.flood.common import Attack, command_of, connect, frames_of, listed_in, subscribing
from tests.flood.memory import MIB
from tests.flood.target import Target

SCHEMA_ATTACKS: Final[dict[str, Attack]] = {}
attack = listed_in(SCHEMA_ATTACKS)

_MOST_BYTES: Final = MIB - 100
_NESTED: Final = 180


def _filled(start: str, part: Callable[[int], str], end: str) -> bytes:
    """A definition of as many parts as there is room for."""
    parts, size, number = [], len(start) + len(end), 0
    while size + len(text := part(number)) < _MOST_BYTES:
        parts.append(text)
        size += len(text) + 1
        number += 1
    return f"{start}{','.join(parts)}{end}".encode()


def _record(salt: int, field: Callable[[int], str]) -> bytes:
    return _filled(f'{{"type":"record","name":"R{salt}","fields":[', field, "]}")


def _fields(salt: int) -> Schema:
    return _avro(_record(salt, lambda n: f'{{"name":"f{n}","type":"int"}}'))


def _records(salt: int) -> Schema:
    return _avro(
        _record(
            salt, lambda n: f'{{"name":"f{n}","type":{{"type":"record","name":"T{n}","fields":[]}},"aliases":["a{n}"]}}'
        )
    )


def _deep(salt: int) -> Schema:
    nested = '{"type":"array","items":' * (_NESTED // 2) + '"int"' + "}" * (_NESTED // 2)
    return _avro(_record(salt, lambda n: f'{{"name":"f{n}","type":{nested}}}'))


def _unions(salt: int) -> Schema:
    branches = ",".join(f'{{"type":"fixed","name":"F{n}","size":{n}}}' for n in range(300))
    first = f'{{"name":"u","type":[{branches}]}}'
    again = ",".join(f'"F{n}"' for n in range(300))
    return _avro(_record(salt, lambda n: f'{{"name":"f{n}","type":[{again}]}}' if n else first))


def _symbols(salt: int) -> Schema:
    return _avro(_filled(f'{{"type":"enum","name":"E{salt}","symbols":[', lambda n: f'"s{n}"', "]}"))


def _escapes(salt: int) -> Schema:
    text = "\\u0041" * (_MOST_BYTES // 6 - 100)
    return _avro(f'{{"type":"record","name":"R{salt}","doc":"{text}","fields":[]}}'.encode())


def _brackets(salt: int) -> Schema:
    return _avro(b"[" * (_MOST_BYTES - salt))


def _pairs(salt: int) -> Schema:
    half = _record(salt, lambda n: f'{{"name":"f{n}","type":"int"}}')[: _MOST_BYTES // 2]
    half = half[: half.rindex(b",{")] + b"]}"
    schema = Schema(name="s", schema_data=joined(half, half), type=Schema.KeyValueSchema)
    for name in ("key.schema.type", "value.schema.type"):
        schema.properties.add(key=name, value="AVRO")
    return schema


def _files(salt: int) -> Schema:
    files = [FileDescriptorProto(name=f"f{n}.proto", package=f"p{salt}", syntax="proto3") for n in range(990)]
    for number, each in enumerate(files):
        each.dependency.extend(f"f{other}.proto" for other in range(number + 1, min(number + 20, 990)))
        each.message_type.add(name=f"M{number}")
    text = base64.b64encode(FileDescriptorSet(file=files).SerializeToString()).decode()
    parts = {
        "fileDescriptorSet": text, "rootMessageTypeName": f"p{salt}.M0", "rootFileDescriptorName": "f0.proto",
    }  # fmt: skip
    return Schema(name="s", schema_data=json.dumps(parts).encode()[:_MOST_BYTES], type=Schema.ProtobufNative)


def _avro(data: bytes) -> Schema:
    return Schema(name="s", schema_data=data, type=Schema.Avro)


_SHAPES: Final = (_fields, _records, _deep, _unions, _symbols, _escapes, _brackets, _pairs, _files)


def _bring(schema: Schema, topic: str, number: int = 1) -> BaseCommand:
    command = command_of(BaseCommand.GET_OR_CREATE_SCHEMA, request_id=number, topic=topic)
    command.getOrCreateSchema.schema.CopyFrom(schema)
    return command


def _have_topic(client: RawClient, topic: str) -> None:
    must_succeed(client.open_producer(topic, hash(topic) % 1000))


@attack
def schemas_of_a_mib_of_every_shape(target: Target, size: float) -> None:
    """Each is stored if it is good, and compared with itself and with another one."""
    shapes = _SHAPES[: max(2, int(len(_SHAPES) * size))]
    with connect(target) as client:
        for number, shape in enumerate(shapes):
            topic = f"shape-{number}"
            _have_topic(client, topic)
            for salt in (0, 1, 0):
                client.ask(_bring(shape(salt), topic))


@attack
def schemas_of_a_mib_of_100_clients(target: Target, size: float) -> None:
    """All at once; too many are asked to come again."""
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(target)) for _ in range(max(30, int(100 * size)))]
        _have_topic(clients[0], "of-many")
        for number, client in enumerate(clients):
            client.tell(_bring(_SHAPES[number % 2](number), "of-many"))
        for client in clients:
            with contextlib.suppress(OSError, PulsarishError):
                client.next_command()


@attack
def schemas_until_no_more_are_kept(target: Target, size: float) -> None:
    """Large ones of several topics, then small ones of very many, until each is refused."""
    topics = max(2, int(8 * size))
    with connect(target) as client:
        for number in range(topics):
            _have_topic(client, f"full-{number}")
            for salt in range(9):
                text = f"{number}/{salt}".encode() + b"x" * (_MOST_BYTES - 20)
                client.ask(_bring(Schema(name="s", schema_data=text, type=Schema.External), f"full-{number}"))
        for number in range(int(2_000 * size)):
            topic = f"small-{number % topics}"
            if number < topics:
                _have_topic(client, topic)
            text = b"%d" % number + b"x" * 2_000
            client.ask(_bring(Schema(name="s", schema_data=text, type=Schema.External), topic))


@attack
def schemas_that_nobody_reads(target: Target, size: float) -> None:
    """One of a MiB, asked for again and again by clients that do not read."""
    with ExitStack() as stack:
        owner = stack.enter_context(connect(target))
        _have_topic(owner, "asked")
        owner.ask(_bring(Schema(name="s", schema_data=b"x" * _MOST_BYTES, type=Schema.External), "asked"))
        asking = frames_of(
            command_of(BaseCommand.GET_SCHEMA, request_id=number, topic="asked") for number in range(1_000)
        )
        clients = [stack.enter_context(connect(target)) for _ in range(max(3, int(40 * size)))]
        for client in clients:
            client.socket.settimeout(2.0)
            with contextlib.suppress(OSError):
                client.socket.sendall(asking)
        for client in clients:
            with contextlib.suppress(OSError, PulsarishError):
                client.next_command()


@attack
def consumers_and_producers_with_schemas(target: Target, size: float) -> None:
    """Each brings another one, none fits; the topic has a hundred versions."""
    with connect(target) as client:
        _have_topic(client, "busy")
        for number in range(100):
            fields = f'{{"name":"a","type":"int"}},{{"name":"b{number}","type":"int","default":0}}'
            client.ask(_bring(_avro(f'{{"type":"record","name":"R","fields":[{fields}]}}'.encode()), "busy"))
        for number in range(int(3_000 * size)):
            schema = _avro(f'{{"type":"record","name":"R","fields":[{{"name":"c{number}","type":"int"}}]}}'.encode())
            command = subscribing("busy", number)
            command.subscribe.schema.CopyFrom(schema)
            client.ask(command)
            command = command_of(BaseCommand.PRODUCER, topic="busy", producer_id=number, request_id=number)
            command.producer.schema.CopyFrom(schema)
            client.ask(command)
