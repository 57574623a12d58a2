# SPDX-License-Identifier: Apache-2.0
"""Watching the topics of a namespace: what goes over the wire, and consumers of a pattern that need not look; on both
servers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import pytest

from broker_core.client import Client
from broker_core.testing.raw_client import RawClient
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, ServerError
from tests.client.conftest import Service, admin_path
from tests.client.helpers import eventually, numbered, send, take, values

NEVER_LOOK_S = 3600.0
"""How often the consumers of these tests look for topics by themselves: too seldom to find any."""

LOOK_S = 0.1

WATCHER = 7


@pytest.fixture
def family() -> str:
    """The beginning of names of topics that no other test uses; short, as Pulsar takes patterns of 50 characters."""
    return f"w{uuid.uuid4().hex[:8]}"


@pytest.fixture
def raw(service: Service) -> Iterator[RawClient]:
    with RawClient(service.service_url) as opened:
        yield opened


def full(name: str) -> str:
    return f"persistent://public/default/{name}"


def hash_of(*names: str) -> str:
    """Of a list of topics: CRC-32C of the sorted full names with commas between, its bytes from low to high."""
    joined = ",".join(sorted(map(full, names))).encode()
    return int(google_crc32c.value(joined)).to_bytes(4, "little").hex()


def watch(pattern: str, known_hash: str = "") -> BaseCommand:
    command = BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST)
    body = command.watchTopicList
    body.request_id, body.watcher_id, body.namespace, body.topics_pattern = 1, WATCHER, "public/default", pattern
    if known_hash:
        body.topics_hash = known_hash
    return command


def create(service: Service, name: str) -> None:
    service.admin("PUT", admin_path(full(name)))


def delete(service: Service, name: str) -> None:
    service.admin("DELETE", f"{admin_path(full(name))}?force=true")


def test_a_watch_begins_with_what_there_is_and_is_told_of_changes(
    service: Service, raw: RawClient, family: str
) -> None:
    """7.12 new topics and deleted ones, each with the hash of what there is then; others are not told."""
    for name in ("-b", "-a", "x"):
        create(service, family + name)
    answer = raw.ask(watch(f"persistent://public/default/{family}-.*"))
    assert answer.type == BaseCommand.WATCH_TOPIC_LIST_SUCCESS
    told = answer.watchTopicListSuccess
    assert (told.request_id, told.watcher_id) == (1, WATCHER)
    assert sorted(told.topic) == [full(f"{family}-a"), full(f"{family}-b")]
    assert told.topics_hash == hash_of(f"{family}-a", f"{family}-b")
    create(service, f"{family}y")
    create(service, f"{family}-c")
    update = raw.next_command().watchTopicUpdate
    assert (update.watcher_id, list(update.new_topics)) == (WATCHER, [full(f"{family}-c")])
    assert not update.deleted_topics
    assert update.topics_hash == hash_of(f"{family}-a", f"{family}-b", f"{family}-c")
    delete(service, f"{family}x")
    delete(service, f"{family}-a")
    update = raw.next_command().watchTopicUpdate
    assert (list(update.new_topics), list(update.deleted_topics)) == ([], [full(f"{family}-a")])
    assert update.topics_hash == hash_of(f"{family}-b", f"{family}-c")


def test_partitions_are_watched_one_by_one(service: Service, raw: RawClient, family: str) -> None:
    """7.12, 1.2.2 when the topic is made, grows and goes; the pattern is that of the topic without its partition."""
    assert not raw.ask(watch(f"public/default/{family}")).watchTopicListSuccess.topic

    def told(count: int, field: str) -> set[str]:
        names: set[str] = set()
        while len(names) < count:
            names.update(getattr(raw.next_command().watchTopicUpdate, field))
        return names

    service.create_partitioned(full(family), 2)
    assert told(2, "new_topics") == {full(f"{family}-partition-{index}") for index in (0, 1)}
    service.admin("POST", f"{admin_path(full(family))}/partitions", "3")
    assert told(1, "new_topics") == {full(f"{family}-partition-2")}
    service.admin("DELETE", f"{admin_path(full(family))}/partitions?force=true")
    assert told(3, "deleted_topics") == {full(f"{family}-partition-{index}") for index in range(3)}


def test_who_knows_the_list_is_not_told_it_again(service: Service, raw: RawClient, family: str) -> None:
    """7.12 a client that comes back says the hash of what it knew."""
    create(service, family)
    known = raw.ask(watch(f"public/default/{family}.*", hash_of(family))).watchTopicListSuccess
    assert (list(known.topic), known.topics_hash) == ([], hash_of(family))
    with RawClient(service.service_url) as other:
        answer = other.ask(watch(f"public/default/{family}.*", hash_of())).watchTopicListSuccess
        assert list(answer.topic) == [full(family)]


def test_a_watch_ends_when_it_is_closed(service: Service, raw: RawClient, family: str) -> None:
    """7.12 after that nothing more is told, and to close it once more is no error."""
    raw.ask(watch(f"public/default/{family}.*"))
    for _ in range(2):
        closing = BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST_CLOSE)
        closing.watchTopicListClose.request_id, closing.watchTopicListClose.watcher_id = 2, WATCHER
        assert raw.ask(closing).type == BaseCommand.SUCCESS
    create(service, family)
    again = raw.ask(watch(f"public/default/{family}.*"))
    assert again.type == BaseCommand.WATCH_TOPIC_LIST_SUCCESS
    assert list(again.watchTopicListSuccess.topic) == [full(family)]


def test_a_pattern_that_is_too_long_is_refused(raw: RawClient) -> None:
    """7.12 with an error that tells clients to look by themselves; Apache Pulsar's limit is 50, ours 256."""
    answer = raw.ask(watch("public/default/" + "x" * 256))
    assert (answer.type, answer.error.error) == (BaseCommand.ERROR, ServerError.NotAllowedError)


