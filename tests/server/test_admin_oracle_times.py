# SPDX-License-Identifier: Apache-2.0
"""Producers whose clocks are wrong, on our broker and on an Apache Pulsar that stores its time with each entry."""

from __future__ import annotations

import uuid

import pytest

from broker_core.base.clock import SystemClock
from broker_core.base.names import TopicName
from broker_core.client import Client
from broker_core.client.admin import AdminApi
from broker_core.testing.running_broker import RunningBroker
from tests.apache_pulsar.start import ApachePulsar
from tests.server.oracle import TIMEOUT_S, Side
from tests.server.test_admin_names import act_until, backlogs

pytestmark = pytest.mark.pulsar

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS


@pytest.fixture(params=["ours", "apache-indexed"])
def side(request: pytest.FixtureRequest, broker: RunningBroker) -> Side:
    """One of the two brokers."""
    if request.param == "ours":
        return Side(broker.http_url, broker.service_url)
    pulsar: ApachePulsar = request.getfixturevalue("apache_pulsar_indexed")
    return Side(pulsar.http_url, pulsar.service_url)


def send_by_clock(topic: TopicName, service_url: str, ahead_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message of a producer whose clock is ahead of ours."""
    real = SystemClock.now_ms
    with monkeypatch.context() as patched, Client(service_url) as client:
        patched.setattr(SystemClock, "now_ms", lambda clock: real(clock) + ahead_ms)
        with client.create_producer(str(topic)) as producer:
            producer.send(b"x")


def test_a_wrong_clock_of_a_producer_changes_neither_ages_nor_seeks(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    """7.2, 1.4.6: all three are as old as they are stored, and there is nothing before or behind that time."""
    topic = TopicName.parse(f"public/default/times-{uuid.uuid4().hex[:8]}")
    with AdminApi(side.http_url, timeout_s=TIMEOUT_S) as api:
        api.create_topic(topic, 0)
        api.create_subscription(topic, "s", "earliest")
        for ahead_ms in (YEAR_MS, -2 * HOUR_MS, 0):
            send_by_clock(topic, side.service_url, ahead_ms, monkeypatch)
        now_ms = SystemClock().now_ms()
        for time_ms, unread in ((now_ms + HOUR_MS, 0), (now_ms - HOUR_MS, 3)):
            api.reset_to_time(topic, "s", time_ms)
            assert backlogs(api, topic) == {"s": unread}
        api.expire_messages(topic, "s", 3600)
        assert backlogs(api, topic) == {"s": 3}
        act_until(lambda: api.expire_messages(topic, "s", 1), lambda: backlogs(api, topic) == {"s": 0})
        assert backlogs(api, topic) == {"s": 0}
