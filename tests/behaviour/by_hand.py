# SPDX-License-Identifier: Apache-2.0
"""Schemas and their values made by hand, for clients that send schemas and leave values to their users.

Schemas become numbers and bytes, values bytes. Texts carry bytes as they are, those that are no UTF-8 as surrogates.
"""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from typing import Any, Final

import fastavro
from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from tests.behaviour.interface import CannotExpressError, Outgoing, Received
from tests.behaviour.schemas import DURATION, TIMESTAMP, SchemaChoice, key_value

NUMBERS: Final = {
    "NONE": 0, "STRING": 1, "JSON": 2, "PROTOBUF": 3, "AVRO": 4, "BOOLEAN": 5, "INT8": 6, "INT16": 7, "INT32": 8,
    "INT64": 9, "FLOAT": 10, "DOUBLE": 11, "DATE": 12, "TIME": 13, "TIMESTAMP": 14, "KEY_VALUE": 15, "INSTANT": 16,
    "LOCAL_DATE": 17, "LOCAL_TIME": 18, "LOCAL_DATE_TIME": 19, "PROTOBUF_NATIVE": 20, "AUTO_CONSUME": 21,
}  # fmt: skip
"""Type -> its number on the wire."""

FORMS: Final = {
    "BOOLEAN": ">?", "INT8": ">b", "INT16": ">h", "INT32": ">i", "INT64": ">q", "FLOAT": ">f", "DOUBLE": ">d",
    "DATE": ">q", "TIME": ">q", "TIMESTAMP": ">q",
}  # fmt: skip
"""Type -> its bytes, for ``struct``."""

ASKED: Final = ("AVRO", "KEY_VALUE", "AUTO_CONSUME")
"""Types of which the writer's schema has to be known."""

MESSAGES: Final = {TIMESTAMP: timestamp_pb2.Timestamp, DURATION: duration_pb2.Duration}
EPOCH: Final = date(1970, 1, 1)


def as_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def on_the_wire(choice: SchemaChoice) -> SchemaChoice:
    """The same by its number, and with its data in base64."""
    if choice.type not in NUMBERS:
        raise CannotExpressError(f"a schema {choice.type}")
    properties = dict(choice.properties)
    if choice.key is not None and choice.value is not None:
        properties |= {
            "key.schema.type": choice.key.type,
            "value.schema.type": choice.value.type,
            "kv.encoding.type": choice.encoding,
        }
    data = base64.b64encode(_data(choice)).decode()
    return SchemaChoice(type=str(NUMBERS[choice.type]), definition=data, properties=properties)


def _data(choice: SchemaChoice) -> bytes:
    if choice.key is not None and choice.value is not None:
        return _joined(_data(choice.key), _data(choice.value))
    return _descriptors(choice.message) if choice.type == "PROTOBUF_NATIVE" else choice.definition.encode()


def _descriptors(name: str) -> bytes:
    file = MESSAGES[name].DESCRIPTOR.file
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    files = base64.b64encode(FileDescriptorSet(file=[proto]).SerializeToString()).decode()
    said = {"fileDescriptorSet": files, "rootMessageTypeName": name, "rootFileDescriptorName": file.name}
    return json.dumps(said).encode()


def _joined(key: bytes | None, value: bytes | None) -> bytes:
    return b"".join(struct.pack(">i", -1 if part is None else len(part)) + (part or b"") for part in (key, value))


def _parted(data: bytes) -> list[bytes | None]:
    parts: list[bytes | None] = []
    while data:
        (size,) = struct.unpack(">i", data[:4])
        parts.append(None if size < 0 else data[4 : 4 + size])
        data = data[4 + max(size, 0) :]
    return parts


@dataclass(frozen=True, slots=True)
class Info:
    """A schema as the broker gives it out."""

    number: int
    data: bytes
    properties: Mapping[str, str]

    def choice(self) -> SchemaChoice:
        kind = next(name for name, number in NUMBERS.items() if number == self.number)
        if kind != "KEY_VALUE":
            return SchemaChoice(type=kind, definition=self.data.decode())
        key, value = (
            SchemaChoice(type=self.properties[f"{part}.schema.type"], definition=(data or b"").decode())
            for part, data in zip(("key", "value"), _parted(self.data), strict=True)
        )
        return key_value(key, value, "SEPARATED" if self.properties["kv.encoding.type"] == "SEPARATED" else "INLINE")


