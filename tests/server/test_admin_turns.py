# SPDX-License-Identifier: Apache-2.0
"""Requests that act on very many loaded topics leave the turns in between to others."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from broker_core.base.settings import Settings
from broker_core.server.admin import turn_queue
from broker_core.server.admin.turn_queue import TurnQueue
from broker_core.testing.sim_disk import SimDisk
from tests.server.server_thread import ServerThread

TOPICS = 12
"""Topics of each kind: stored, and non-persistent."""


class Turns:
    """How many turns requests have waited for."""

    count = 0


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """A request may do one step in a turn, and is counted."""
    counted, turn = Turns(), TurnQueue.turn

    async def counting(queue: TurnQueue) -> None:
        counted.count += 1
        await turn(queue)

    monkeypatch.setattr(turn_queue, "_STRETCH_S", 0.0)
    monkeypatch.setattr(TurnQueue, "turn", counting)
    return counted


@pytest.fixture
def http(turns: Turns) -> Iterator[httpx.Client]:
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
    http: httpx.Client, turns: Turns, method: str, path: str, content: str
) -> None:
    """With 2,000 of them it took all of them in one turn, which was up to a second."""
    before = turns.count
    assert http.request(method, path, content=content).is_success
    assert turns.count - before >= 2 * TOPICS
