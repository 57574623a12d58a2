# SPDX-License-Identifier: Apache-2.0
"""Avro's logical types: numbers, bytes and texts that stand for dates, times, decimals and UUIDs, and back.

Instants have a time zone in Python, local times have none; nanoseconds are cut to microseconds, which is what Python
has. A number that Python has no date for is a misfit.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from broker_core.client.schemas.misfit import Misfit, wanted
from broker_core.schemas.avro.types import AvroType, Fixed, Primitive

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LOCAL_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - local times have no zone
_EPOCH_DAY: Final = EPOCH.toordinal()
_MICRO: Final = timedelta(microseconds=1)
_DAY_MICROS: Final = 86_400_000_000
_DECIMAL_BYTES_MAX: Final = 1024
"""More than anybody's numbers need: making digits of a number takes time that grows with the square of its size."""
_DIGITS_MAX: Final = 2465
"""Digits that are sure to fit into so many bytes."""

Converter = Callable[[Any], Any]


class Logical(NamedTuple):
    """``shown``: from what Avro has; ``plain``: back to that, which also takes what is plain already."""

    shown: Converter
    plain: Converter


def date_of(days: int) -> date:
    """The day that is ``days`` after 1970-01-01."""
    try:
        return date.fromordinal(_EPOCH_DAY + days)
    except (ValueError, OverflowError) as error:
        raise Misfit(f"Python has no day {days}") from error


def days_of(day: Any) -> int:
    """Days since 1970-01-01."""
    if isinstance(day, date) and not isinstance(day, datetime):
        return day.toordinal() - _EPOCH_DAY
    return _number(day, "a date")


def time_of(micros: int) -> time:
    """The time of a day."""
    if not 0 <= micros < _DAY_MICROS:
        raise Misfit(f"no day has a microsecond {micros}")
    return (LOCAL_EPOCH + timedelta(microseconds=micros)).time()


def micros_of_day(moment: time) -> int:
    """Microseconds since midnight."""
    if moment.tzinfo is not None:
        raise Misfit(f"{moment} has a time zone, and a time of a day has none: leave it out with replace(tzinfo=None)")
    return ((moment.hour * 60 + moment.minute) * 60 + moment.second) * 1_000_000 + moment.microsecond


def instant_of(micros: int) -> datetime:
    """A time in UTC."""
    return _moment(EPOCH, micros)


def local_of(micros: int) -> datetime:
    """A time without a zone."""
    return _moment(LOCAL_EPOCH, micros)


def _moment(epoch: datetime, micros: int) -> datetime:
    try:
        return epoch + timedelta(microseconds=micros)
    except OverflowError as error:
        raise Misfit(f"Python has no time {micros} microseconds from 1970") from error


def micros_of_instant(moment: datetime) -> int:
    """Microseconds since 1970 in UTC."""
    if moment.tzinfo is None:
        raise Misfit(f"{moment} has no time zone: say which instant it is, as datetime.now(UTC) does")
    return (moment - EPOCH) // _MICRO


def micros_of_local(moment: datetime) -> int:
    """Microseconds since 1970 of a clock on the wall."""
    if moment.tzinfo is not None:
        raise Misfit(f"{moment} has a time zone, and a local time has none: leave it out with replace(tzinfo=None)")
    return (moment - LOCAL_EPOCH) // _MICRO


