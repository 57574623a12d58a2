# SPDX-License-Identifier: Apache-2.0
"""Requests that act on very many loaded topics leave the turns in between to others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from broker_core.base import turns
from broker_core.base.settings import Settings
from broker_core.testing.sim_disk import SimDisk
from tests.server.server_thread import ServerThread

TOPICS = 12
"""Topics of each kind: stored, and non-persistent."""


class Slices:
    """How often requests and other chores have had a slice of a turn."""

    count = 0


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> Slices:
    """A chore may do one step in a turn, and is counted."""
    counted, work = Slices(), turns.Chore.work

    def counting(chore: turns.Chore, is_over: Callable[[], bool]) -> bool:
        counted.count += 1
        return work(chore, is_over)

    for name in ("TURN_S", "_WAITED_S", "SLICE_S"):
        monkeypatch.setattr(turns, name, 0.0)
    monkeypatch.setattr(turns.Chore, "work", counting)
    return counted


@pytest.fixture
def http(slices: Slices) -> Iterator[httpx.Client]:
    """A broker on which so many topics are loaded."""
    with (
        ServerThread(SimDisk(), Settings()) as server,
        httpx.Client(base_url=f"{server.http_url}/admin/v2", timeout=60) as http,
    ):
        for number in range(TOPICS):
            assert http.put(f"/persistent/public/default/t{number}").status_code == 204
            assert http.put(f"/persistent/public/default/t{number}/subscription/s").status_code == 204
            assert http.put(f"/non-persistent/public/default/t{number}").status_code == 204
        yield http


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("POST", "/namespaces/public/default/messageTTL", "5"),
        ("DELETE", "/namespaces/public/default/messageTTL", ""),
        ("POST", "/namespaces/public/default/backlogQuota", '{"limitSize": 5, "policy": "producer_exception"}'),
        ("DELETE", "/namespaces/public/default/backlogQuota", ""),
        ("PUT", "/namespaces/public/default/property/a/b", ""),
        ("POST", "/persistent/public/default/t1/maxProducers", "5"),
        ("DELETE", "/persistent/public/default/t1/policies", ""),
        ("POST", "/brokers/configuration/defaultNumPartitions/5", ""),
        ("DELETE", "/brokers/configuration/defaultNumPartitions", ""),
        ("PUT", "/namespaces/public/default/unload", ""),
        ("PUT", "/namespaces/public/default/0x00000000_0xffffffff/unload", ""),
    ],
)
def test_what_changes_all_loaded_topics_takes_a_turn_for_each(
    http: httpx.Client, slices: Slices, method: str, path: str, content: str
) -> None:
    """With 2,000 of them it took all of them in one turn, which was up to a second."""
    before = slices.count
    assert http.request(method, path, content=content).is_success
    assert slices.count - before >= 2 * TOPICS


def test_a_scrape_of_the_metrics_takes_a_turn_for_each_topic_and_subscription(
    http: httpx.Client, slices: Slices
) -> None:
    """10,000 topics with a subscription each take some 0.2 s of processor time, during which clients are served."""
    before = slices.count
    assert http.get(str(http.base_url).replace("/admin/v2/", "/metrics")).is_success
    assert slices.count - before >= 3 * TOPICS


@pytest.mark.parametrize("what", ["metrics", "topics", "load-report"])
def test_broker_statistics_take_a_turn_for_each_topic(http: httpx.Client, slices: Slices, what: str) -> None:
    """Of 10,000 topics they would take half a second."""
    before = slices.count
    assert "public/default" in http.get(f"/broker-stats/{what}").text
    assert slices.count - before >= 2 * TOPICS
