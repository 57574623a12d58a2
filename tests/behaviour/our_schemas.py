# SPDX-License-Identifier: Apache-2.0
"""Schemas and their values in the words of our client: records as dicts, or as a dataclass."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from broker_core.client import schemas
from broker_core.client.schemas import Int32, KeyValue, Schema
from broker_core.schemas.info import SchemaInfo, SchemaType
from tests.behaviour.interface import CannotExpressError
from tests.behaviour.schemas import DURATION, TIMESTAMP, SchemaChoice

MESSAGES: Final[Mapping[str, type[Message]]] = {TIMESTAMP: Timestamp, DURATION: Duration}
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(kw_only=True)
class Order:
    """A record as a class, of which the client derives the schema."""

    city: str | None = None
    id: Int32


PLAIN: Final[Mapping[str, Callable[[], Schema[Any]]]] = {
    "BYTES": schemas.BytesSchema,
    "STRING": schemas.StringSchema,
    "BOOLEAN": schemas.BooleanSchema,
    "INT8": schemas.Int8Schema,
    "INT16": schemas.Int16Schema,
    "INT32": schemas.Int32Schema,
    "INT64": schemas.Int64Schema,
    "FLOAT": schemas.FloatSchema,
    "DOUBLE": schemas.DoubleSchema,
    "DATE": schemas.DateSchema,
    "TIME": schemas.TimeSchema,
    "TIMESTAMP": schemas.TimestampSchema,
    "INSTANT": schemas.InstantSchema,
    "LOCAL_DATE": schemas.LocalDateSchema,
    "LOCAL_TIME": schemas.LocalTimeSchema,
    "LOCAL_DATE_TIME": schemas.LocalDateTimeSchema,
    "AUTO_CONSUME": schemas.AutoConsumeSchema,
    "AUTO_PRODUCE_BYTES": schemas.AutoProduceSchema,
}


def schema_of(choice: SchemaChoice) -> Schema[Any] | SchemaInfo:
    """The client's schema."""
    if choice.type in PLAIN:
        return PLAIN[choice.type]()
    match choice.type:
        case "AVRO" | "JSON":
            return _record(choice)
        case "PROTOBUF_NATIVE":
            return schemas.ProtobufNativeSchema(MESSAGES[choice.message])
        case "KEY_VALUE":
            return schemas.KeyValueSchema(
                _part(choice.key), _part(choice.value), "inline" if choice.encoding == "INLINE" else "separated"
            )
        case kind:
            raise CannotExpressError(f"a schema {kind}")


def _record(choice: SchemaChoice) -> Schema[Any] | SchemaInfo:
    definition, made = (
        json.loads(choice.definition),
        schemas.AvroSchema if choice.type == "AVRO" else schemas.JsonSchema,
    )
    if definition["type"] != "record":
        return SchemaInfo(SchemaType[choice.type], choice.definition.encode())
    return made(Order) if choice.of_class else made(None, definition)


def _part(choice: SchemaChoice | None) -> Schema[Any]:
    assert choice is not None
    part = schema_of(choice)
    assert isinstance(part, Schema)
    return part


def value_of(choice: SchemaChoice | None, text: str | None) -> Any:
    """The value that the client is given for the JSON text of a behaviour; without a schema the text."""
    if choice is None or text is None or choice.type == "BYTES":
        return text if choice is None or text is None else text.encode()
    return _value(choice, json.loads(text))


def _value(choice: SchemaChoice, value: Any) -> Any:
    if value is None:
        return None
    match choice.type:
        case "AUTO_PRODUCE_BYTES":
            return bytes.fromhex(value)
        case "KEY_VALUE":
            assert choice.key is not None
            assert choice.value is not None
            return KeyValue(_value(choice.key, value["key"]), _value(choice.value, value["value"]))
        case "PROTOBUF_NATIVE":
            return MESSAGES[choice.message](**value)
        case "DATE" | "TIMESTAMP":
            return datetime.fromtimestamp(value / 1000, UTC)
        case "TIME":
            return datetime.fromtimestamp(value / 1000, UTC).time()
        case "INSTANT" | "LOCAL_DATE_TIME":
            return datetime.fromisoformat(value)
        case "LOCAL_DATE":
            return date.fromisoformat(value)
        case "LOCAL_TIME":
            return time.fromisoformat(value)
        case _:
            return Order(**value) if choice.of_class else value


def text_of(choice: SchemaChoice, value: Any) -> str:
    """The JSON text of a value that the client gives out; bytes are a text as they are."""
    return value.decode() if isinstance(value, bytes) else json.dumps(_plain(choice, value))


def _plain(choice: SchemaChoice, value: Any) -> Any:
    match value:
        case KeyValue():
            return {"key": _plain(choice, value.key), "value": _plain(choice, value.value)}
        case Order():
            return asdict(value)
        case Message():
            return {field.name: each for field, each in value.ListFields()}
        case datetime() if choice.type in ("DATE", "TIMESTAMP"):
            return round((value - EPOCH).total_seconds() * 1000)
        case time() if choice.type == "TIME":
            return round((datetime.combine(EPOCH, value, UTC) - EPOCH).total_seconds() * 1000)
        case date() | time():
            return value.isoformat()
        case _:
            return value


def key_text(key: str | bytes | None) -> str | None:
    """A key as other clients show it: that of a separated pair in base64."""
    return base64.b64encode(key).decode() if isinstance(key, bytes) else key
