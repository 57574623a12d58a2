# SPDX-License-Identifier: Apache-2.0
"""Topics that are chosen by a pattern: those that there are, those that come and those that go; no session.

Each test has a family of names of its own, short because Apache Pulsar keeps patterns short.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator

import pytest

from broker_core.base.errors import ConfigError
from broker_core.base.names import NamespaceName
from broker_core.client import Client
from pulsarish_spark.losses.loss import DataLossError
from pulsarish_spark.options import Side, read_options
from pulsarish_spark.positions.batch_plan import plan_batch
from pulsarish_spark.tasks.planning import EntryRange
from tests.spark.brokers import Broker, eventually, numbers
from tests.spark.conftest import Start
from tests.spark.engine import Engine

ALWAYS = {"partitionDiscoveryIntervalMs": "1"}
NEVER = {"partitionDiscoveryIntervalMs": "3600000"}
TELLING_INDEXES = ["pulsarish", pytest.param("apache-indexed", marks=pytest.mark.pulsar)]
"""The brokers that know that there was something before; an Apache Pulsar as it comes does not."""


@pytest.fixture
def family() -> str:
    return f"f{uuid.uuid4().hex[:8]}"


@pytest.fixture
def client(cell: Broker) -> Iterator[Client]:
    with Client(cell.service_url) as opened:
        yield opened


def planned(client: Client, pattern: str, **options: str) -> dict[str, EntryRange]:
    """The ranges of a batch read by what the broker calls their partitions, without the domain and public/default."""
    given = {"service.url": client.config.service_url, "subscribepattern": pattern, **options}
    tasks = plan_batch(client, read_options(given, Side.BATCH_READ, {}))
    return {each.name.partition("://")[2].removeprefix("public/default/"): each for task in tasks for each in task}


def topics_of(query: Engine) -> set[str]:
    """Local names of the topics that the checkpoint names."""
    return {topic.rpartition("/")[2] for topic in query.end or {} if "://" in topic}


def until_gone(query: Engine, topic: str) -> None:
    """Run batches until the checkpoint does not name a topic any more; they deliver nothing."""

    def is_gone() -> bool:
        assert not query.trigger()
        return topic not in topics_of(query)

    eventually(is_gone, f"the query has noticed that {topic} is gone")


# -- which topics


def test_a_batch_reads_all_topics_whose_whole_names_match(cell: Broker, client: Client, family: str) -> None:
    """Plain and partitioned ones, also partitions that nobody has used; not those that only begin or end so."""
    for name in (f"{family}-a", f"{family}-b", f"{family}-ab", f"x{family}-a"):
        cell.send(name, numbers(0, 3), client)
    cell.create(f"{family}-p", 2)
    names = planned(client, f"{family}-(.|p)")
    assert set(names) == {f"{family}-a", f"{family}-b", f"{family}-p-partition-0", f"{family}-p-partition-1"}
    assert names[f"{family}-p-partition-1"].partitioned


def test_a_pattern_that_matches_nothing_is_an_empty_read_with_a_warning(
    client: Client, family: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A namespace that does not exist has no topics either."""
    for pattern in (f"{family}.*", f"public/{family}/.*"):
        with caplog.at_level(logging.WARNING):
            assert planned(client, pattern) == {}
        assert f"nothing is read as no topic matches pattern={pattern}" in caplog.text


def test_a_pattern_spans_the_namespaces_that_it_names(cell: Broker, client: Client, family: str) -> None:
    """And no others; one that does not exist is one without topics."""
    with cell.control() as api:
        for namespace in ("eu", "us", "as"):
            api.create_namespace(NamespaceName("public", f"{family}-{namespace}"))
    for namespace in ("eu", "us", "as"):
        cell.send(f"public/{family}-{namespace}/orders", numbers(0, 3), client)
    found = planned(client, f"persistent://public/{family}-(eu|us|nowhere)/ord.*")
    assert set(found) == {f"public/{family}-{namespace}/orders" for namespace in ("eu", "us")}


