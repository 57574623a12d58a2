# SPDX-License-Identifier: Apache-2.0
"""``pulsarish produce`` with a name, with access for itself alone, and with numbers that make a repetition harmless."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from tests.cli.conftest import Pulsarish


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that deduplicates."""
    settings = {"brokerDeduplicationEnabled": True}
    with RunningBroker(tmp_path_factory.mktemp("broker") / "data", settings) as running:
        yield running


def test_a_load_that_is_run_again_stores_nothing_twice(pulsarish: Pulsarish, topic: str) -> None:
    """1.8, 1.7.2: with a name and numbers from the start; what is new is added."""
    load = ("produce", topic, "--name", "loader", "--initial-sequence-id", "-1")
    first = pulsarish(*load, stdin=b"a\nb\n")
    again = pulsarish(*load, stdin=b"a\nb\nc\n")
    assert (first.returncode, again.returncode) == (0, 0)
    assert [line.startswith(b"-1:-1") for line in again.stdout.splitlines()] == [True, True, False]
    shown = pulsarish("consume", topic, "--exit", "-o", "raw")
    assert shown.stdout == b"a\nb\nc\n"


def test_exclusive_access(pulsarish: Pulsarish, broker: RunningBroker, topic: str) -> None:
    """1.7.4: refused beside another producer, unless that one is pushed out."""
    with RawClient(broker.service_url) as other:
        must_succeed(other.open_producer(topic))
        refused = pulsarish("produce", topic, "-m", "x", "--access-mode", "exclusive")
        assert refused.returncode != 0
        assert b"exclusive access" in refused.stderr
        done = pulsarish("produce", topic, "-m", "x", "--access-mode", "exclusive-with-fencing", "--name", "me")
        assert (done.returncode, done.stderr) == (0, b"")