def encoded(choice: SchemaChoice, value: Any) -> bytes:
    """The bytes of a value, but of a pair that is not separated."""
    match choice.type:
        case "AVRO":
            buffer = io.BytesIO()
            fastavro.schemaless_writer(buffer, json.loads(choice.definition), value)
            return buffer.getvalue()
        case "JSON":
            return json.dumps(value).encode()
        case "PROTOBUF" | "PROTOBUF_NATIVE":
            made: bytes = MESSAGES[choice.message](**value).SerializeToString()
            return made
        case "STRING":
            return bytes(value, "utf-8")
        case "INSTANT":
            seconds, _, fraction = value.removesuffix("Z").partition(".")
            return struct.pack(">qi", _seconds(seconds), int(fraction.ljust(9, "0") or 0))
        case "LOCAL_DATE":
            return struct.pack(">q", (date.fromisoformat(value) - EPOCH).days)
        case "LOCAL_TIME":
            return struct.pack(">q", _nanos(value))
        case "LOCAL_DATE_TIME":
            day, _, clock = value.partition("T")
            return struct.pack(">qq", (date.fromisoformat(day) - EPOCH).days, _nanos(clock))
        case kind:
            return struct.pack(FORMS[kind], value)


def _seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def _nanos(text: str) -> int:
    clock = time.fromisoformat(text)
    return (clock.hour * 3600 + clock.minute * 60 + clock.second) * 10**9


def decoded(choice: SchemaChoice, data: bytes, writer: SchemaChoice | None = None) -> Any:
    """The value of bytes, but of a separated pair; ``writer`` wrote them, if not ``choice``."""
    match choice.type:
        case "AVRO":
            written = json.loads((writer or choice).definition)
            return fastavro.schemaless_reader(io.BytesIO(data), written, json.loads(choice.definition))
        case "JSON":
            found = json.loads(data)
            return {each["name"]: found.get(each["name"], each.get("default")) for each in _fields(choice)}
        case "PROTOBUF" | "PROTOBUF_NATIVE":
            message = MESSAGES[choice.message].FromString(data)
            return {field.name: value for field, value in message.ListFields()}
        case "STRING":
            return data.decode()
        case "INSTANT":
            seconds, nanos = struct.unpack(">qi", data)
            return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanos:09d}Z"
        case "LOCAL_DATE":
            return date.fromordinal(EPOCH.toordinal() + struct.unpack(">q", data)[0]).isoformat()
        case "LOCAL_TIME":
            return _clock(struct.unpack(">q", data)[0])
        case "LOCAL_DATE_TIME":
            day, nanos = struct.unpack(">qq", data)
            return f"{date.fromordinal(EPOCH.toordinal() + day).isoformat()}T{_clock(nanos)}"
        case kind:
            return struct.unpack(FORMS[kind], data)[0]


def _fields(choice: SchemaChoice) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(choice.definition)["fields"]
    return found


def _clock(nanos: int) -> str:
    return datetime.fromtimestamp(nanos // 10**9, UTC).strftime("%H:%M:%S")


def outgoing(choice: SchemaChoice, message: Outgoing) -> Outgoing:
    """A message with the bytes of its value, and the key of a separated pair."""
    if message.value is None or choice.type in ("NONE", "BYTES"):
        return message
    value = json.loads(message.value)
    if choice.key is None or choice.value is None:
        return replace(message, value=as_text(encoded(choice, value)))
    key, part = (
        None if value[name] is None else encoded(each, value[name])
        for name, each in (("key", choice.key), ("value", choice.value))
    )
    if choice.encoding == "INLINE":
        return replace(message, value=as_text(_joined(key, part)))
    if key is None or part is None:
        raise CannotExpressError("a separated pair without a part")
    return replace(message, value=as_text(part), key=base64.b64encode(key).decode(), key_is_base64=True)


def received(choice: SchemaChoice, message: Received, writer: SchemaChoice | None) -> Received:
    """The message with the JSON of its value."""
    if choice.type == "AUTO_CONSUME":
        if writer is None:
            return message
        choice = writer
    if choice.key is None or choice.value is None:
        return replace(message, value=json.dumps(decoded(choice, message.data, writer)))
    if choice.encoding == "INLINE":
        key, value = _parted(message.data)
    else:
        key, value = base64.b64decode(message.key or ""), message.data
    written = None if writer is None else writer.value
    pair = {
        "key": None if key is None else decoded(choice.key, key),
        "value": None if value is None else decoded(choice.value, value, written),
    }
    return replace(message, value=json.dumps(pair))


class ValuesByHand:
    """The values of one consumer or reader; ``ask`` gives a version of a topic's schema, where the client can ask."""

    def __init__(self, choice: SchemaChoice, ask: Callable[[str, int], Info] | None) -> None:
        self._choice = choice
        self._ask = ask
        self._known: dict[tuple[str, int], SchemaChoice] = {}

    def of(self, message: Received | None) -> Received | None:
        """The message with the JSON of its value."""
        if message is None or self._choice.type in ("NONE", "BYTES"):
            return message
        return received(self._choice, message, self._writer(message.topic, message.schema_version))

    def _writer(self, topic: str, version: int | None) -> SchemaChoice | None:
        if self._ask is None or version is None or self._choice.type not in ASKED:
            return None
        if (topic, version) not in self._known:
            self._known[topic, version] = self._ask(topic, version).choice()
        return self._known[topic, version]
