# SPDX-License-Identifier: Apache-2.0
"""Records of tests about schemas: as dataclasses, and in the words of Pulsar's own client."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Annotated

from broker_core.client.schemas import Digits, Float32, Int32, LocalDateTime

KEY = uuid.UUID("12345678-1234-5678-1234-567812345678")


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


@dataclass
class Address:
    street: str
    number: Int32 = 1


@dataclass
class Order:
    """A field of each type."""

    id: int
    note: str | None
    address: Address
    former: Address | None = None
    lines: list[Address] = field(default_factory=list)
    prices: dict[str, float] = field(default_factory=dict)
    colour: Colour = Colour.GREEN
    colours: list[Colour] = field(default_factory=list)
    is_paid: bool = False
    data: bytes = b"\xff\0"
    weight: Float32 = 1.5
    at: datetime = datetime(2024, 2, 29, 12, 30, 1, 123456, tzinfo=UTC)
    local: LocalDateTime = datetime(2024, 2, 29, 12, 30, 1, 123456)  # noqa: DTZ001 - a local time
    day: date = date(1969, 12, 31)
    clock: time = time(23, 59, 59, 999999)
    price: Annotated[Decimal, Digits(10, 2)] = Decimal("-12.50")
    any_price: Decimal = Decimal("0.000000000000000001")
    key: uuid.UUID = KEY
    count: int | None = 5


@dataclass
class Node:
    """A record within itself."""

    value: int
    left: Node | None = None
    right: Node | None = None


FULL_ORDER = Order(
    7, "é", Address("Rue", 2), Address("Old"), [Address("a"), Address("b", 3)], {"x": 1.25}, Colour.RED,
    [Colour.RED, Colour.GREEN], True, b"abc", -2.5, datetime(1900, 1, 1, tzinfo=UTC),
    datetime(1900, 1, 1), date(2000, 1, 1), time(1), Decimal("99999999.99"), Decimal(-3), uuid.UUID(int=5), None,  # noqa: DTZ001
)  # fmt: skip