def test_what_a_broker_keeps_for_itself_is_never_read(cell: Broker, client: Client) -> None:
    """The health check's topic and the policies of a namespace match ".*", in namespaces of the broker too."""
    namespaces = cell.admin("GET", "namespaces/pulsar") if "pulsar" in cell.admin("GET", "tenants") else []
    if cell.kind != "pulsarish":
        with cell.control() as api:
            api.health()
        cell.admin("POST", "namespaces/public/default/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    names = [name for each in ["public/default", *namespaces] for name in planned(client, f"{each}/.*")]
    assert not [name for name in names if name.startswith("__") or "healthcheck" in name or "transaction" in name]


# -- topics that come and go under a stream


def test_topics_that_come_under_a_running_query_are_read_from_their_first_message(
    start: Start, cell: Broker, family: str
) -> None:
    """Whatever the query's own start is: startingOffsets is for what there was."""
    cell.send(f"{family}-a", numbers(0, 5))
    query = start(topicsPattern=f"{family}-.*", startingOffsets="latest", **ALWAYS)
    assert not query.trigger()
    cell.send(f"{family}-a", numbers(5, 10))
    cell.create(f"{family}-p", 2)
    cell.send(f"{family}-p", numbers(10, 20), batching_max_messages=5)
    cell.send(f"{family}-b", numbers(20, 25))
    assert query.drain() == list(range(5, 25))
    assert topics_of(query) == {f"{family}-a", f"{family}-b", f"{family}-p"}
    cell.grow(f"{family}-p", 3)
    cell.send_one_by_one(f"persistent://public/default/{family}-p-partition-2", numbers(25, 28))
    eventually(lambda: query.drain() == [25, 26, 27] or 2 in query.known_partitions, "the new partition is read")


def test_a_pattern_without_topics_waits_for_them(
    start: Start, cell: Broker, family: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so once, notes no empty map of topics, and reads the first one whole, over a restart too."""
    with caplog.at_level(logging.WARNING):
        query = start(topicsPattern=f"{family}-.*", startingOffsets="latest", **ALWAYS)
        assert not query.trigger()
        assert not query.trigger()
    assert caplog.text.count("the stream waits for topics that match") == 1
    query.restart()
    cell.send(f"{family}-a", numbers(0, 5))
    assert query.drain() == [0, 1, 2, 3, 4]


def test_topics_are_looked_for_at_the_interval_of_the_option(start: Start, cell: Broker, family: str) -> None:
    """A query that may not look within the hour does not see the new topic; a restarted one looks at once."""
    cell.send(f"{family}-a", numbers(0, 5))
    query = start(topicsPattern=f"{family}-.*", **NEVER)
    assert query.drain() == [0, 1, 2, 3, 4]
    cell.send(f"{family}-b", numbers(5, 10))
    assert not query.drain()
    query.restart()
    assert query.drain() == [5, 6, 7, 8, 9]


def test_a_topic_that_is_deleted_under_a_pattern_is_lost_data(start: Start, cell: Broker, family: str) -> None:
    """An error that names it; without failOnDataLoss the others go on, and one of its name is a new topic."""
    for place, name in enumerate("ab"):
        cell.send(f"{family}-{name}", numbers(5 * place, 5 * place + 5))
    query = start(topicsPattern=f"{family}-.*", **ALWAYS)
    assert query.drain() == list(range(10))
    cell.delete(f"{family}-a")
    with pytest.raises(DataLossError, match=rf"{family}-a\[0\], to be read on at .* does not exist any more"):
        eventually(lambda: query.trigger() is not None, "the query has noticed")
    query.restart(failOnDataLoss="false")
    until_gone(query, f"{family}-a")
    cell.send(f"{family}-b", numbers(10, 15))
    cell.send(f"{family}-a", numbers(15, 20))
    assert query.drain() == list(range(10, 20))


def test_a_partitioned_topic_that_goes_is_not_read_again_by_its_partitions(
    start: Start, cell: Broker, family: str
) -> None:
    """Apache Pulsar deletes it step by step, and for a moment there are partitions of nothing."""
    cell.create(f"{family}-p", 3)
    cell.send(f"{family}-p", numbers(0, 30), batching_max_messages=1)
    query = start(topicsPattern=f"{family}-.*", failOnDataLoss="false", **ALWAYS)
    assert query.drain() == list(range(30))
    cell.delete(f"{family}-p")
    until_gone(query, f"{family}-p")


# -- over restarts


def test_a_set_that_has_changed_between_restarts_goes_on_where_each_topic_stands(
    start: Start, cell: Broker, family: str
) -> None:
    """One topic came, one has more messages, and the pattern is another that matches them and a third."""
    cell.send(f"{family}-a", numbers(0, 5))
    cell.send(f"{family}x", numbers(20, 25))
    query = start(topicsPattern=f"{family}-.*", maxOffsetsPerTrigger=5, **ALWAYS)
    assert query.drain() == [0, 1, 2, 3, 4]
    cell.send(f"{family}-a", numbers(5, 10))
    cell.send(f"{family}-b", numbers(10, 15))
    query.restart()
    assert query.drain() == list(range(5, 15))
    query.restart(topicsPattern=f"{family}.*")
    assert query.drain() == list(range(20, 25))
    query.restart(topicsPattern=f"{family}-b")
    with pytest.raises(ConfigError, match=f"the checkpoint was made for topic .*{family}-a, which is not read now"):
        query.trigger()


def test_a_replayed_batch_has_the_topics_that_were_planned(start: Start, cell: Broker, family: str) -> None:
    """A topic that comes between a failed batch and its replay belongs to the batch behind it."""
    cell.send(f"{family}-a", numbers(0, 5))
    query = start(topicsPattern=f"{family}-.*", **ALWAYS)
    assert query.attempt() == [0, 1, 2, 3, 4]
    cell.send(f"{family}-b", numbers(5, 10))
    query.restart()
    assert query.trigger() == [0, 1, 2, 3, 4]
    assert query.drain() == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("cell", TELLING_INDEXES, indirect=True)
def test_messages_of_a_new_topic_that_are_gone_are_told_if_the_pattern_is_the_same(
    start: Start, cell: Broker, family: str
) -> None:
    """It came while the query was down, so all it has had were to be read; under another pattern it may be old."""
    cell.send(f"{family}-a", numbers(0, 5))
    query = start(topicsPattern=f"{family}-.*", **ALWAYS)
    assert query.drain() == [0, 1, 2, 3, 4]
    query.stop()
    lost = f"{family}-b"
    cell.subscribe(cell.create(lost, 0), "other")
    cell.send(lost, numbers(5, 8))
    cell.unload(lost)
    cell.skip_all(lost, "other")
    cell.send(lost, numbers(8, 10))
    cell.drop_acknowledged(lost)
    query.restart()
    with pytest.raises(DataLossError, match=rf"{lost}\[0\] was added, .* 3 messages lost"):
        query.trigger()
    query.restart(topicsPattern=f"{family}-[ab]")
    assert query.drain() == [8, 9]


def test_available_now_reads_the_topics_of_its_first_look(start: Start, cell: Broker, family: str) -> None:
    """What comes during the run is for the next one, which reads it whole."""
    cell.send_one_by_one(f"{family}-a", numbers(0, 6))
    query = start(topicsPattern=f"{family}-.*", maxOffsetsPerTrigger=3, **ALWAYS)
    query.bound_to_now()
    assert query.trigger() == [0, 1, 2]
    cell.send(f"{family}-b", numbers(6, 9))
    assert query.drain() == [3, 4, 5]
    query.restart()
    query.bound_to_now()
    assert query.drain() == [6, 7, 8]


# -- where it starts


def test_starting_offsets_may_name_topics_that_will_match(start: Start, cell: Broker, family: str) -> None:
    """One that exists has its own start, one that does not yet is read whole when it comes; others are refused."""
    cell.send(f"{family}-a", numbers(0, 5))
    query = start(
        topicsPattern=f"{family}-.*",
        startingOffsets=f'{{"{family}-a":"latest","{family}-b":"latest"}}',
        **ALWAYS,
    )
    assert not query.trigger()
    cell.send(f"{family}-b", numbers(5, 10))
    assert query.drain() == [5, 6, 7, 8, 9]
    wrong = start(topicsPattern=f"{family}-.*", startingOffsets='{"elsewhere":"latest"}')
    told = f"names topic .*elsewhere, which this query does not read; it reads .*{family}-a, .*{family}-b"
    with pytest.raises(ConfigError, match=told):
        wrong.trigger()


# -- many


def test_many_topics_are_asked_for_at_once(
    start: Start, cell: Broker, client: Client, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pattern costs one list for each look; nobody asks for plain topics one by one."""
    names = [f"{family}-{number}" for number in range(40)]
    for place, name in enumerate(names):
        cell.send(name, [str(place)], client)
    asked: list[str] = []
    one_by_one = Client.existing_partitions

    def existing_partitions(self: Client, topic: str) -> int | None:
        asked.append(topic)
        return one_by_one(self, topic)

    monkeypatch.setattr(Client, "existing_partitions", existing_partitions)
    query = start(topicsPattern=f"{family}-.*", **ALWAYS)
    assert query.drain() == list(range(40))
    query.restart()
    client.create_producer(f"persistent://public/default/{names[7]}").send("100")
    assert query.drain() == [100]
    assert not asked
    assert cell.backlog(names[7]) == 0
    assert set(planned(client, f"{family}-.*")) == set(names)
