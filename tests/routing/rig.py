# SPDX-License-Identifier: Apache-2.0
"""``make routing``: the routes of the official clients, those of ours and of the stored table, and where they differ.

Each client that is here sends all keys to topics of 2 to 17 partitions on our broker. ``--write`` stores what they did.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import urllib.request
from pathlib import Path

from broker_core.testing.running_broker import RunningBroker
from tests.apache_pulsar.start import UnavailableError
from tests.behaviour.go_client import start_go
from tests.behaviour.java_client import start_java
from tests.routing import table
from tests.routing.clients import CLIENTS, Client, Routes, driven_routes, keys_of, python_routes, versions
from tests.routing.keys import PARTITIONS, TEXTS
from tests.routing.ours import rows_routes, single_routes


def make_topics(http_url: str, mark: str) -> list[str]:
    """A topic for each number of partitions."""
    for partitions in PARTITIONS:
        request = urllib.request.Request(
            f"{http_url}/admin/v2/persistent/public/default/{mark}-{partitions}/partitions",
            method="PUT",
            data=str(partitions).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=120).close()
    return [f"{mark}-{partitions}" for partitions in PARTITIONS]


def routes_of(client: Client, folder: Path, url: str, topics: list[str]) -> Routes:
    """Where ``client`` sends the keys that it can have; UnavailableError where it is not here."""
    if client.name == "python":
        return python_routes(url, topics, TEXTS)
    driver = (start_java if client.name == "java" else start_go)(folder / f"{client}-log")
    try:
        return driven_routes(driver, url, topics, keys_of(client), client.option)
    finally:
        driver.end()


def ask_all(folder: Path) -> dict[Client, Routes | UnavailableError]:
    """All clients, one after the other."""
    found: dict[Client, Routes | UnavailableError] = {}
    with RunningBroker(folder / "data", is_open=True) as broker:
        topics = make_topics(broker.http_url, "routes")
        for client in CLIENTS:
            try:
                found[client] = routes_of(client, folder, broker.service_url, topics)
            except UnavailableError as missing:
                found[client] = missing
    return found


def differences(routes: Routes, client: Client) -> int:
    """How many (key, number of partitions) go elsewhere, as a single message or as a row."""
    ours = (single_routes(routes, client.scheme), rows_routes(routes, client.scheme))
    return sum(
        any(mine[key][at] != partition for mine in ours)
        for key, route in routes.items()
        for at, partition in enumerate(route)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="store what the clients did as the table")
    choice = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = ask_all(Path(folder))
    here = {client: routes for client, routes in found.items() if not isinstance(routes, UnavailableError)}
    if choice.write:
        if len(here) < len(CLIENTS):
            missing = {str(each) for each in found.values() if isinstance(each, UnavailableError)}
            sys.stderr.write(f"the table is not written: {', '.join(missing)}\n")
            return 1
        table.store(here, versions())
    kept = table.stored()
    wrong = 0
    sys.stdout.write(f"{'client':<22}{'keys':>6}{'routes':>8}{'differ here':>13}{'differ in the table':>21}\n")
    for client in CLIENTS:
        routes = here.get(client, kept[client])
        from_ours = differences(routes, client)
        from_table = sum(kept[client].get(key) != route for key, route in routes.items())
        wrong += from_ours + from_table
        note = "" if client in here else f"  (the table only: {found[client]})"
        count = len(routes) * len(PARTITIONS)
        sys.stdout.write(f"{client!s:<22}{len(routes):>6}{count:>8}{from_ours:>13}{from_table:>21}{note}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
