# SPDX-License-Identifier: Apache-2.0
"""Schemas of single numbers, truth values, dates and times: big endian, and of exactly the length of their type.

Those for times take and give objects of ``datetime``: an INSTANT, a TIMESTAMP and a DATE with their time zone, local
dates and times without one. Python has no nanoseconds: those of others are cut. Each value is as Java's client has it.
Source: Pulsar docs, "Schema - Primitive types".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import date, datetime, time
from typing import Any, ClassVar, Final, TypeVar

from broker_core.client.schemas.logical_types import (
    date_of,
    days_of,
    instant_of,
    local_of,
    micros_of_day,
    micros_of_instant,
    micros_of_local,
    time_of,
)
from broker_core.client.schemas.misfit import Misfit, wanted
from broker_core.client.schemas.schema import PlainSchema, Schema
from broker_core.schemas.info import SchemaType

V = TypeVar("V")

_DAY_MICROS: Final = 86_400_000_000
_INT64: Final = struct.Struct(">q")


class _Packed(PlainSchema[V]):
    """A value of one or two numbers."""

    _form: ClassVar[struct.Struct]

    def decoded(self, payload: bytes) -> V:
        if len(payload) != self._form.size:
            raise Misfit(f"it has {len(payload)} bytes, and a {self.kind.name} has {self._form.size}")
        return self._value(*self._form.unpack(payload))

    def encoded(self, value: V) -> bytes:
        try:
            return self._form.pack(*self._numbers(value))
        except (struct.error, OverflowError) as error:
            raise wanted(f"a number that fits into {self.kind.name}", value) from error

    def _value(self, *numbers: Any) -> V:
        raise NotImplementedError

    def _numbers(self, value: V) -> tuple[Any, ...]:
        raise NotImplementedError


class BooleanSchema(_Packed[bool]):
    """True or false."""

    kind = SchemaType.BOOLEAN
    _form = struct.Struct(">B")

    def _value(self, *numbers: Any) -> bool:
        return numbers != (0,)

    def _numbers(self, value: object) -> tuple[Any, ...]:
        if not isinstance(value, bool):
            raise wanted("a boolean", value)
        return (int(value),)


class _Integer(_Packed[int]):
    def _value(self, *numbers: Any) -> int:
        return int(numbers[0])

    def _numbers(self, value: object) -> tuple[Any, ...]:
        if not isinstance(value, int) or isinstance(value, bool):
            raise wanted("a whole number", value)
        return (value,)


class Int8Schema(_Integer):
    """Whole numbers of 8 bits."""

    kind = SchemaType.INT8
    _form = struct.Struct(">b")


class Int16Schema(_Integer):
    """Whole numbers of 16 bits."""

    kind = SchemaType.INT16
    _form = struct.Struct(">h")


class Int32Schema(_Integer):
    """Whole numbers of 32 bits."""

    kind = SchemaType.INT32
    _form = struct.Struct(">i")


class Int64Schema(_Integer):
    """Whole numbers of 64 bits."""

    kind = SchemaType.INT64
    _form = _INT64


class _Floating(_Packed[float]):
    def _value(self, *numbers: Any) -> float:
        return float(numbers[0])

    def _numbers(self, value: object) -> tuple[Any, ...]:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wanted("a number", value)
        return (value,)


class FloatSchema(_Floating):
    """Numbers of 32 bits with a point."""

    kind = SchemaType.FLOAT
    _form = struct.Struct(">f")


class DoubleSchema(_Floating):
    """Numbers of 64 bits with a point."""

    kind = SchemaType.DOUBLE
    _form = struct.Struct(">d")


class _Moment(_Packed[datetime]):
    """A time with its zone, in milliseconds."""

    _form = _INT64

    def _value(self, *numbers: Any) -> datetime:
        return instant_of(numbers[0] * 1000)

    def _numbers(self, value: datetime) -> tuple[Any, ...]:
        return (micros_of_instant(_checked(value, datetime, "a datetime")) // 1000,)


class TimestampSchema(_Moment):
    """Times with their zone, to the millisecond."""

    kind = SchemaType.TIMESTAMP


class DateSchema(_Moment):
    """Java's Date, which is a time: with its zone, to the millisecond. LocalDateSchema has days."""

    kind = SchemaType.DATE


class TimeSchema(_Packed[time]):
    """Times of a day in UTC, to the millisecond."""

    kind = SchemaType.TIME
    _form = _INT64

    def _value(self, *numbers: Any) -> time:
        return time_of(numbers[0] * 1000 % _DAY_MICROS)

    def _numbers(self, value: time) -> tuple[Any, ...]:
        return (micros_of_day(_checked(value, time, "a time")) // 1000,)


class InstantSchema(_Packed[datetime]):
    """Times with their zone, to the microsecond."""

    kind = SchemaType.INSTANT
    _form = struct.Struct(">qi")

    def _value(self, *numbers: Any) -> datetime:
        return instant_of(numbers[0] * 1_000_000 + numbers[1] // 1000)

    def _numbers(self, value: datetime) -> tuple[Any, ...]:
        seconds, micros = divmod(micros_of_instant(_checked(value, datetime, "a datetime")), 1_000_000)
        return seconds, micros * 1000


class LocalDateSchema(_Packed[date]):
    """Days."""

    kind = SchemaType.LOCAL_DATE
    _form = _INT64

    def _value(self, *numbers: Any) -> date:
        return date_of(numbers[0])

    def _numbers(self, value: date) -> tuple[Any, ...]:
        if isinstance(value, datetime):
            raise wanted("a date", value)
        return (days_of(_checked(value, date, "a date")),)


class LocalTimeSchema(_Packed[time]):
    """Times of a day, to the microsecond."""

    kind = SchemaType.LOCAL_TIME
    _form = _INT64

    def _value(self, *numbers: Any) -> time:
        return time_of(numbers[0] // 1000)

    def _numbers(self, value: time) -> tuple[Any, ...]:
        return (micros_of_day(_checked(value, time, "a time")) * 1000,)


class LocalDateTimeSchema(_Packed[datetime]):
    """Times without a zone, to the microsecond."""

    kind = SchemaType.LOCAL_DATE_TIME
    _form = struct.Struct(">qq")

    def _value(self, *numbers: Any) -> datetime:
        if not 0 <= numbers[1] < _DAY_MICROS * 1000:
            raise Misfit(f"no day has a nanosecond {numbers[1]}")
        return local_of(numbers[0] * _DAY_MICROS + numbers[1] // 1000)

    def _numbers(self, value: datetime) -> tuple[Any, ...]:
        days, micros = divmod(micros_of_local(_checked(value, datetime, "a datetime")), _DAY_MICROS)
        return days, micros * 1000


def _checked(value: object, kind: type[V], name: str) -> V:
    if not isinstance(value, kind):
        raise wanted(name, value)
    return value


def primitive_schemas() -> dict[SchemaType, Callable[[], Schema[Any]]]:
    """The class of each type."""
    return {
        each.kind: each
        for each in (
            *(BooleanSchema, Int8Schema, Int16Schema, Int32Schema, Int64Schema, FloatSchema, DoubleSchema),
            *(DateSchema, TimeSchema, TimestampSchema, InstantSchema),
            *(LocalDateSchema, LocalTimeSchema, LocalDateTimeSchema),
        )
    }
