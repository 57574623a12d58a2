# SPDX-License-Identifier: Apache-2.0
"""Points in time and spans on the command line are written as in the options of Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from broker_core.base.clock import SystemClock
from broker_core.cli.parameter_types import time_if_one
from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from tests.cli.conftest import Pulsarish

HOUR_MS = 3_600_000


def _around(broker: RunningBroker, topic: str, partitions: int) -> str:
    """Messages before and after the local time without a zone that is returned as text."""
    clock = SystemClock()
    with Client(broker.service_url) as client, client.create_producer(topic, batching_enabled=False) as producer:
        for number in range(max(partitions, 1)):
            producer.send(f"before {number}", key=str(number))
        before_ms = clock.now_ms()
        while clock.now_ms() <= before_ms:
            pass
        cut_ms = clock.now_ms()
        for number in range(max(partitions, 1)):
            producer.send(f"after {number}", key=str(number))
    return datetime.fromtimestamp(cut_ms / 1000).isoformat()  # noqa: DTZ006 # local, as people write it


@pytest.mark.parametrize("partitions", ["0", "3"])
@pytest.mark.parametrize("subscription", [(), ("-s", "s")])
def test_consuming_begins_at_a_time(
    broker: RunningBroker, pulsarish: Pulsarish, topic: str, partitions: str, subscription: tuple[str, ...]
) -> None:
    """A local time, one with a zone, and one before now; with a subscription only where that is new."""
    pulsarish("topic", "create", topic, "-p", partitions)
    cut = _around(broker, topic, int(partitions))
    for text in (cut, datetime.fromisoformat(cut).astimezone(UTC).isoformat()):
        name = ("-s", f"s{text}") if subscription else ()
        shown = pulsarish("consume", topic, "--exit", "-o", "raw", "--from", text, *name)
        assert (shown.returncode, b"before" in shown.stdout, b"after" in shown.stdout) == (0, False, True), shown
    shown = pulsarish("consume", topic, "--exit", "-o", "raw", "--from", "-1h", *subscription)
    assert (b"before" in shown.stdout, b"after" in shown.stdout) == (True, True)
    if subscription:
        again = pulsarish("consume", topic, "--exit", "-o", "raw", "--from", "-1h", *subscription)
        assert (again.returncode, again.stdout) == (0, b"")


def test_a_subscription_is_made_at_and_moved_to_a_time(broker: RunningBroker, pulsarish: Pulsarish, topic: str) -> None:
    """By the word, by the clock, and so long before now."""
    cut = _around(broker, topic, 0)
    assert pulsarish("sub", "create", topic, "s", "--from", cut).returncode == 0
    for to, seen in ((None, {b"after 0"}), ("-1h", {b"before 0", b"after 0"}), (cut, {b"after 0"})):
        if to is not None:
            assert pulsarish("sub", "reset", topic, "s", "--to", to, "-y").returncode == 0
        shown = pulsarish("consume", topic, "-s", "s", "--exit", "-o", "raw").stdout
        assert set(shown.splitlines()) == seen


def test_spans_may_have_a_unit(pulsarish: Pulsarish, topic: str) -> None:
    """A number alone is in seconds, as the help says."""
    pulsarish("produce", topic, "-m", "x", "--timeout", "2m", "--deliver-after", "1ms", "--event-time", "-1h")
    pulsarish("sub", "create", topic, "s", "--from", "earliest")
    row = json.loads(pulsarish("consume", topic, "--exit", "-o", "jsonl").stdout)
    assert HOUR_MS <= row["publishTime"] - row["eventTime"] + 60_000 < HOUR_MS + 120_000
    assert pulsarish("sub", "expire", topic, "s", "--older-than", "3d", "-y").returncode == 0
    assert pulsarish("topic", "list", "--timeout", "1x").returncode == 2


@pytest.mark.parametrize(
    "command",
    [
        ("consume", "t", "--from"),
        ("sub", "create", "t", "s", "--from"),
        ("sub", "reset", "t", "s", "-y", "--to"),
        ("produce", "t", "-m", "x", "--event-time"),
        ("produce", "t", "-m", "x", "--deliver-at"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("text", ["-1", "1h", "yesterday", "2026-13-01", "2026-01-01T25:00", "-1fortnight"])
def test_what_is_no_time_is_refused_with_the_forms_that_there_are(
    pulsarish: Pulsarish, command: tuple[str, ...], text: str
) -> None:
    """Code 2; a number alone could be a time, an index or an age."""
    done = pulsarish(*command, text)
    if command[-1] == "--event-time" and text == "-1":
        assert done.returncode == 0  # a millisecond before 1970
        return
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_time_without_a_zone_is_local_however_far_away() -> None:
    """The ends of the calendar have no local time."""
    now = datetime.now(UTC).replace(microsecond=0)
    written = now.astimezone().replace(tzinfo=None).isoformat()
    assert time_if_one("--from", written) == round(now.timestamp() * 1000)
    assert time_if_one("--from", "9999-12-31T23:59:59") is not None
    assert time_if_one("--from", "0001-01-01") is not None
    ago = time_if_one("--from", "-90m")
    assert ago is not None
    assert abs(ago - round((datetime.now(UTC) - timedelta(minutes=90)).timestamp() * 1000)) < 60_000
