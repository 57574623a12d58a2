# SPDX-License-Identifier: Apache-2.0
"""Clients that bring, read and delete schemas of a few topics, all at once, and note what came of each operation.

They come by PRODUCER, SUBSCRIBE, GET_OR_CREATE_SCHEMA and the admin REST, and bring few schemas in many forms of the
text: so equal ones come from several of them in the same moment. A client lives as long as its broker.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from broker_core.base.errors import ConnectionLostError
from broker_core.client.admin import AdminTransport
from broker_core.client.credentials.tls import TlsSettings
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.schemas.key_value import from_json, joined, to_json
from broker_core.testing.raw_client import RawClient
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandSubscribe
from tests.kill.schema_history import Event, Kind
from tests.server.schema_client import on_wire

_NAMESPACE: Final = "public/default"
_VERSION: Final = struct.Struct(">q")
_TIMEOUT_S: Final = 60.0
_NOT_FOUND: Final = 11
_FIELDS: Final = 14
_COMMENTS_BYTES: Final = (0, 0, 0, 100, 1000, 4000)
"""Comments, which do not count in a schema, make the catalogue grow, so that kills hit its rewriting."""
_AT_ONCE: Final = 4
"""Schemas of a topic that are brought in the same while."""
_PIPELINED: Final = 64

NONE_DELETED: Final = "plain"
SOME_DELETED: Final = "deleted"
ALL_DELETED: Final = "forgotten"


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic of the rig. ``fate``: whether its schemas are deleted, each for itself or all at once as well."""

    name: str
    type: SchemaType
    fate: str
    partitions: int = 0

    def partition(self, chance: random.Random) -> str:
        """The full name of one of its partitions, or of itself."""
        name = f"persistent://{_NAMESPACE}/{self.name}"
        return f"{name}-partition-{chance.randrange(self.partitions)}" if self.partitions else name


TOPICS: Final = (
    Topic("plain-avro", SchemaType.AVRO, NONE_DELETED),
    Topic("plain-parted", SchemaType.JSON, NONE_DELETED, partitions=3),
    Topic("deleted-avro", SchemaType.AVRO, SOME_DELETED),
    Topic("deleted-pairs", SchemaType.KEY_VALUE, SOME_DELETED),
    Topic("forgotten-json", SchemaType.JSON, ALL_DELETED),
    Topic("forgotten-avro", SchemaType.AVRO, ALL_DELETED),
)


def schema(topic: Topic, number: int, chance: random.Random) -> SchemaInfo:
    """The schema of a number, in one form of its text. Any two of a topic are compatible, and none are equal."""
    fields = [
        {"name": f"f{bit}", "type": "int", "default": 0, "doc": "x" * chance.choice((0, 3))}
        for bit in range(_FIELDS)
        if number >> bit & 1
    ]
    comment = "c" * chance.choice(_COMMENTS_BYTES) + str(chance.randrange(3))
    record = {"type": "record", "name": "R", "doc": comment, "fields": fields}
    text = json.dumps(record, indent=chance.choice((None, 1))).encode()
    if topic.type is not SchemaType.KEY_VALUE:
        return SchemaInfo(topic.type, text)
    properties = {"key.schema.type": "STRING", "value.schema.type": "AVRO"}
    return SchemaInfo(topic.type, joined(b"", text), properties)


