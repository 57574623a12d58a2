# SPDX-License-Identifier: Apache-2.0
"""Dataclasses as messages: a schema that grows, one that is refused, a table of pairs, and a payload that is no order.

    python examples/typed_orders.py                                       # a broker is started for you
    python examples/typed_orders.py --service-url pulsar://127.0.0.1:6650 # or any Apache Pulsar

A shop has sent orders for years and adds a field to them. The new field has a default, so that the topic takes the new
schema, and one reader reads orders of both versions. A version without a default is refused before it can break
anybody. Prices are pairs of an article and a price, whose key is that of the message: a table view shows the latest of
each. At last somebody writes bytes that are no order, and the reader is told which message it is, which version it
claims, and which field cannot be read.
"""

from __future__ import annotations

import sys
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime

from on_a_broker import on_a_broker

from broker_core.base.errors import IncompatibleSchemaError, UnreadableValueError
from broker_core.client import Client
from broker_core.client.schemas import AvroSchema, DoubleSchema, KeyValue, KeyValueSchema, StringSchema

WAIT_S = 30.0


@dataclass
class FirstOrder:
    """An order as the shop has had it for years."""

    number: int
    at: datetime
    _avro_name = "Order"


@dataclass
class Order:
    """The same with more fields. Each has a default, which orders without it get."""

    number: int
    at: datetime
    city: str = "Ghent"
    articles: list[str] = field(default_factory=list)


@dataclass
class CarelessOrder:
    """A field without a default: no reader could say what older orders have there."""

    number: int
    at: datetime
    customer: str
    _avro_name = "Order"


FIRST, ORDERS, CARELESS = AvroSchema(FirstOrder), AvroSchema(Order), AvroSchema(CarelessOrder)
PRICES = KeyValueSchema(StringSchema(), DoubleSchema(), "separated")


def run(service_url: str) -> int:
    """Send and read orders of both versions, and prices."""
    mark = uuid.uuid4().hex[:8]
    orders, prices = f"orders-{mark}", f"prices-{mark}"
    with Client(service_url) as client:
        read = orders_of_both_versions(client, orders)
        is_refused = careless_version_is_refused(client, orders)
        latest = latest_prices(client, prices)
        told = bytes_that_are_no_order(client, orders)
    as_expected = [each.city for each in read] == ["Ghent", "Bruges"] and latest == {"tea": 4.5, "cake": 3.0}
    passed = as_expected and is_refused and "city" in told
    print(f"check: {'passed' if passed else 'FAILED'}", file=sys.stderr)
    return 0 if passed else 1


def orders_of_both_versions(client: Client, topic: str) -> list[Order]:
    """An order of each version, read as the newer one."""
    with client.create_producer(topic, schema=FIRST) as producer:
        producer.send(FirstOrder(1, datetime.now(UTC)))
    with client.create_producer(topic, schema=ORDERS) as producer:
        producer.send(Order(2, datetime.now(UTC), "Bruges", ["tea"]))
    read = []
    with client.create_reader(topic, schema=ORDERS) as reader:
        while reader.has_message_available():
            message = reader.read_next(WAIT_S)
            order = ORDERS.value_of(message)
            assert order is not None
            print(f"version {message.schema_version}: order {order.number} for {order.city}, {order.articles}")
            read.append(order)
    return read


def careless_version_is_refused(client: Client, topic: str) -> bool:
    """Whether the topic keeps the version away that would break readers."""
    try:
        client.create_producer(topic, schema=CARELESS).close()
    except IncompatibleSchemaError as refusal:
        print(f"refused: {refusal}")
        return True
    return False


def latest_prices(client: Client, topic: str) -> dict[str, float]:
    """The table of the latest price of each article."""
    with client.create_producer(topic, schema=PRICES) as producer:
        for price in (KeyValue("tea", 4.0), KeyValue("cake", 3.0), KeyValue("tea", 4.5), KeyValue("soup", 6.0)):
            producer.send(price)
        producer.send(KeyValue("soup", None))  # no longer on the menu
    with client.create_table_view(topic, PRICES) as view:
        print(f"prices: {view.snapshot()}")
        return view.snapshot()


def bytes_that_are_no_order(client: Client, topic: str) -> str:
    """The error that a reader gets for a payload that its producer has not looked at."""
    with client.create_producer(topic, schema=ORDERS.info) as producer:  # the schema's name, and any bytes
        bad = producer.send(b"\x06\x00\x14Os")
    with client.create_reader(topic, bad, inclusive=True, schema=ORDERS) as reader:
        message = reader.read_next(WAIT_S)
    try:
        print(message.decoded)
    except UnreadableValueError as error:
        print(f"told: {error}")
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(on_a_broker("Dataclasses as messages.", run))
