# SPDX-License-Identifier: Apache-2.0
"""Admin requests that take their time: what others change meanwhile is neither undone nor overlooked."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx

from broker_core.testing.running_broker import RunningBroker


class SlowRequest:
    """A request whose handler waits for the body."""

    def __init__(self, connection: socket.socket, body: bytes) -> None:
        self._connection = connection
        self._body = body

    def finish(self) -> int:
        """Send the body; the status of the answer."""
        self._connection.sendall(self._body)
        return int(_head(self._connection).split()[1])


@contextmanager
def begun(broker: RunningBroker, method: str, path: str, body: object) -> Iterator[SlowRequest]:
    """The head of a request is sent, and the broker has asked for the body: its handler is in the middle of it."""
    url, content = urlsplit(broker.http_url), json.dumps(body).encode()
    assert url.hostname
    assert url.port
    head = (
        f"{method} /admin/v2{path} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: {len(content)}\r\n"
        "Expect: 100-continue\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection((url.hostname, url.port), timeout=20) as connection:
        connection.sendall(head.encode())
        assert _head(connection).split()[1] == "100"
        yield SlowRequest(connection, content)


def _head(connection: socket.socket) -> str:
    """The next head of an answer."""
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        assert byte, received
        received += byte
    return received.decode()


def test_two_quotas_that_are_set_at_the_same_time_are_both_set(
    broker: RunningBroker, http: httpx.Client, path: str
) -> None:
    """7.3: the body of the one comes after the other was set."""
    http.put(path)
    quota = {"limitSize": 1000, "limitTime": 60, "policy": "producer_exception"}
    with begun(broker, "POST", f"{path}/backlogQuota", quota) as slow:
        assert http.post(f"{path}/backlogQuota?backlogQuotaType=message_age", json=quota).status_code == 204
        assert slow.finish() == 204
    assert set(http.get(f"{path}/backlogQuotaMap").json()) == {"destination_storage", "message_age"}


def test_a_topic_that_is_deleted_before_the_body_comes_is_not_found(
    broker: RunningBroker, http: httpx.Client, path: str
) -> None:
    """What is answered is what is true then."""
    http.put(path)
    message_id = {"ledgerId": -1, "entryId": -1}
    with begun(broker, "PUT", f"{path}/backlogSize", message_id) as slow:
        assert http.delete(path).status_code == 204
        assert slow.finish() == 404
