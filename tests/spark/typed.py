# SPDX-License-Identifier: Apache-2.0
"""Messages whose values have a schema, as tests write them: definitions, Avro's bytes, and producers of any version."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro

from broker_core.client import Client
from broker_core.schemas.info import SchemaInfo, SchemaType
from tests.spark.brokers import Broker

ID: dict[str, Any] = {"name": "id", "type": "long"}
CITY: dict[str, Any] = {"name": "city", "type": ["null", "string"], "default": None}
NOTE: dict[str, Any] = {"name": "note", "type": "string", "default": "none"}


def record(*fields: dict[str, Any], kind: SchemaType = SchemaType.AVRO, name: str = "Order") -> SchemaInfo:
    """The schema of a record."""
    return SchemaInfo(kind, json.dumps({"type": "record", "name": name, "fields": list(fields)}).encode())


ORDER, LARGER, RENAMED = record(ID, CITY), record(ID, CITY, NOTE), record(ID, NOTE)


def avro_bytes(schema: SchemaInfo, value: Any) -> bytes:
    """A value in Avro's binary form, by another library than ours."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema.data)), value)
    return out.getvalue()


def orders(schema: SchemaInfo, *ids: int, **more: Any) -> list[bytes]:
    """Orders with these ids."""
    return [avro_bytes(schema, {"id": each, "city": f"c{each}", **more}) for each in ids]


def send(
    cell: Broker,
    topic: str,
    schema: SchemaInfo | None,
    payloads: Sequence[bytes | None],
    *,
    producer: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Send payloads as they are by a producer with this schema; ``options`` are those of each message."""
    with Client(cell.service_url) as client, client.create_producer(topic, schema=schema, **producer or {}) as sender:
        for payload in payloads:
            sender.send_async(payload, **options)
        sender.flush()
