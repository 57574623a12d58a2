# SPDX-License-Identifier: Apache-2.0
"""A warning before the broker passes over unread messages: by the time to live, or by a backlog quota in time.

Owns: when it comes and what it says. What is told after they are gone is ``test_deleted_under_a_stream``'s.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from broker_core.base.clock import SystemClock
from broker_core.base.names import TopicName
from pulsarish_spark import describe
from pulsarish_spark.connecting.connection import Address
from pulsarish_spark.progress import LagProbe, total
from pulsarish_spark.viewing import patience
from pulsarish_spark.viewing.patience import POLICY_S, BrokerPatience, Patience, patience_of
from tests.spark.brokers import Broker, eventually, numbers
from tests.spark.conftest import Start

DAY_S = 86_400
QUOTA = {"message_age": {"limitSize": -1, "limitTime": 3600, "policy": "consumer_backlog_eviction"}}


class ManualClock(SystemClock):
    """Goes on by hand."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def in_force(cell: Broker, topic: str, policy: str, value: Any, wanted: Patience) -> None:
    """Set a policy of the topic; Apache Pulsar's are not in force at once."""
    with cell.control() as admin:
        name = TopicName.parse(topic)
        admin.set_policy(name, policy, value)
        eventually(lambda: patience_of(admin, name) == wanted, f"{policy} of {topic} is in force")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for each in caplog.records if "messages expire soon" in (text := each.getMessage())]


def send_old(cell: Broker, topic: str, count: int, age_s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages whose producer published them so long ago, each in an entry of its own."""
    real = SystemClock.now_ms
    with monkeypatch.context() as patched:
        patched.setattr(SystemClock, "now_ms", lambda clock: real(clock) - age_s * 1000)
        cell.send_one_by_one(topic, numbers(0, count))


def test_a_stream_is_told_before_its_position_is_passed(
    start: Start, cell: Broker, topic: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine tenths of the time are over; it is said once, with what is unread, though Spark asks again and again."""
    cell.create(topic, 0)
    in_force(cell, topic, "messageTTL", 10 * DAY_S, Patience(10 * DAY_S, "the time to live"))
    query = start(topic=topic, subscriptionName="s", maxOffsetsPerTrigger=2, **{"admin.url": cell.http_url})
    assert query.trigger() is None or query.drain() == []
    send_old(cell, topic, 8, 9 * DAY_S, monkeypatch)
    with caplog.at_level(logging.WARNING):
        assert query.drain() == list(range(8))
    (warning,) = warnings(caplog)
    assert "the time to live passes the position" in warning
    assert f"{topic}[0] in about 24 h: " in warning
    assert f"8 {'messages' if cell.tells_indexes else 'entries'} are unread" in warning


def test_what_is_young_is_not_warned_of(
    start: Start, cell: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a query that keeps up nothing is said."""
    cell.create(topic, 0)
    in_force(cell, topic, "messageTTL", DAY_S, Patience(DAY_S, "the time to live"))
    cell.send_one_by_one(topic, numbers(0, 4))
    query = start(topic=topic, maxOffsetsPerTrigger=2, **{"admin.url": cell.http_url})
    with caplog.at_level(logging.WARNING):
        assert query.drain() == list(range(4))
    assert warnings(caplog) == []


def test_a_probe_and_a_description_tell_when_it_goes(start: Start, cell: Broker, topic: str) -> None:
    """The quota in time is the shorter limit; without an admin address it is not known, and nothing is guessed."""
    cell.create(topic, 0)
    in_force(cell, topic, "messageTTL", DAY_S, Patience(DAY_S, "the time to live"))
    in_force(cell, topic, "backlogQuota", QUOTA, Patience(3600, "the backlog quota in time"))
    cell.send_one_by_one(topic, numbers(0, 4))
    query = start(topic=topic, maxOffsetsPerTrigger=2)
    query.trigger()
    address = {"service.url": cell.service_url, "admin.url": cell.http_url}
    found = total(LagProbe(address)(query.progress()))
    assert found.expires_s is not None
    assert found.seconds is not None
    assert 3600 - found.seconds == pytest.approx(found.expires_s, abs=10)
    assert total(LagProbe({"service.url": cell.service_url})(query.progress())).expires_s is None
    options: dict[str, Any] = {"startingOffsets": "earliest", **address}
    notes = describe(topic, stream=True, **options).notes
    assert any(
        f"the backlog quota in time passes the start of persistent://public/default/{topic}[0]" in note
        for note in notes
    )


def test_who_does_not_answer_is_not_asked_for_each_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query of a thousand topics would be held up a thousand times; it is asked again a minute later."""
    asked: list[Address] = []
    monkeypatch.setattr(patience, "open_admin", asked.append)
    clock = ManualClock()
    broker = BrokerPatience(Address("pulsar://127.0.0.1:1"), clock)
    assert [broker.of(f"persistent://public/default/{number}") for number in range(5)] == [None] * 5
    assert len(asked) == 1
    clock.seconds += POLICY_S + 1
    broker.of("persistent://public/default/0")
    assert len(asked) == 2


def test_what_is_not_known_is_said_once(
    start: Start, cell: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither where no address is given, nor where nobody answers there, does a query end."""
    cell.send_one_by_one(topic, numbers(0, 6))
    with caplog.at_level(logging.INFO):
        query = start(topic=topic, maxOffsetsPerTrigger=2)
        assert query.drain() == list(range(6))
        query.restart(**{"admin.url": "http://127.0.0.1:1"})
        cell.send_one_by_one(topic, numbers(6, 8))
        assert query.drain() == [6, 7]
    told = [text for each in caplog.records if "not known when unread" in (text := each.getMessage())]
    assert len(told) == 2
    assert "admin.url does not say where to ask" in told[0]
    assert "no broker answers at http://127.0.0.1:1" in told[1]
