# SPDX-License-Identifier: Apache-2.0
"""What one HTTP client may send, and what an administrator may ask for, to keep a broker from everybody else.

``size`` scales the number of things; 1 is all.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from contextlib import ExitStack
from typing import Final
from urllib.parse import urlsplit

from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.flood.common import (
    LONG_S,
    Attack,
    blast,
    command_of,
    connect,
    connect_http,
    frames_of,
    listed_in,
    subscribing,
)
from tests.flood.target import Target

HTTP_ATTACKS: Final[dict[str, Attack]] = {}
attack = listed_in(HTTP_ATTACKS)


def _raw_http(target: Target) -> socket.socket:
    parts = urlsplit(target.http_url)
    return socket.create_connection((parts.hostname, parts.port), timeout=LONG_S)


def _http_blast(target: Target, content: bytes) -> None:
    with _raw_http(target) as connection, contextlib.suppress(OSError):
        threading.Thread(target=_sendall, args=(connection, content), daemon=True).start()
        connection.settimeout(2)
        while connection.recv(65536):
            pass


def _sendall(connection: socket.socket, content: bytes) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(content)


_HEAD: Final = b"POST /admin/v2/persistent/public/default/x/partitions HTTP/1.1\r\nHost: localhost\r\n"


@attack
def http_in_odd_forms(target: Target, size: float) -> None:
    chunks = b"1\r\n1\r\n" * int(100_000 * size)
    for content in (
        _HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n",
        _HEAD + b"x: y\r\n" * 100_000 + b"\r\n",
        _HEAD + b"x: " + b"y" * 10_000_000 + b"\r\n\r\n",
        b"GET /admin/v2/clusters HTTP/1.1\r\nHost: localhost\r\n\r\n" * int(5_000 * size),
        b"\x00\xff" * 500_000,
        _HEAD + b"Content-Length: 200000\r\n\r\n" + b"[" * 200_000,
        _HEAD.replace(b"x/partitions", b"x" * 5000) + b"Content-Length: 1\r\n\r\n4",
    ):
        _http_blast(target, content)
    with connect_http(target) as http:
        nested = "[" * 100_000 + "]" * 100_000
        http.post("/namespaces/public/default/retention", content=nested)
        http.post("/namespaces/public/default/properties", content=json.dumps({str(n): "v" * 10 for n in range(8000)}))


@attack
def http_that_drips(target: Target, size: float) -> None:
    with ExitStack() as stack:
        dripping = [stack.enter_context(_raw_http(target)) for _ in range(127)]
        for _ in range(int(20 * size) or 2):
            for each in dripping:
                with contextlib.suppress(OSError):
                    each.sendall(b"G")
            with connect_http(target) as http:
                http.get("/clusters").raise_for_status()
            time.sleep(0.2)


@attack
def stats_in_a_loop(target: Target, size: float) -> None:
    count = int(1_000 * size)
    with connect(target) as client:
        blast(client, frames_of(subscribing("stats", number, name=f"s{number % 50}") for number in range(count)), count)
        with connect_http(target) as http:
            for _ in range(int(50 * size) or 3):
                http.get("/persistent/public/default/stats/stats").raise_for_status()
                http.get("/persistent/public/default/stats/internalStats").raise_for_status()


@attack
def partitions_made_and_deleted(target: Target, size: float) -> None:
    count = int(10_000 * size)
    with connect_http(target) as http:
        http.put("/persistent/public/default/parts/partitions", json=count).raise_for_status()
        with connect(target) as client:
            commands = [
                command_of(
                    BaseCommand.PRODUCER, topic=f"parts-partition-{number}", producer_id=number, request_id=number
                )
                for number in range(count)
            ]
            blast(client, frames_of(commands), count)
            http.get("/persistent/public/default/parts/partitioned-stats?perPartition=true").raise_for_status()
        http.delete("/persistent/public/default/parts/partitions?force=true").raise_for_status()


@attack
def administration_of_10_000_partitions(target: Target, size: float) -> None:
    """Each request about all partitions of a topic, one after the other."""
    topic = "/persistent/public/default/many"
    of_s = f"{topic}/subscription/s"
    count = int(10_000 * size)
    with connect_http(target) as http:
        http.put(f"{topic}/partitions", json=count // 2).raise_for_status()
        http.put(of_s, json="earliest").raise_for_status()
        http.post(f"{topic}/partitions", json=count).raise_for_status()
        for path in (
            f"{topic}/createMissedPartitions",
            f"{of_s}/skip_all",
            f"{of_s}/expireMessages/1",
            f"{topic}/all_subscription/expireMessages/1",
            f"{of_s}/resetcursor/1",
            f"{topic}/trim",
            f"{topic}/terminate/partitions",
        ):
            http.post(path).raise_for_status()
        http.put(f"{of_s}/properties", json={"a": "b"}).raise_for_status()
        for path in (
            f"{topic}/subscriptions",
            f"{topic}/internal-info",
            f"{topic}/partitioned-internalStats",
            f"{of_s}/properties",
        ):
            http.get(path).raise_for_status()
        http.delete(f"{topic}/truncate").raise_for_status()
        http.delete(of_s).raise_for_status()
        http.put(f"{topic}/unload").raise_for_status()
        http.delete(f"{topic}/partitions").raise_for_status()


@attack
def partitions_told_to_watches(target: Target, size: float) -> None:
    count = int(10_000 * size)
    with connect_http(target) as http, connect(target) as client:
        watches = [
            command_of(
                BaseCommand.WATCH_TOPIC_LIST,
                namespace="public/default",
                topics_pattern="public/default/told.*",
                watcher_id=number,
                request_id=number,
            )
            for number in range(int(50 * size) or 2)
        ]
        blast(client, frames_of(watches), len(watches))
        http.put("/persistent/public/default/told/partitions", json=count).raise_for_status()
        client.skip_frames(len(watches))
        http.delete("/persistent/public/default/told/partitions").raise_for_status()
        client.skip_frames(len(watches))
