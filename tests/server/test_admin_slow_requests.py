# SPDX-License-Identifier: Apache-2.0
"""Admin requests that take their time: what others change meanwhile is neither undone nor overlooked."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
import pytest

from broker_core.base.settings import Settings
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.testing.sim_disk import SimDisk
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata
from tests.server.server_thread import ServerThread, stuck_disk


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
    with socket.create_connection((url.hostname, url.port), timeout=60) as connection:
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


@pytest.mark.parametrize("what", ["subscription/s/skip_all", "truncate"])
def test_a_partition_that_is_unloaded_meanwhile_is_not_left_out(what: str) -> None:
    """3.6.2: what is asked for all partitions is begun in all of them before anything is waited for."""
    topic, disk = "persistent://public/default/t", SimDisk()
    path = "/persistent/public/default/t"
    body = seal_entry(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString(), b"x")
    with ServerThread(disk, Settings()) as server, RawClient(server.service_url) as client:
        url = f"{server.http_url}/admin/v2"
        with httpx.Client(base_url=url, timeout=60) as http, ThreadPoolExecutor(2) as pool:
            assert http.put(f"{path}/partitions", content="2").status_code == 204
            assert http.put(f"{path}/subscription/s", content='"earliest"').status_code == 204
            for partition in range(2):
                must_succeed(client.open_producer(f"{topic}-partition-{partition}", partition))
                client.send_entry(partition, 0, body)
                assert client.next_command().type == BaseCommand.SEND_RECEIPT
            with stuck_disk(disk, "/cursors/") as begun:
                method = "DELETE" if what == "truncate" else "POST"
                slow = pool.submit(httpx.request, method, f"{url}{path}/{what}", timeout=60)
                assert begun.wait(60)
                unloaded = pool.submit(httpx.put, f"{url}{path}-partition-1/unload", timeout=60)
                assert client.next_command().type == BaseCommand.CLOSE_PRODUCER
                assert http.get(f"{path}-partition-1/stats").status_code == 200
            assert (slow.result().status_code, unloaded.result().status_code) == (204, 204)
            for partition in range(2):
                stats = http.get(f"{path}-partition-{partition}/stats").json()
                assert stats["subscriptions"]["s"]["msgBacklog"] == 0