@dataclass(slots=True)
class Notes:
    """Calls of all clients. ``numbers``: of each text that was brought, its schema."""

    events: list[Event] = field(default_factory=list)
    refused: int = 0
    numbers: dict[bytes, int] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    """Of each topic the highest number of a schema that was brought so far."""

    def brings(self, topic: Topic, chance: random.Random) -> tuple[SchemaInfo, Event]:
        """A schema to be brought, most often a rather new one."""
        newest = self.newest.setdefault(topic.name, 0)
        if chance.random() < 0.1:
            number = chance.randrange(newest + 1)
        else:
            number = max(newest + chance.randrange(2 - _AT_ONCE, 2), 0)
        self.newest[topic.name] = max(newest, number)
        info = schema(topic, number % (1 << _FIELDS), chance)
        event = self.begin(Kind.ADD, topic, schema=number % (1 << _FIELDS))
        self.is_brought_as(event, info.data)
        return info, event

    def is_brought_as(self, event: Event, data: bytes) -> None:
        """The bytes of a schema that is brought. Definitions of two parts have another form in the admin REST."""
        event.data = hashlib.sha256(data).digest()
        self.numbers[event.data] = event.schema or 0

    def begin(self, kind: Kind, topic: Topic, **known: Any) -> Event:
        """Note an operation, of which nobody knows yet what comes of it."""
        event = Event(kind, topic.name, time.monotonic(), float("inf"), **known)
        self.events.append(event)
        return event

    def read(self, event: Event, version: int | None, data: bytes) -> None:
        """A version was read; ``data`` is the schema's."""
        event.version, event.data = version, hashlib.sha256(data).digest()
        event.schema = self.numbers.get(event.data, -1)
        event.ended = time.monotonic()

    def drop(self, event: Event) -> None:
        """An operation had no outcome, and none comes: it was refused, or never left."""
        event.ended = time.monotonic()
        self.refused += 1

    def broker_is_dead(self) -> None:
        """Calls under way have come to their end; a question without an answer says nothing."""
        now = time.monotonic()
        asked = (Kind.READ, Kind.LATEST)
        self.events = [each for each in self.events if each.kind not in asked or each.ended <= now]
        for each in self.events:
            each.ended = min(each.ended, now)


class WireClient(RawClient):
    """One connection. Producers that the broker closes are no answer."""

    def __init__(self, service_url: str) -> None:
        super().__init__(service_url, timeout_s=_TIMEOUT_S)
        self._number = 0

    def number(self) -> int:
        self._number += 1
        return self._number

    def ask(self, command: BaseCommand) -> BaseCommand:
        self.tell(command)
        return self.answer()

    def expect(self, command: BaseCommand, kind: BaseCommand.Type) -> BaseCommand:
        """The answer to ``command``, which must be of a kind."""
        answer = self.ask(command)
        if answer.type != kind:
            raise RuntimeError(f"{answer} came for {command}")
        return answer

    def answer(self) -> BaseCommand:
        """The next command that answers a request."""
        while True:
            answer = self.next_command()
            if answer.type not in (BaseCommand.CLOSE_PRODUCER, BaseCommand.CLOSE_CONSUMER):
                return answer


def get_command(topic: str, version: int | None, request_id: int) -> BaseCommand:
    """GET_SCHEMA; ``version`` None: the last one."""
    command = BaseCommand(type=BaseCommand.GET_SCHEMA)
    command.getSchema.topic, command.getSchema.request_id = topic, request_id
    if version is not None:
        command.getSchema.schema_version = _VERSION.pack(version)
    return command


class Client:
    """One client of one broker, in a thread of its own."""

    def __init__(self, notes: Notes, chance: random.Random, over: threading.Event) -> None:
        self.notes = notes
        self.chance = chance
        self._over = over

    def run(self, addresses: tuple[str, str]) -> None:
        """Work until the broker is gone."""
        with suppress(OSError, ConnectionLostError):
            self.work(addresses)

    def work(self, addresses: tuple[str, str]) -> None:
        raise NotImplementedError

    def topic(self) -> Topic:
        return self.chance.choice(TOPICS)


