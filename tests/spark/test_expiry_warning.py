# SPDX-License-Identifier: Apache-2.0
"""A warning before the broker passes over unread messages: by the time to live, or by a backlog quota in time.

Owns: when it comes and what it says. What is told after they are gone is ``test_deleted_under_a_stream``'s.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from broker_core.base.clock import SystemClock
from broker_core.base.names import TopicName
from broker_core.client.admin import AdminApi
from pulsarish_spark import describe
from pulsarish_spark.connecting.connection import Address, open_admin
from pulsarish_spark.positions import expiry_watch
from pulsarish_spark.progress import LagProbe, total
from pulsarish_spark.viewing import expiry_policy
from pulsarish_spark.viewing.expiry_policy import POLICY_S, ExpiryPolicies, ExpiryPolicy, expiry_policy_of
from tests.spark.brokers import Broker, eventually, numbers
from tests.spark.conftest import Start

DAY_S = 86_400
QUOTA = {"message_age": {"limitSize": -1, "limitTime": 3600, "policy": "consumer_backlog_eviction"}}


class ManualClock(SystemClock):
    """Goes on by hand."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trigger waits for the admin REST, however busy the machine is."""
    monkeypatch.setattr(expiry_watch, "ANSWER_S", 120.0)


def in_force(cell: Broker, topic: str, policy: str, value: Any, wanted: ExpiryPolicy) -> None:
    """Set a policy of the topic; Apache Pulsar's are not in force at once."""
    with cell.control() as admin:
        name = TopicName.parse(topic)
        admin.set_policy(name, policy, value)
        eventually(lambda: expiry_policy_of(admin, name) == wanted, f"{policy} of {topic} is in force")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for each in caplog.records if "messages expire soon" in (text := each.getMessage())]


@contextmanager
def ahead(monkeypatch: pytest.MonkeyPatch, by_s: int) -> Iterator[None]:
    """The clock of this process is so far ahead: to a query what it reads is older, to a broker what it sends is of
    later."""
    real = SystemClock.now_ms
    with monkeypatch.context() as patched:
        patched.setattr(SystemClock, "now_ms", lambda clock: real(clock) + by_s * 1000)
        yield


