# SPDX-License-Identifier: Apache-2.0
"""``pulsarish topic`` and ``pulsarish sub`` against a real broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker_core.base.names import TopicName
from broker_core.client import Client
from broker_core.client.admin import AdminApi
from broker_core.testing.running_broker import RunningBroker
from tests.cli.conftest import Pulsarish


def _objects(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def _listed(pulsarish: Pulsarish, topic: str) -> dict[str, Any] | None:
    rows = _objects(pulsarish("topic", "list").stdout)
    return next((row for row in rows if row["topic"].endswith(f"/{topic}")), None)


def test_a_topic_that_goes_while_all_are_listed_is_left_out(
    pulsarish: Pulsarish, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listing takes a question for each, and others may delete one of them meanwhile."""
    listed = AdminApi.topics
    gone = {TopicName.parse("gone-meanwhile"): 0}
    monkeypatch.setattr(AdminApi, "topics", lambda admin, namespace: gone | listed(admin, namespace))
    pulsarish("topic", "create", topic)
    done = pulsarish("topic", "list")
    assert (done.returncode, _listed(pulsarish, "gone-meanwhile")) == (0, None)
    assert _listed(pulsarish, topic)


def test_a_topic_from_its_creation_to_its_end(pulsarish: Pulsarish, topic: str) -> None:
    """Create, list, statistics, delete; with partitions the numbers are sums."""
    done = pulsarish("topic", "create", topic, "-p", "2")
    assert _objects(done.stdout) == [{"topic": f"persistent://public/default/{topic}", "partitions": 2}]
    pulsarish("produce", topic, "--split-key", ":", stdin=b"".join(b"%d:v\n" % i for i in range(10)))
    pulsarish("consume", topic, "-s", "s", "-n", "1")
    row = _listed(pulsarish, topic)
    assert row
    assert (row["partitions"], row["msgInCounter"], row["subscriptions"]) == (2, 10, ["s"])
    assert row["storageSize"] > 0
    assert row["msgBacklog"] > 0
    pulsarish("consume", topic, "-s", "s", "-n", "9")
    assert (_listed(pulsarish, topic) or {})["msgBacklog"] == 0
    stats = json.loads(pulsarish("topic", "stats", topic, "-o", "json").stdout)
    assert (stats["msgInCounter"], len(stats["partitions"])) == (10, 2)
    assert pulsarish("topic", "delete", topic, "--yes", "--force").returncode == 0
    assert _listed(pulsarish, topic) is None


def test_a_topic_that_exists_is_not_made_again(pulsarish: Pulsarish, topic: str) -> None:
    """Exit code 9 with the broker's reason."""
    assert pulsarish("topic", "create", topic).returncode == 0
    again = pulsarish("topic", "create", topic)
    assert (again.returncode, b"exists" in again.stderr) == (9, True)


def test_names_may_be_full_and_strange(pulsarish: Pulsarish, topic: str) -> None:
    """Everything that Pulsar allows in a topic name survives the way through a URL."""
    name = f"persistent://public/default/{topic} ü%2F?#&+"
    assert pulsarish("topic", "create", name).returncode == 0
    assert json.loads(pulsarish("topic", "stats", name, "-o", "json").stdout)["msgInCounter"] == 0
    assert pulsarish("produce", name, "-m", "x").returncode == 0
    assert pulsarish("consume", name, "--exit", "-o", "raw").stdout == b"x\n"
    assert pulsarish("topic", "delete", name, "-y").returncode == 0


def test_nothing_is_deleted_without_being_asked_for(pulsarish: Pulsarish, topic: str) -> None:
    """Without a terminal --yes is needed; --dry-run says what would go."""
    pulsarish("produce", topic, "-m", "kept")
    refused = pulsarish("topic", "delete", topic)
    assert (refused.returncode, b"--yes" in refused.stderr) == (2, True)
    tried = pulsarish("topic", "delete", topic, "--dry-run")
    assert (tried.returncode, b"would delete" in tried.stderr) == (0, True)
    assert _listed(pulsarish, topic)


