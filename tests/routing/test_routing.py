# SPDX-License-Identifier: Apache-2.0
"""Keys go where the official clients send them: against the stored table, and against the clients that are here."""

from __future__ import annotations

from types import ModuleType
from typing import cast

import pytest

from broker_core.wire import batch as compiled_batch
from tests.behaviour.driver import Driver
from tests.client.conftest import Service
from tests.routing import table
from tests.routing.clients import CLIENTS, Client, Routes, driven_routes, keys_of, python_routes
from tests.routing.keys import PARTITIONS, TEXTS
from tests.routing.ours import rows_routes, single_routes

TABLE = table.stored()


@pytest.fixture(params=CLIENTS, ids=str)
def client(request: pytest.FixtureRequest) -> Client:
    return cast("Client", request.param)


def test_the_table_has_every_key_and_every_client(client: Client) -> None:
    """A key without a line in the table would be compared with nothing."""
    assert TABLE[client].keys() == set(keys_of(client))
    assert {len(route) for route in TABLE[client].values()} == {len(PARTITIONS)}


def test_single_messages_go_where_the_official_client_sends_them(client: Client) -> None:
    """1.2.3: key by key, on 2 to 17 partitions, also beyond ASCII and for keys as bytes."""
    assert single_routes(TABLE[client], client.scheme) == TABLE[client]


def test_rows_go_where_the_official_client_sends_messages(client: Client, plain_batch: ModuleType) -> None:
    """1.2.3: the columnar way, compiled or not."""
    for codec in (compiled_batch, plain_batch):
        assert rows_routes(TABLE[client], client.scheme, codec) == TABLE[client]


@pytest.mark.parametrize("cell", ["python", "java", "go"])
def test_the_clients_that_are_here_still_do_what_the_table_says(
    cell: str, service: Service, request: pytest.FixtureRequest
) -> None:
    """A release of a client that routes otherwise shows here; on Apache Pulsar and here alike, as a client decides."""
    counts = (2, 7, 17)
    places = [PARTITIONS.index(count) for count in counts]
    topics = [f"routes-{cell}-{count}" for count in counts]
    for topic, count in zip(topics, counts, strict=True):
        service.create_partitioned(topic, count)
    for asked in CLIENTS:
        if asked.name == cell:
            expected = {key: [route[place] for place in places] for key, route in TABLE[asked].items()}
            assert _ask(asked, service.service_url, topics, request) == expected


def _ask(asked: Client, url: str, topics: list[str], request: pytest.FixtureRequest) -> Routes:
    if asked.name == "python":
        return python_routes(url, topics, TEXTS)
    driver: Driver = request.getfixturevalue(f"{asked.name}_driver")
    return driven_routes(driver, url, topics, keys_of(asked), asked.option)
