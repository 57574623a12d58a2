# SPDX-License-Identifier: Apache-2.0
"""``pulsarish consume --type key_shared``."""

from __future__ import annotations

import json

import pytest

from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from tests.cli.conftest import Pulsarish
from tests.client.helpers import eventually


def test_consuming_by_key(pulsarish: Pulsarish, topic: str) -> None:
    """2.6, 2.9 A lone Key_Shared consumer gets all keys, in order."""
    pulsarish("produce", topic, "-m", "one", "-m", "two", "-k", "k")
    pulsarish("produce", topic, "-m", "three")
    shown = pulsarish("consume", topic, "-s", "s", "--type", "key_shared", "-n", "3", "-o", "raw")
    assert (shown.returncode, shown.stdout) == (0, b"one\ntwo\nthree\n")


def test_ranges_of_slots(pulsarish: Pulsarish, topic: str) -> None:
    """2.8.1, 2.2.4 key-1 has slot 5536 and key-0 63679: who brings the lower half gets the one, the other waits."""
    for key in ("key-0", "key-1"):
        pulsarish("produce", topic, "-m", f"of {key}", "-k", key)
    pulsarish("sub", "create", topic, "s")
    pulsarish("sub", "reset", topic, "s", "--to", "earliest", "-y")
    shown = [
        pulsarish("consume", topic, "-s", "s", "-t", "key_shared", "--key-range", part, "-n", "1", "-o", "raw").stdout
        for part in ("0-32767", "32768-65535")
    ]
    assert shown == [b"of key-1\n", b"of key-0\n"]
    alone = pulsarish("consume", topic, "-s", "x", "--key-range", "0-9999", "--key-range", "60000-60001", "-n", "1")
    assert json.loads(alone.stdout)["key"] == "key-1"


def test_ordering_keys_and_batches_of_one_key(broker: RunningBroker, pulsarish: Pulsarish, topic: str) -> None:
    """1.6, 2.10.2 One entry for each key; the ordering key is that of every message."""
    sent = 0

    def are_together() -> bool:
        nonlocal sent
        done = pulsarish("produce", topic, "--batch-by-key", "--split-key", ":", stdin=b"a:1\nb:2\na:3\n")
        entries = [line.rsplit(b":", 1)[0] for line in done.stdout.split()]
        assert entries[0] != entries[1]
        sent += len(entries)
        return entries[0] == entries[2]

    eventually(are_together, "three lines are read before the first batch has waited long enough")
    pulsarish("produce", topic, "-m", "4", "-k", "k", "--ordering-key", "o")
    with Client(broker.service_url) as client, client.create_reader(topic) as reader:
        assert [reader.read_next(60).ordering_key for _ in range(sent + 1)] == [*[None] * sent, b"o"]


def test_a_consumer_has_a_name_and_a_priority(broker: RunningBroker, pulsarish: Pulsarish, topic: str) -> None:
    """2.1.6, 2.3.1 Shown in the statistics; of Failover consumers the one of the better priority is served."""
    pulsarish("produce", topic, "-m", "one")
    with Client(broker.service_url) as client:
        client.subscribe(topic, "s", type="failover", initial_position="earliest", priority_level=3)
        options = ("-s", "s", "-t", "failover", "--name", "b", "--priority", "2")
        assert pulsarish("consume", topic, *options, "-n", "1", "-o", "raw").stdout == b"one\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--name", "n"), b"--name needs a subscription"),
        (("--priority", "0"), b"--priority needs a subscription"),
        (("--key-range", "0-1"), b"--key-range needs a subscription"),
        (("-s", "s", "-t", "key_shared", "--key-range", "1"), b"is no range"),
        (("-s", "s", "-t", "key_shared", "--key-range", "5-1"), b"FIRST not above LAST, both from 0 to 65535"),
        (("-s", "s", "-t", "key_shared", "--key-range", "0-70000"), b"0-70000 is no range of slots"),
        (("-s", "s", "-t", "shared", "--key-range", "0-1"), b"--key-range has no effect on --type shared"),
        (("-s", "s", "-t", "key_shared", "--priority", "3"), b"--priority has no effect on --type key_shared"),
        (("-s", "s", "--priority", "3"), b"use --type shared or failover"),
        (("-s", "s", "--name", ""), b"--name is empty"),
    ],
)
def test_options_without_effect_are_refused(
    pulsarish: Pulsarish, topic: str, arguments: tuple[str, ...], said: bytes
) -> None:
    """2.8.2 Said before anything was asked of the broker, with exit code 2."""
    pulsarish("topic", "create", topic)
    done = pulsarish("consume", topic, *arguments)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
