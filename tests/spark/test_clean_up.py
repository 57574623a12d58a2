# SPDX-License-Identifier: Apache-2.0
"""What queries leave on a broker: nothing without a name, and what has one is found and deleted by a command."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import pulsarish_spark
from broker_core.base.errors import ConfigError
from broker_core.base.names import TopicName
from broker_core.cli.exits import Exit
from broker_core.cli.main import main
from broker_core.client import Client
from broker_core.client.admin import AdminApi, AdminRefusedError
from tests.spark.brokers import Broker, eventually, numbers
from tests.spark.conftest import Start

Sub = Callable[..., tuple[int, str, list[dict[str, Any]]]]
"""Runs ``pulsarish sub`` with these arguments; its exit code, what it says, and the rows that it prints."""


@pytest.fixture
def sub(cell: Broker, capfd: pytest.CaptureFixture[str]) -> Sub:
    def run(*arguments: str) -> tuple[int, str, list[dict[str, Any]]]:
        capfd.readouterr()
        code = main(["sub", *arguments, "--url", cell.service_url, "--http-url", cell.http_url])
        printed = capfd.readouterr()
        return code, printed.err, [json.loads(line) for line in printed.out.splitlines()]

    return run


def all_subscriptions(cell: Broker, topic: str) -> list[str]:
    """Whatever the broker shows, also what lives with a consumer."""
    return sorted(cell.admin("GET", f"persistent/public/default/{topic}/stats")["subscriptions"])


def test_only_what_has_a_name_is_left_by_queries_and_reads(start: Start, cell: Broker, topic: str) -> None:
    """A query that was stopped leaves what its checkpoint names; a failed start and a batch read leave nothing."""
    cell.send(topic, numbers(0, 10))
    query = start(topic=topic)
    assert query.drain() == list(range(10))
    query.stop()
    assert query.end is not None
    with pytest.raises(ConfigError):
        start(topic=topic, startingOffsets=json.dumps({topic: {"7": "earliest"}})).drain()
    with pytest.raises(ConfigError):
        start(topic=topic, subscriptionName="theirs", startingTimestamp="2100-01-01T00:00:00Z").drain()
    assert pulsarish_spark.read_arrow(topic, **{"service.url": cell.service_url}).read_all().num_rows == 10
    left = [query.end["subscription"]]
    eventually(lambda: all_subscriptions(cell, topic) == left, f"only {left} are left of {topic}")


@pytest.mark.parametrize("partitions", [0, 2])
def test_what_a_query_left_is_listed_with_its_backlog_and_deleted(
    start: Start, cell: Broker, topic: str, partitions: int, sub: Sub
) -> None:
    """Of applications nothing is shown, and nothing deleted, whatever the name begins with."""
    cell.create(topic, partitions)
    for name in ("theirs", "pulsarish-spark", "pulsarish-spark-nightly"):
        cell.subscribe(topic, name)
    query = start(topic=topic, subscriptionPrefix="nightly")
    cell.send_one_by_one(topic, numbers(0, 10))
    assert query.drain() == list(range(10))
    cell.send_one_by_one(topic, numbers(10, 13))
    query.stop()
    assert query.end is not None
    name = query.end["subscription"]
    code, _, (row,) = sub("list", topic, "--spark")
    assert code == 0
    full = f"persistent://public/default/{topic}"
    known = {"subscription": name, "topic": full, "msgBacklog": 3, "consumers": 0, "kind": "stream"}
    assert row | known == row
    assert row["created"] <= row["lastUsed"]
    assert row["host"]
    eventually(lambda: sub("list", topic, "--spark")[2][0]["consumers"] == 0, "the query has left")
    first = f"{topic}-partition-0" if partitions else topic
    before = cell.subscriptions(first)
    code, said, _ = sub("clean", topic, "--dry-run")
    assert (code, cell.subscriptions(first)) == (0, before)
    assert said == f'would delete subscription "{name}" of {full} with a backlog of 3 entries\n'
    code, said, _ = sub("clean", topic)
    assert (code, cell.subscriptions(first)) == (Exit.USAGE, before)
    assert "with a backlog of 3 entries" in said
    assert sub("clean", topic, "--yes")[0] == 0
    assert sorted({*before} - {*cell.subscriptions(first)}) == [name]
    assert sub("clean", topic, "--yes")[:2] == (0, "nothing to delete among 0 of Spark's subscriptions\n")


def test_a_query_that_runs_keeps_its_subscription(start: Start, cell: Broker, topic: str, sub: Sub) -> None:
    """Neither a look that is too old nor the command itself takes it away."""
    cell.send(topic, numbers(0, 5))
    query = start(topic=topic)
    assert query.drain() == list(range(5))
    code, said, _ = sub("clean", topic, "--yes")
    assert code == 0
    assert "in use, stays: subscription" in said
    (name,) = cell.subscriptions(topic)
    with cell.control() as api, pytest.raises(AdminRefusedError):
        api.delete_subscription(TopicName.parse(topic), name, force=False)
    assert cell.subscriptions(topic) == [name]


def test_a_query_that_starts_while_others_are_deleted_keeps_its_own(
    start: Start, cell: Broker, topic: str, sub: Sub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker decides at the moment of deletion, and who asked for it is told what stays."""
    cell.send(topic, numbers(0, 5))
    query = start(topic=topic)
    query.drain()
    query.stop()
    eventually(lambda: sub("list", topic, "--spark")[2][0]["consumers"] == 0, "the query has left")
    delete = AdminApi.delete_subscription

    def restart_first(api: AdminApi, *where: Any, force: bool) -> None:
        query.restart()
        query.drain()
        delete(api, *where, force=force)

    monkeypatch.setattr(AdminApi, "delete_subscription", restart_first)
    code, said, _ = sub("clean", topic, "--yes")
    assert code == Exit.FAILURE
    assert "not deleted: subscription" in said
    assert len(cell.subscriptions(topic)) == 1


