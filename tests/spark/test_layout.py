# SPDX-License-Identifier: Apache-2.0
"""Which partitions a selection has: each once, however topics and partitions are named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

import pulsarish_spark
from broker_core.base.errors import ConfigError
from broker_core.client import Client
from pulsarish_spark.options import Side, read_options
from pulsarish_spark.viewing.layout import discover
from tests.spark.brokers import Broker
from tests.spark.engine import Engine

WORDS = "-partition-0 is named twice: it is a partition of persistent://public/default/"


class Topics:
    """A broker with the topic t, of two partitions, and the topic u, which has none."""

    def __init__(self) -> None:
        self._counts = {"t": 2, "u": 0, "t-partition-0": 0, "t-partition-1": 0, "u-partition-0": 0}

    def existing_partitions_of(self, topics: Sequence[str]) -> list[int | None]:
        return [self._counts.get(topic.rpartition("/")[2]) for topic in topics]

    def required_partitions(self, topic: str) -> int:
        return self._counts[topic.rpartition("/")[2]]

    def topics_of(self, namespace: str) -> list[str]:
        assert namespace == "public/default"
        names = ["t-partition-0", "t-partition-1", "u", "u-partition-0"]
        return [f"persistent://public/default/{name}" for name in names]


def names_of(**options: str) -> list[str]:
    """What the broker calls the partitions that the options select."""
    selection = read_options({"service.url": "pulsar://host:1", **options}, Side.READ, {}).selection
    return [name.rpartition("/")[2] for name in discover(selection, cast("Client", Topics())).names.values()]


@pytest.mark.parametrize(
    "options",
    [
        {"topics": "t,t-partition-0"},
        {"topics": "persistent://public/default/t-partition-0, t"},
        {"topics": "public/default/t,u,t-partition-0"},
        {"assign": '{"t":[1,0],"t-partition-0":[0]}'},
    ],
)
def test_a_topic_and_its_partition_are_not_read_together(options: dict[str, str]) -> None:
    """Each row of the partition would come twice."""
    with pytest.raises(ConfigError, match=WORDS):
        names_of(**options)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"topics": "t-partition-1,t-partition-0"}, ["t-partition-0", "t-partition-1"]),
        ({"topics": "t,persistent://public/default/t"}, ["t-partition-0", "t-partition-1"]),
        ({"topics": "u,u-partition-0"}, ["u", "u-partition-0"]),
        ({"assign": '{"t":[1],"t-partition-0":[0]}'}, ["t-partition-1", "t-partition-0"]),
        ({"topicsPattern": "t|t-partition-0"}, ["t-partition-0", "t-partition-1"]),
    ],
)
def test_what_is_named_otherwise_is_read_once(options: dict[str, str], names: list[str]) -> None:
    """Partitions beside each other, one name in two forms, and a topic that is only named like a partition."""
    assert names_of(**options) == names


@pytest.mark.parametrize("options", [{}, {"subscriptionType": "Shared", "subscriptionName": "work"}])
def test_every_kind_of_read_refuses_it(broker: Broker, topic: str, options: dict[str, Any]) -> None:
    """A batch, a dry run, a stream, and one that shares its subscription."""
    broker.create(topic := f"{topic}-{len(options)}", 2)
    both = {"service.url": broker.service_url, "topics": f"{topic},{topic}-partition-0"}
    if not options:
        with pytest.raises(ConfigError, match=WORDS):
            pulsarish_spark.read_arrow(**both)
    with pytest.raises(ConfigError, match=WORDS):
        pulsarish_spark.describe(stream=True, **both, **options)
    query = Engine(broker.service_url, topics=both["topics"], **options)
    with pytest.raises(Exception, match=WORDS):
        query.trigger()
    query.stop()
