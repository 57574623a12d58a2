# SPDX-License-Identifier: Apache-2.0
"""What clients of ours experience while the disk of the broker is nearly full: sends wait, all else goes on."""

from __future__ import annotations

import pytest

from broker_core.base.errors import OperationTimeoutError
from broker_core.base.names import TopicName
from broker_core.base.settings import Settings
from broker_core.client import Client
from broker_core.client.admin import AdminApi
from broker_core.storage.disk import Space
from broker_core.testing.sim_disk import SimDisk
from tests.client.helpers import eventually
from tests.server.server_thread import ServerThread

NAME = TopicName.parse("persistent://public/default/t")
TOPIC = str(NAME)
MIB = 1024 * 1024
ROOM, NEARLY_FULL = Space(50_000 * MIB, 100_000 * MIB), Space(200 * MIB, 100_000 * MIB)
SENDS = 20


def wait_until_sent_away(http_url: str) -> None:
    with AdminApi(http_url, timeout_s=20) as admin:
        eventually(lambda: not admin.topic_stats(NAME, 0)["publishers"], "the producers are sent away")


def test_sends_wait_for_room_while_consumers_go_on() -> None:
    """Reliability row 11: what waits is stored in order once there is room; what is there is read and acknowledged."""
    disk = SimDisk()
    disk.space_left = ROOM
    with (
        ServerThread(disk, Settings()) as server,
        Client(server.service_url) as client,
        client.subscribe(TOPIC, "s") as consumer,
    ):
        producer = client.create_producer(TOPIC, send_timeout_s=60)
        for number in range(SENDS):
            producer.send(b"%d" % number)
        disk.space_left = NEARLY_FULL
        wait_until_sent_away(server.http_url)
        answered: list[object] = []
        for number in range(SENDS, 2 * SENDS):
            producer.send_async(b"%d" % number, callback=lambda sent, failure: answered.append(failure))
        with (
            pytest.raises(OperationTimeoutError, match=r"200\.0 MiB left"),
            Client(server.service_url, operation_timeout_s=6) as impatient,
        ):
            impatient.create_producer(TOPIC)
        for number in range(SENDS):
            message = consumer.receive(20)
            assert message.value == b"%d" % number
            consumer.acknowledge(message)
        with client.subscribe(TOPIC, "late", initial_position="earliest") as late:
            assert late.receive(20).value == b"0"
        assert answered == []
        disk.space_left = ROOM
        producer.flush()
        assert answered == [None] * SENDS
        assert [consumer.receive(20).value for _ in range(SENDS)] == [b"%d" % n for n in range(SENDS, 2 * SENDS)]
        assert not server.failures
