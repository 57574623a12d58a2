# SPDX-License-Identifier: Apache-2.0
"""Schemas of applications: Python values to payloads and back, for producers, consumers, readers and table views.

    @dataclass
    class Order:
        number: int
        city: str = "Ghent"

    ORDERS = AvroSchema(Order)
    with client.create_producer("orders", schema=ORDERS) as producer:
        producer.send(Order(1))

Names are those of Pulsar's own Python client where it has one.
"""

from typing import TYPE_CHECKING

from broker_core.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from broker_core.client.schemas.auto import AutoConsumeSchema as AutoConsumeSchema
    from broker_core.client.schemas.auto import AutoProduceSchema as AutoProduceSchema
    from broker_core.client.schemas.dataclass_records import AvroDefinition as AvroDefinition
    from broker_core.client.schemas.dataclass_records import Digits as Digits
    from broker_core.client.schemas.dataclass_records import Float32 as Float32
    from broker_core.client.schemas.dataclass_records import Int32 as Int32
    from broker_core.client.schemas.dataclass_records import LocalDateTime as LocalDateTime
    from broker_core.client.schemas.key_values import KeyValue as KeyValue
    from broker_core.client.schemas.key_values import KeyValueSchema as KeyValueSchema
    from broker_core.client.schemas.primitives import BooleanSchema as BooleanSchema
    from broker_core.client.schemas.primitives import DateSchema as DateSchema
    from broker_core.client.schemas.primitives import DoubleSchema as DoubleSchema
    from broker_core.client.schemas.primitives import FloatSchema as FloatSchema
    from broker_core.client.schemas.primitives import InstantSchema as InstantSchema
    from broker_core.client.schemas.primitives import Int8Schema as Int8Schema
    from broker_core.client.schemas.primitives import Int16Schema as Int16Schema
    from broker_core.client.schemas.primitives import Int32Schema as Int32Schema
    from broker_core.client.schemas.primitives import Int64Schema as Int64Schema
    from broker_core.client.schemas.primitives import LocalDateSchema as LocalDateSchema
    from broker_core.client.schemas.primitives import LocalDateTimeSchema as LocalDateTimeSchema
    from broker_core.client.schemas.primitives import LocalTimeSchema as LocalTimeSchema
    from broker_core.client.schemas.primitives import TimeSchema as TimeSchema
    from broker_core.client.schemas.primitives import TimestampSchema as TimestampSchema
    from broker_core.client.schemas.protobuf import ProtobufNativeSchema as ProtobufNativeSchema
    from broker_core.client.schemas.record_schemas import AvroSchema as AvroSchema
    from broker_core.client.schemas.record_schemas import JsonSchema as JsonSchema
    from broker_core.client.schemas.records import Array as Array
    from broker_core.client.schemas.records import Boolean as Boolean
    from broker_core.client.schemas.records import Bytes as Bytes
    from broker_core.client.schemas.records import CustomEnum as CustomEnum
    from broker_core.client.schemas.records import Double as Double
    from broker_core.client.schemas.records import Float as Float
    from broker_core.client.schemas.records import Integer as Integer
    from broker_core.client.schemas.records import Long as Long
    from broker_core.client.schemas.records import Map as Map
    from broker_core.client.schemas.records import Null as Null
    from broker_core.client.schemas.records import Record as Record
    from broker_core.client.schemas.records import String as String
    from broker_core.client.schemas.schema import BytesSchema as BytesSchema
    from broker_core.client.schemas.schema import Schema as Schema
    from broker_core.client.schemas.schema import StringSchema as StringSchema

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "auto": ["AutoConsumeSchema", "AutoProduceSchema"],
        "dataclass_records": ["AvroDefinition", "Digits", "Float32", "Int32", "LocalDateTime"],
        "key_values": ["KeyValue", "KeyValueSchema"],
        "primitives": [
            *("BooleanSchema", "Int8Schema", "Int16Schema", "Int32Schema", "Int64Schema", "FloatSchema"),
            *("DoubleSchema", "DateSchema", "TimeSchema", "TimestampSchema", "InstantSchema"),
            *("LocalDateSchema", "LocalTimeSchema", "LocalDateTimeSchema"),
        ],
        "protobuf": ["ProtobufNativeSchema"],
        "record_schemas": ["AvroSchema", "JsonSchema"],
        "records": [
            *("Array", "Boolean", "Bytes", "CustomEnum", "Double", "Float", "Integer", "Long", "Map", "Null"),
            *("Record", "String"),
        ],
        "schema": ["BytesSchema", "Schema", "StringSchema"],
    },
)