class ProtocolClient(Client):
    """Brings schemas with producers, consumers and GET_OR_CREATE_SCHEMA."""

    def work(self, addresses: tuple[str, str]) -> None:
        with WireClient(addresses[0]) as wire:
            while not self._over.is_set():
                step = self.chance.choice(
                    (self._produce, self._produce, self._get_or_create, self._consume, self._read)
                )
                step(wire, self.topic())

    def _produce(self, wire: WireClient, topic: Topic) -> None:
        info, event = self.notes.brings(topic, self.chance)
        command = BaseCommand(type=BaseCommand.PRODUCER)
        command.producer.topic, command.producer.producer_id = topic.partition(self.chance), wire.number()
        command.producer.request_id = wire.number()
        command.producer.schema.CopyFrom(on_wire(info))
        answer = wire.ask(command)
        if answer.type == BaseCommand.ERROR:
            return self.notes.drop(event)
        _added(event, answer.producer_success.schema_version)
        close = BaseCommand(type=BaseCommand.CLOSE_PRODUCER)
        close.close_producer.producer_id, close.close_producer.request_id = command.producer.producer_id, 0
        wire.expect(close, BaseCommand.SUCCESS)
        return None

    def _get_or_create(self, wire: WireClient, topic: Topic) -> None:
        info, event = self.notes.brings(topic, self.chance)
        command = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA)
        asked = command.getOrCreateSchema
        asked.topic, asked.request_id = topic.partition(self.chance), wire.number()
        asked.schema.CopyFrom(on_wire(info))
        answer = wire.expect(command, BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE).getOrCreateSchemaResponse
        if answer.HasField("error_code"):
            self.notes.drop(event)
        else:
            _added(event, answer.schema_version)

    def _consume(self, wire: WireClient, topic: Topic) -> None:
        """A consumer is not told its version, and adds one only where a topic is unused."""
        info, event = self.notes.brings(topic, self.chance)
        command = BaseCommand(type=BaseCommand.SUBSCRIBE)
        subscribe = command.subscribe
        subscribe.topic, subscribe.subscription = topic.partition(self.chance), "s"
        subscribe.subType = CommandSubscribe.Shared
        subscribe.consumer_id, subscribe.request_id = wire.number(), wire.number()
        subscribe.schema.CopyFrom(on_wire(info))
        if wire.ask(command).type == BaseCommand.SUCCESS:
            close = BaseCommand(type=BaseCommand.CLOSE_CONSUMER)
            close.close_consumer.consumer_id, close.close_consumer.request_id = subscribe.consumer_id, 0
            wire.expect(close, BaseCommand.SUCCESS)
        event.ended = time.monotonic()

    def _read(self, wire: WireClient, topic: Topic) -> None:
        event = self.notes.begin(Kind.LATEST, topic)
        _note_read(self.notes, event, wire.ask(get_command(topic.partition(self.chance), None, wire.number())))


def _added(event: Event, version: bytes) -> None:
    event.version = _VERSION.unpack(version)[0]
    event.ended = time.monotonic()


def _note_read(notes: Notes, event: Event, answer: BaseCommand) -> None:
    found = answer.getSchemaResponse
    if found.HasField("error_code"):
        if found.error_code != _NOT_FOUND:
            raise RuntimeError(f"GET_SCHEMA: {found.error_message}")
        event.ended = time.monotonic()
    else:
        version: int = _VERSION.unpack(found.schema_version)[0]
        if event.version not in (None, version):
            raise RuntimeError(f"version {event.version} was asked for, {version} came")
        notes.read(event, version, found.schema.schema_data)


