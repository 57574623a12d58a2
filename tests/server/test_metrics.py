# SPDX-License-Identifier: Apache-2.0
"""``/metrics``: the figures of the broker, its topics and their subscriptions as OpenMetrics text."""

from __future__ import annotations

import time

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as families_of_older_text

from broker_core.base.settings import Settings
from broker_core.client import Client
from broker_core.server.admin import metrics
from broker_core.server.figures import CLOCK_STEP_MS, LoopFigures
from broker_core.testing.running_broker import RunningBroker
from broker_core.testing.sim_disk import SimDisk
from broker_core.testing.virtual_timers import VirtualTimers
from tests.apache_pulsar.start import ApachePulsar
from tests.client.helpers import eventually
from tests.server.server_thread import ServerThread


def scraped(http_url: str) -> dict[str, Metric]:
    """The families of one scrape by name."""
    answer = httpx.get(f"{http_url}/metrics", timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    return {family.name: family for family in text_string_to_metric_families(answer.text)}  # type: ignore[no-untyped-call]


def values(families: dict[str, Metric], sample_name: str, **labels: str) -> list[float]:
    """The values of the samples of that name with these labels."""
    samples = [sample for family in families.values() for sample in family.samples if sample.name == sample_name]
    return [each.value for each in samples if labels.items() <= each.labels.items()]


def test_clients_show_in_the_metrics(broker: RunningBroker, topic: str) -> None:
    """3.6.8: producers, consumers, messages in and out, and what is not acknowledged."""
    with (
        Client(broker.service_url) as client,
        client.subscribe(topic, "s", type="shared") as consumer,
        client.create_producer(topic, batching_enabled=False) as producer,
    ):
        for _ in range(5):
            producer.send(b"0123456789")
        messages = [consumer.receive(60) for _ in range(5)]
        consumer.acknowledge(messages[0], wait=True)
        found = scraped(broker.http_url)
    of_topic = {"cluster": "standalone", "namespace": "public/default", "topic": topic}
    for name, value in (
        ("pulsar_producers_count", 1),
        ("pulsar_consumers_count", 1),
        ("pulsar_subscriptions_count", 1),
        ("pulsar_in_messages_total", 5),
        ("pulsar_msg_backlog", 4),
    ):
        assert values(found, name, **of_topic) == [value], name
    for name, value in (
        ("pulsar_out_messages_total", 5),
        ("pulsar_subscription_back_log", 4),
        ("pulsar_subscription_unacked_messages", 4),
    ):
        assert values(found, name, **of_topic, subscription="s") == [value], name
    assert values(found, "pulsar_storage_backlog_age_seconds", **of_topic)[0] >= 0
    assert values(found, "pulsarish_commit_seconds_count")[0] >= 5
    assert values(found, "pulsarish_file_syncs_total")[0] >= 5
    assert values(found, "pulsar_topics_count", namespace="public/default")[0] >= 1


def test_topics_that_store_nothing_show_too(broker: RunningBroker) -> None:
    """1.1.8: their traffic and clients; what needs stored messages is 0."""
    topic = "non-persistent://public/default/passing"
    with Client(broker.service_url) as client, client.subscribe(topic, "s") as consumer:
        with client.create_producer(topic) as producer:
            producer.send(b"x")
        consumer.receive(60)
        found = scraped(broker.http_url)
    assert values(found, "pulsar_in_messages_total", topic=topic) == [1]
    assert values(found, "pulsar_out_messages_total", topic=topic, subscription="s") == [1]
    assert values(found, "pulsar_storage_size", topic=topic) == [0]


def test_names_are_escaped(broker: RunningBroker) -> None:
    """A name with quotes or backslashes adds neither a label nor a line."""
    topic, subscription = 'persistent://public/default/a"b\\n{x="1"} 2 é', 's"\\'
    with Client(broker.service_url) as client, client.subscribe(topic, subscription):
        found = scraped(broker.http_url)
    assert values(found, "pulsar_subscription_back_log", topic=topic, subscription=subscription) == [0]


def test_every_metric_has_the_labels_that_are_documented(broker: RunningBroker, topic: str) -> None:
    """docs/metrics.md is made of the same table."""
    with Client(broker.service_url) as client, client.subscribe(topic, "s"):
        threshold = f"{broker.http_url}/admin/v2/{topic.replace('://', '/')}/compactionThreshold"
        assert httpx.post(threshold, content="1000").status_code == 204
        found = scraped(broker.http_url)
    declared = {each.name: labels for figures, labels in metrics.LABELS.items() for each in metrics.METRICS[figures]}
    assert {name.removesuffix("_total") for name in declared} == set(found)
    for name, labels in declared.items():
        for sample in found[name.removesuffix("_total")].samples:
            assert tuple(each for each in sample.labels if each != "le") == labels


def test_the_path_with_a_slash_answers_too(broker: RunningBroker) -> None:
    """As on Apache Pulsar, to which /metrics leads there."""
    assert httpx.get(f"{broker.http_url}/metrics/").text.endswith("# EOF\n")


def test_pages_of_other_sites_read_no_metrics(broker: RunningBroker) -> None:
    """The path is guarded as all others are."""
    assert httpx.get(f"{broker.http_url}/metrics", headers={"Origin": "http://elsewhere.example"}).status_code == 403
    assert httpx.post(f"{broker.http_url}/metrics").status_code == 405


def test_readers_are_limited_and_leave_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long answer takes memory until it is read: one more client is told to come back."""
    monkeypatch.setattr(metrics, "READERS_MAX", 1)
    with ServerThread(SimDisk(), Settings()) as server:
        for _ in range(3):
            assert "pulsarish_commit_seconds" in scraped(server.http_url)
        monkeypatch.setattr(metrics, "READERS_MAX", 0)
        refused = httpx.get(f"{server.http_url}/metrics")
    assert refused.status_code == 503
    assert "try again later" in refused.json()["reason"]


def test_the_loop_and_the_clock_are_watched() -> None:
    """A timer that comes late is lag; a wall clock that was set, ahead or back, is a step, and slow drift is none."""
    timers = VirtualTimers()
    figures = LoopFigures(timers)
    timers.advance(1000)
    figures.observe(0.3)
    assert (figures.lag_s.sum, figures.clock_steps) == (0.3, 0)
    for step_ms, steps in ((CLOCK_STEP_MS // 2, 0), (60_000, 1), (-60_000, 2), (0, 2)):
        timers.step_wall_clock(step_ms)
        figures.observe(0.0)
        assert figures.clock_steps == steps


def test_the_event_loop_is_looked_at_each_second(broker: RunningBroker) -> None:
    """The watch begins with the broker."""
    eventually(lambda: values(scraped(broker.http_url), "pulsarish_loop_lag_seconds_count")[0] > 0, "a look")


@pytest.mark.pulsar
def test_names_and_labels_are_those_of_apache_pulsar(apache_pulsar: ApachePulsar) -> None:
    """Every ``pulsar_`` metric is one of a real Apache Pulsar, with the same labels in the same order."""
    topic = "persistent://public/default/names-of-metrics"
    path = f"{apache_pulsar.http_url}/admin/v2/{topic.replace('://', '/')}/compaction"
    with Client(apache_pulsar.service_url) as client, client.subscribe(topic, "s"):
        with client.create_producer(topic) as producer:
            producer.send("1", key="a")
        assert httpx.put(path, timeout=60).status_code == 204
        while httpx.get(path, timeout=60).json()["status"] in ("RUNNING", "NOT_RUN"):
            time.sleep(0.1)  # a request each time
        text = httpx.get(f"{apache_pulsar.http_url}/metrics/", timeout=60).text
    lines = [line for line in text.splitlines() if topic in line or line.startswith(("# TYPE", "pulsar_topics_count"))]
    theirs = {
        sample.name: tuple(sample.labels)
        for family in families_of_older_text("\n".join(lines) + "\n")
        for sample in family.samples
    }
    for figures, labels in metrics.LABELS.items():
        for metric in metrics.METRICS[figures]:
            if metric.name.startswith("pulsar_"):
                assert theirs.get(metric.name) == labels, metric.name