def test_a_pattern_is_followed_without_looking(service: Service, client: Client, family: str) -> None:
    """7.12 new topics are read from their first message on, deleted ones are left."""
    send(client, full(f"{family}-one"), 1)
    consumer = client.subscribe_pattern(
        f"public/default/{family}-(one|two|parts)", "s", initial_position="earliest",
        pattern_auto_discovery_period_s=NEVER_LOOK_S,
    )  # fmt: skip
    assert values(take(consumer, 1)) == ["m0"]
    send(client, full(f"{family}-other"), 1)
    send(client, full(f"{family}-two"), 3, first=1)
    assert values(take(consumer, 3)) == numbered(1, 4)
    service.create_partitioned(full(f"{family}-parts"), 2)
    send(client, full(f"{family}-parts"), 4, first=10, batched=False)
    assert sorted(values(take(consumer, 4))) == numbered(10, 14)
    assert len(consumer.topics) == 4
    delete(service, f"{family}-one")
    eventually(lambda: full(f"{family}-one") not in consumer.topics, "the deleted topic is left")
    consumer.close()


def test_a_pattern_that_no_broker_can_watch_is_looked_at(
    service: Service, client: Client, family: str, caplog: pytest.LogCaptureFixture
) -> None:
    """7.12 from time to time, as if there were no watches."""
    caplog.set_level("INFO")
    consumer = client.subscribe_pattern(
        f"{family}(?!-not).*", "s", initial_position="earliest", pattern_auto_discovery_period_s=LOOK_S
    )
    if service.kind == "pulsarish":
        eventually(lambda: "topic watch refused" in caplog.text, "the broker refuses to watch")
    send(client, full(f"{family}-not"), 1)
    send(client, full(f"{family}-one"), 1, first=5)
    assert values(take(consumer, 1)) == ["m5"]
    assert consumer.topics == [full(f"{family}-one")]


def test_a_watch_comes_back_with_the_broker(tmp_path: Path, family: str) -> None:
    """7.12 the connection is lost, the broker starts anew, and topics are found as before."""
    with RunningBroker(tmp_path / "data") as broker, Client(broker.service_url) as client:
        consumer = client.subscribe_pattern(
            f"{family}.*", "s", initial_position="earliest", pattern_auto_discovery_period_s=NEVER_LOOK_S
        )
        send(client, full(f"{family}-one"), 1)
        consumer.acknowledge(take(consumer, 1)[0], wait=True)
        broker.restart()
        send(client, full(f"{family}-two"), 1, first=1)
        assert values(take(consumer, 1)) == ["m1"]