def _number(value: Any, kind: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise wanted(kind, value)


def _times(unit: str) -> Logical:
    """A time of a day in milliseconds or microseconds."""
    scale = _MICROS[unit]

    def plain(value: Any) -> int:
        return micros_of_day(value) // scale if isinstance(value, time) else _number(value, "a time")

    return Logical(lambda number: time_of(number * scale), plain)


def _timestamps(unit: str, of: Callable[[int], datetime], micros: Callable[[datetime], int]) -> Logical:
    if unit == "nanos":
        return Logical(
            lambda number: of(number // 1000),
            lambda value: micros(value) * 1000 if isinstance(value, datetime) else _number(value, "a datetime"),
        )
    scale = _MICROS[unit]
    return Logical(
        lambda number: of(number * scale),
        lambda value: micros(value) // scale if isinstance(value, datetime) else _number(value, "a datetime"),
    )


_MICROS: Final = {"millis": 1000, "micros": 1}
_NUMBERS: Final[Mapping[tuple[str, str], Logical]] = {
    ("int", "date"): Logical(date_of, days_of),
    ("int", "time-millis"): _times("millis"),
    ("long", "time-micros"): _times("micros"),
    **{
        ("long", f"timestamp-{unit}"): _timestamps(unit, instant_of, micros_of_instant)
        for unit in ("millis", "micros", "nanos")
    },
    **{
        ("long", f"local-timestamp-{unit}"): _timestamps(unit, local_of, micros_of_local)
        for unit in ("millis", "micros", "nanos")
    },
}


def logical_name(schema: AvroType) -> str:
    """The logical type that a schema names; "" for none."""
    named = schema.properties.get("logicalType", "") if isinstance(schema, Primitive | Fixed) else ""
    return named if isinstance(named, str) else ""


def logical_of(schema: AvroType) -> Logical | None:
    """The logical type of ``schema``; None for none, and for one that is unknown or does not fit its base."""
    name = logical_name(schema)
    if not name or not isinstance(schema, Primitive | Fixed):
        return None
    if name == "decimal" and schema.kind in ("bytes", "fixed"):
        return _decimal(schema)
    if name == "uuid":
        return _uuid(schema)
    return _NUMBERS.get((schema.kind, name))


def _uuid(schema: Primitive | Fixed) -> Logical | None:
    if schema.kind == "string":
        return Logical(_uuid_of_text, lambda value: str(value) if isinstance(value, uuid.UUID) else value)
    if isinstance(schema, Fixed) and schema.size == 16:
        return Logical(
            lambda data: uuid.UUID(bytes=data), lambda value: value.bytes if isinstance(value, uuid.UUID) else value
        )
    return None


def _uuid_of_text(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError as error:
        raise wanted("a UUID", text) from error


# -- decimals: an integer in two's complement, big endian, and a scale that the schema says


def _decimal(schema: Primitive | Fixed) -> Logical | None:
    precision, scale = schema.properties.get("precision"), schema.properties.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision:
        return None
    size = schema.size if isinstance(schema, Fixed) else 0

    def plain(value: Any) -> bytes:
        if isinstance(value, bytes):
            return value
        unscaled = unscaled_of(value, precision, scale)
        data = _two_s_complement(unscaled)
        if size and len(data) > size:
            raise Misfit(f"{value} does not fit into {size} bytes")
        return data.rjust(size, b"\xff" if unscaled < 0 else b"\0") if size else data

    return Logical(lambda data: _decimal_of(data, scale), plain)


def unscaled_of(value: Any, precision: int, scale: int) -> int:
    """The integer that stands for a decimal; a misfit if it has more digits than its type."""
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        raise wanted("a Decimal", value)
    number = Decimal(value)
    if not number.is_finite():
        raise wanted("a number", value)
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    shift = exponent + scale
    if len(digits) + shift > precision and any(digits):
        raise Misfit(f"{value} has more than the {precision - scale} digits before the point that there are")
    if len(digits) + shift > _DIGITS_MAX and any(digits):
        raise Misfit(f"{value} has more than {_DIGITS_MAX} digits, with {scale} of them behind the point")
    text = "".join(map(str, digits))
    if shift < 0:
        text, rest = (text[:shift], text[shift:]) if -shift < len(text) else ("", text)
        if rest.strip("0"):
            raise Misfit(f"{value} has more than the {scale} digits behind the point that there are")
    else:
        text += "0" * (shift if any(digits) else 0)
    return -int(text or "0") if sign else int(text or "0")


def _two_s_complement(number: int) -> bytes:
    return number.to_bytes(((number if number >= 0 else ~number).bit_length() + 8) // 8, "big", signed=True)


def _decimal_of(data: bytes, scale: int) -> Decimal:
    if len(data) > _DECIMAL_BYTES_MAX:
        raise Misfit(f"a decimal of {len(data)} bytes is too long")
    number = int.from_bytes(data, "big", signed=True)
    try:
        return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
    except (OverflowError, InvalidOperation) as error:
        raise Misfit(f"Python has no decimal with {scale} digits behind the point") from error


def json_number(value: Any) -> Any:
    """A number in JSON, which has none for NaN and infinities: these are texts."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def decimal_of_json(value: Any) -> Decimal:
    """A decimal from a number or a text of JSON."""
    try:
        number = Decimal(str(value)) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except InvalidOperation:
        number = None
    if number is None:
        raise wanted("a decimal", value)
    return number