class RestClient(Client):
    """Adds, reads and deletes schemas by the admin REST, and whole topics."""

    def work(self, addresses: tuple[str, str]) -> None:
        rest = AdminTransport(addresses[1], _TIMEOUT_S, TlsSettings())
        try:
            while not self._over.is_set():
                topic = self.topic()
                step = self.chance.choices((self._add, self._read, self._delete, self._forget), (6, 2, 1, 0.5))[0]
                step(rest, topic)
        finally:
            rest.close()

    def _add(self, rest: AdminTransport, topic: Topic) -> None:
        info, event = self.notes.brings(topic, self.chance)
        text = to_json(info.data) if topic.type is SchemaType.KEY_VALUE else info.data
        if topic.type is SchemaType.KEY_VALUE:
            self.notes.is_brought_as(event, from_json(text))
        body = {"type": info.type.name, "schema": text.decode(), "properties": dict(info.properties)}
        status, answer = _ask(rest, "POST", topic, "schema", json.dumps(body))
        if status == 200:
            event.version, event.ended = answer["version"]["version"], time.monotonic()
        else:
            self.notes.drop(event)

    def _read(self, rest: AdminTransport, topic: Topic) -> None:
        if topic.type is SchemaType.KEY_VALUE:
            return  # its text is another one here
        event = self.notes.begin(Kind.LATEST, topic)
        status, answer = _ask(rest, "GET", topic, "schema")
        if status == 200:
            self.notes.read(event, answer["version"], answer["data"].encode())
        else:
            event.ended = time.monotonic()

    def _delete(self, rest: AdminTransport, topic: Topic) -> None:
        if topic.fate == NONE_DELETED:
            return
        event = self.notes.begin(Kind.DELETE, topic)
        _, answer = _ask(rest, "DELETE", topic, "schema")
        if answer["version"] < 0:
            event.kind = Kind.LATEST  # there was nothing to delete
        else:
            event.version = answer["version"]
        event.ended = time.monotonic()

    def _forget(self, rest: AdminTransport, topic: Topic) -> None:
        if topic.fate != ALL_DELETED:
            return
        event = self.notes.begin(Kind.FORGET, topic)
        if self.chance.random() < 0.5:
            status, _ = _ask(rest, "DELETE", topic, "schema?force=true")
        else:
            path = f"/admin/v2/persistent/{_NAMESPACE}/{quote(topic.name)}?force=true"
            status = rest.ask("DELETE", path, None, {})[0].status
        event.version = -1 if status in (200, 204) else None
        event.ended = time.monotonic()


def _ask(rest: AdminTransport, method: str, topic: Topic, what: str, body: str | None = None) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"} if body else {}
    path = f"/admin/v2/schemas/{_NAMESPACE}/{quote(topic.name)}/{what}"
    answer, content = rest.ask(method, path, body, headers)
    return answer.status, json.loads(content or b"null")


class Crowd:
    """Clients of one broker, who begin at once."""

    def __init__(self, notes: Notes, addresses: tuple[str, str], dice: random.Random, count: int) -> None:
        self._notes = notes
        self._over = threading.Event()
        self._failures: list[BaseException] = []
        kinds = [RestClient if number % 3 == 2 else ProtocolClient for number in range(count)]
        clients = [kind(notes, random.Random(dice.random()), self._over) for kind in kinds]
        self._threads = [threading.Thread(target=self._run, args=(each, addresses), daemon=True) for each in clients]
        for each in self._threads:
            each.start()

    def _run(self, client: Client, addresses: tuple[str, str]) -> None:
        try:
            client.run(addresses)
        except BaseException as error:  # noqa: BLE001 - of a thread: raised again where the rig waits
            self._failures.append(error)

    def broker_is_dead(self) -> None:
        """Wait for the clients, who have noticed. The error of one is raised."""
        self._over.set()
        for each in self._threads:
            each.join(2 * _TIMEOUT_S)
        if any(each.is_alive() for each in self._threads):
            raise RuntimeError("a client does not notice that its broker is gone")
        self._notes.broker_is_dead()
        if self._failures:
            raise self._failures[0]


def read_all(notes: Notes, service_url: str, chance: random.Random, most: int) -> None:
    """Read ``most`` versions of each topic, the newest among them and one that is none yet, and the latest."""
    with WireClient(service_url) as wire:
        for topic in TOPICS:
            last = max((each.version or 0 for each in notes.events if each.topic == topic.name), default=0) + 1
            versions = list(range(last + 1))
            if len(versions) > most:
                versions = sorted({*versions[-most // 2 :], *chance.sample(versions, most // 2)})
            for start in range(0, len(versions), _PIPELINED):
                _read_some(notes, wire, topic, [*versions[start : start + _PIPELINED], None])


def _read_some(notes: Notes, wire: WireClient, topic: Topic, versions: list[int | None]) -> None:
    name = f"persistent://{_NAMESPACE}/{topic.name}"
    asked = []
    for version in versions:
        kind = Kind.LATEST if version is None else Kind.READ
        asked.append((notes.begin(kind, topic, version=version), get_command(name, version, wire.number())))
    wire.tell(*(command for _, command in asked))
    for event, _ in asked:
        _note_read(notes, event, wire.answer())