def test_what_was_used_lately_stays(start: Start, cell: Broker, topic: str, sub: Sub) -> None:
    """It is the time since the last use that counts, over all topics of a namespace."""
    cell.send(topic, numbers(0, 5))
    query = start(topic=topic)
    query.drain()
    query.stop()
    eventually(lambda: sub("list", topic, "--spark")[2][0]["consumers"] == 0, "the query has left")
    for where in ([topic], ["--namespace", "public/default"], ["--everywhere"]):
        code, said, _ = sub("clean", *where, "--older-than", "86400", "--yes")
        assert code == 0
        assert f' s ago, stays: subscription "{cell.subscriptions(topic)[0]}" of ' in said
        assert topic in {row["topic"].rpartition("/")[2] for row in sub("list", *where, "--spark")[2]}
    assert len(cell.subscriptions(topic)) == 1


def test_the_hold_of_a_queue_is_sparks_and_the_queue_is_not(start: Start, cell: Broker, topic: str, sub: Sub) -> None:
    """Others may consume from the shared subscription, whoever made it."""
    cell.create(topic, 0)
    cell.send(topic, numbers(0, 5))
    options = {"subscriptionType": "Shared", "subscriptionName": "work", "queueGuarantee": "claim"}
    query = start(topic=topic, availableNowQuietMs=500, **options)
    query.bound_to_now()
    query.drain()
    query.stop()
    assert sorted(cell.subscriptions(topic)) == ["work", "work.spark-hold"]
    eventually(lambda: sub("list", topic, "--spark")[2][0]["consumers"] == 0, "the query has left")
    ((_, _, rows), (code, _, _)) = sub("list", topic, "--spark"), sub("clean", topic, "--yes")
    assert [(row["subscription"], row["kind"]) for row in rows] == [("work.spark-hold", "hold")]
    assert (code, cell.subscriptions(topic)) == (0, ["work"])


def test_a_subscription_of_an_application_is_not_marked_by_a_query_on_it(
    start: Start, cell: Broker, topic: str, sub: Sub
) -> None:
    """Apache Pulsar adds the properties of whoever subscribes to a subscription without any."""
    cell.create(topic, 0)
    cell.subscribe(topic, "theirs")
    cell.send(topic, numbers(0, 5))
    query = start(topic=topic, subscriptionName="theirs")
    query.drain()
    query.restart()
    query.drain()
    query.stop()
    assert sub("list", topic, "--spark")[2] == []


def test_one_of_a_time_before_marks_is_known_by_its_name(cell: Broker, topic: str, sub: Sub) -> None:
    """When it was used nobody knows for sure, so an age does not choose it."""
    cell.create(topic, 0)
    cell.send(topic, numbers(0, 5))
    cell.subscribe(topic, "pulsarish-spark-0123456789ab")
    with Client(cell.service_url) as client:
        client.last_entry(topic)
    ((row,), (_, said, _)) = sub("list", topic, "--spark")[2], sub("clean", topic, "--older-than", "1", "--yes")
    assert (row["kind"], row["created"]) == (None, None)
    assert "stays: subscription" in said
    assert sub("clean", topic, "--yes")[0] == 0
    assert cell.subscriptions(topic) == []


@pytest.mark.parametrize("arguments", [["list"], ["list", "--everywhere"], ["list", "--spark"], ["clean"]])
def test_a_place_must_be_named(sub: Sub, arguments: list[str]) -> None:
    """What reaches everywhere is asked for by that word, and a list of all subscriptions is of one topic."""
    code, said, rows = sub(*arguments)
    assert (code, rows) == (Exit.USAGE, [])
    assert "--everywhere" in said or "--spark" in said
