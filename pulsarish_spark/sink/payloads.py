# SPDX-License-Identifier: Apache-2.0
"""Payloads of rows whose values have a schema: the columns of values, and of keys where it has those, become bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.values.encoder import ValueEncoder
from pulsarish_spark.options import KeyForm
from pulsarish_spark.sink.columns import lifted

if TYPE_CHECKING:
    from broker_core.client import Client
    from pulsarish_spark.sink.value_schemas import ValueSchemas


class Payloads:
    """The encoders of one task, one for each topic."""

    def __init__(self, client: Client, schemas: ValueSchemas) -> None:
        self._client = client
        self._schemas = schemas
        self._encoders: dict[str, ValueEncoder] = {}

    def schema_of(self, topic: str) -> SchemaInfo | None:
        """The schema that producers bring, of a topic that rows were made for; None if values are bytes."""
        info = self._encoders[topic].info
        return None if info.is_none else info

    def key_form(self, topic: str, form: KeyForm) -> KeyForm:
        """The form of keys, of a topic that rows were made for; ``form``: that of the option."""
        return "bytes" if self._encoders[topic].has_keys else form

    def made(self, topic: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """``rows`` with their values as bytes, and their keys if the schema has them. RowError for the first row that
        is none of the schema, ConfigError if there is none that they fit."""
        if topic not in self._encoders:
            self._encoders[topic] = self._schemas.encoder(self._schemas.schema_of(self._client, topic))
        encoder = self._encoders[topic]
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        value = self._value(columns)
        if encoder.info.type is SchemaType.KEY_VALUE:
            pair = pa.StructArray.from_arrays([columns.pop("key"), value], names=["key", "value"])
            value = encoder.encode(pair)
            if encoder.has_keys:
                columns["key"] = encoder.encode_keys(pair)
        else:
            value = encoder.encode(value)
        columns["value"] = value
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _value(self, columns: dict[str, pa.Array]) -> pa.Array:
        """The column of values, which is taken out of ``columns``."""
        if not self._schemas.writing.flatten:
            return columns.pop("value")
        names = lifted(list(columns))
        parts = [columns.pop(name) for name in names]
        return pa.StructArray.from_arrays(parts, names=names)