def test_a_stream_is_told_before_its_position_is_passed(
    start: Start, cell: Broker, topic: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine tenths of the time are over; it is said once, with what is unread, though Spark asks again and again."""
    cell.create(topic, 0)
    in_force(cell, topic, "messageTTL", 10 * DAY_S, ExpiryPolicy(10 * DAY_S, "the time to live"))
    query = start(topic=topic, subscriptionName="s", maxOffsetsPerTrigger=2, **{"admin.url": cell.http_url})
    assert query.trigger() is None or query.drain() == []
    cell.send_one_by_one(topic, numbers(0, 8))
    with caplog.at_level(logging.WARNING), ahead(monkeypatch, 9 * DAY_S):
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
    in_force(cell, topic, "messageTTL", DAY_S, ExpiryPolicy(DAY_S, "the time to live"))
    cell.send_one_by_one(topic, numbers(0, 4))
    query = start(topic=topic, maxOffsetsPerTrigger=2, **{"admin.url": cell.http_url})
    with caplog.at_level(logging.WARNING):
        assert query.drain() == list(range(4))
    assert warnings(caplog) == []


def test_a_probe_and_a_description_tell_when_it_goes(start: Start, cell: Broker, topic: str) -> None:
    """The quota in time is the shorter limit; without an admin address it is not known, and nothing is guessed."""
    cell.create(topic, 0)
    in_force(cell, topic, "messageTTL", DAY_S, ExpiryPolicy(DAY_S, "the time to live"))
    in_force(cell, topic, "backlogQuota", QUOTA, ExpiryPolicy(3600, "the backlog quota in time"))
    cell.send_one_by_one(topic, numbers(0, 4))
    query = start(topic=topic, maxOffsetsPerTrigger=2)
    query.trigger()
    service: dict[str, Any] = {"service.url": cell.service_url}
    address: dict[str, Any] = {**service, "admin.url": cell.http_url}
    found = total(LagProbe(**address)(query.progress()))
    assert found.expires_s is not None
    assert found.seconds is not None
    assert 3600 - found.seconds == pytest.approx(found.expires_s, abs=10)
    assert total(LagProbe(**service)(query.progress())).expires_s is None
    options: dict[str, Any] = {"startingOffsets": "earliest", **address}
    notes = describe(topic, stream=True, **options).notes
    assert any(
        f"the backlog quota in time passes the start of persistent://public/default/{topic}[0]" in note
        for note in notes
    )


def test_who_does_not_answer_is_not_asked_for_each_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query of a thousand topics would be held up a thousand times; it is asked again a minute later."""
    asked: list[Address] = []
    monkeypatch.setattr(expiry_policy, "open_admin", asked.append)
    clock = ManualClock()
    broker = ExpiryPolicies(Address("pulsar://127.0.0.1:1"), clock)
    for number in range(5):
        assert [*broker.of_all([f"persistent://public/default/{number}"]).values()] == [None]
    assert len(asked) == 1
    clock.seconds += POLICY_S + 1
    broker.of_all(["persistent://public/default/0"])
    assert len(asked) == 2


def test_policies_of_many_topics_are_asked_over_a_few_connections(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two questions for each topic, and none again within the minute."""
    names = [str(TopicName.parse(broker.create(f"{topic}-{number}", 0))) for number in range(40)]
    opened: list[AdminApi | None] = []
    asked: list[str] = []
    policy = AdminApi.policy

    def noting_open(address: Address) -> AdminApi | None:
        opened.append(open_admin(address))
        return opened[-1]

    def noting_policy(api: AdminApi, of: Any, name: str, *, applied: bool = False) -> Any:
        asked.append(f"{name} of {of}")
        return policy(api, of, name, applied=applied)

    monkeypatch.setattr(expiry_policy, "open_admin", noting_open)
    monkeypatch.setattr(AdminApi, "policy", noting_policy)
    known = ExpiryPolicies(Address(broker.service_url, admin_url=broker.http_url), ManualClock())
    for _ in range(2):
        assert known.of_all(names) == dict.fromkeys(names, ExpiryPolicy(None))
    assert len(opened) == expiry_policy.CONNECTIONS_MAX
    assert len(asked) == len(set(asked)) == 2 * len(names)


def test_a_trigger_does_not_wait_for_the_admin_rest(
    start: Start, cell: Broker, topic: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked meanwhile, and a later trigger warns."""
    monkeypatch.setattr(expiry_watch, "ANSWER_S", 0.0)
    may_answer, answered = threading.Event(), threading.Event()

    def late(_admin: AdminApi, _topic: TopicName) -> ExpiryPolicy:
        assert may_answer.wait(120)
        answered.set()
        return ExpiryPolicy(10 * DAY_S, "the time to live")

    monkeypatch.setattr(expiry_policy, "expiry_policy_of", late)
    cell.send_one_by_one(topic, numbers(0, 8))
    query = start(topic=topic, subscriptionName="s", maxOffsetsPerTrigger=2, **{"admin.url": cell.http_url})
    with caplog.at_level(logging.WARNING), ahead(monkeypatch, 9 * DAY_S):
        assert query.trigger() == [0, 1]
        assert query.trigger() == [2, 3]
        assert query.trigger() == [4, 5]
        assert not answered.is_set()
        may_answer.set()
        monkeypatch.setattr(expiry_watch, "ANSWER_S", 120.0)
        assert answered.wait(120)
        eventually(lambda: "pulsarish-policies" not in {each.name for each in threading.enumerate()}, "it has answered")
        assert query.trigger() == [6, 7]
    assert len(warnings(caplog)) == 1


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