def test_whoever_deletes_is_told_what_is_stored(pulsarish: Pulsarish, topic: str) -> None:
    """Not a counter that begins anew with each load: it said 0 messages of a full topic."""
    pulsarish("produce", topic, "-m", "x" * 3000)
    pulsarish("topic", "unload", topic)
    tried = pulsarish("topic", "delete", topic, "--dry-run")
    assert (tried.returncode, b" KiB of messages and 0 subscriptions" in tried.stderr) == (0, True), tried.stderr
    pulsarish("sub", "create", topic, "s")
    assert b"and 1 subscription\n" in pulsarish("topic", "delete", topic, "--dry-run").stderr


def test_a_question_that_nobody_can_answer_stays_in_one_piece(pulsarish: Pulsarish, topic: str) -> None:
    """What, why, what to do."""
    pulsarish("topic", "create", topic)
    pulsarish("sub", "create", topic, "s")
    what, why, hint = pulsarish("sub", "clear", topic, "s").stderr.decode().splitlines()
    assert what.endswith("/" + topic + ", clear all of 0 entries")
    assert (why, hint) == ("nobody can be asked, as stdin is not a terminal", "add --yes")


def test_a_misspelt_topic_is_suggested(pulsarish: Pulsarish, topic: str) -> None:
    """Exit code 3 and the nearest name, for looking, deleting and consuming; and none is created by looking."""
    pulsarish("topic", "create", topic)
    for command in (("topic", "stats"), ("topic", "delete", "-y"), ("sub", "list"), ("consume", "--exit")):
        done = pulsarish(*command, f"{topic}x")
        assert (done.returncode, done.stdout) == (3, b""), command
        lines = done.stderr.decode().splitlines()
        assert lines[0] == f'error: topic "persistent://public/default/{topic}x" does not exist'
        assert f'did you mean "{topic}"?' in lines[2]
    assert _listed(pulsarish, f"{topic}x") is None


def test_a_namespace_that_does_not_exist_is_not_found(pulsarish: Pulsarish) -> None:
    """Exit code 3."""
    assert pulsarish("topic", "list", "no/where").returncode == 3


def test_what_to_do_next_names_the_namespace(pulsarish: Pulsarish) -> None:
    """A short name would lead to public/default."""
    pulsarish("namespace", "create", "public/quiet")
    empty = pulsarish("topic", "list", "public/quiet", "-o", "table")
    assert b"pulsarish produce persistent://public/quiet/hello -m hi" in empty.stderr
    pulsarish("topic", "create", "public/quiet/orders")
    lost = pulsarish("sub", "stats", "public/quiet/orders", "s")
    assert (lost.returncode, b"sub list persistent://public/quiet/orders\n" in lost.stderr) == (3, True)


def test_subscriptions_are_listed_and_deleted(broker: RunningBroker, pulsarish: Pulsarish, topic: str) -> None:
    """Type (none without a consumer), backlog, consumers; an unknown one is suggested; deleting needs --yes."""
    for text in ("1", "2", "3"):
        pulsarish("produce", topic, "-m", text)
    with (
        Client(broker.service_url) as client,
        client.subscribe(
            topic, "billing", type="failover", consumer_name="c1", initial_position="earliest"
        ) as consumer,
    ):
        consumer.acknowledge(consumer.receive(60), wait=True)
        (row,) = _objects(pulsarish("sub", "list", topic).stdout)
        assert (row["subscription"], row["type"], row["msgBacklog"]) == ("billing", "Failover", 2)
        assert (row["consumers"], row["activeConsumerName"], row["durable"]) == (1, "c1", True)
        stats = json.loads(pulsarish("sub", "stats", topic, "billing", "-o", "json").stdout)
        assert [each["consumerName"] for each in stats["consumers"]] == ["c1"]
    (row,) = _objects(pulsarish("sub", "list", topic).stdout)
    assert (row["type"], row["consumers"]) == (None, 0)
    wrong = pulsarish("sub", "stats", topic, "biling")
    assert (wrong.returncode, b'did you mean "billing"?' in wrong.stderr) == (3, True)
    assert pulsarish("sub", "delete", topic, "billing").returncode == 2
    assert pulsarish("sub", "delete", topic, "billing", "-y").returncode == 0
    assert pulsarish("sub", "list", topic).stdout == b""
