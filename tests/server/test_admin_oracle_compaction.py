# SPDX-License-Identifier: Apache-2.0
"""Requests about compaction to our broker and to a real Apache Pulsar: same status, same JSON, same statistics."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

import httpx
import pytest

from broker_core.client import Client
from tests.server.oracle import NOTHING, PATIENCE_S, Ask, Both, N, Q, Side, T, compare

pytestmark = pytest.mark.pulsar

ASKS: Final = [
    Ask("PUT", N),
    Ask("PUT", T, "{}"),
    Ask("PUT", f"{Q}/partitions", "2"),
    Ask("GET", f"{T}/compaction"),
    Ask("PUT", f"{T}/compaction"),  # of an empty topic
    *(Ask(method, f"{NOTHING}/compaction", same=False) for method in ("GET", "PUT")),
    Ask("PUT", f"{Q}/compaction"),
    Ask("GET", f"{N}/compactionThreshold"),
    Ask("GET", f"{T}/compactionThreshold"),
    Ask("GET", f"{T}/compactionThreshold?applied=true"),
    Ask("PUT", f"{N}/compactionThreshold", "10000000000"),
    Ask("GET", f"{N}/compactionThreshold"),
    Ask("GET", f"{T}/compactionThreshold?applied=true"),
    Ask("POST", f"{T}/compactionThreshold", "20000000000"),
    Ask("GET", f"{T}/compactionThreshold"),
    Ask("GET", f"{T}/compactionThreshold?applied=true"),
    Ask("POST", f"{T}/compactionThreshold", "-1", same=False),
    Ask("PUT", f"{N}/compactionThreshold", "-1", same=False),
    Ask("DELETE", f"{T}/compactionThreshold"),
    Ask("GET", f"{T}/compactionThreshold"),
    Ask("DELETE", f"{N}/compactionThreshold"),
    Ask("GET", f"{N}/compactionThreshold"),
]

STATS: Final = (
    *("lastCompactionRemovedEventCount", "lastCompactionSucceedTimestamp"),
    *("lastCompactionFailedTimestamp", "lastCompactionDurationTimeInMills"),
)


def test_requests_are_answered_as_by_apache_pulsar(both: Both) -> None:
    """7.4.5, 7.4.6: the status of a topic that was not compacted, thresholds of both levels."""
    assert compare(both, ASKS) == []


def test_a_compacted_topic_is_shown_as_by_apache_pulsar(both: Both) -> None:
    """7.4.5, 7.4.10, 7.4.12: status, statistics, the cursor among the subscriptions, and its deletion."""
    shown = [_shown(side, both.namespace) for side in both.sides]
    assert shown[0] == shown[1]


def _shown(side: Side, namespace: str) -> dict[str, Any]:
    """The life of one compacted topic, without what depends on a broker's clock and storage."""
    topic = T.format(namespace)
    with side.admin() as admin, Client(side.service_url) as client:
        admin.put(N.format(namespace))
        with client.create_producer(f"{namespace}/t", batching_enabled=False) as producer:
            for key, value in (("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", None), (None, "x")):
                producer.send(value, key=key)
        assert admin.put(f"{topic}/compaction").status_code == 204
        status = _waited(admin, topic)
        stats = _stats_of_the_end(admin, topic)
        internal = admin.get(f"{topic}/internalStats").json()
        cursor = internal["cursors"]["__compaction"]
        found = {
            "status": status,
            "again": admin.put(f"{topic}/compaction").status_code,
            "status of the second": _waited(admin, topic),
            "compaction": {name: bool(stats["compaction"][name]) for name in STATS},
            "removed": stats["compaction"]["lastCompactionRemovedEventCount"],
            "subscriptions": admin.get(f"{topic}/subscriptions").json(),
            "backlog": stats["subscriptions"]["__compaction"]["msgBacklog"],
            "durable": stats["subscriptions"]["__compaction"]["isDurable"],
            "view": {name: internal["compactedLedger"][name] for name in ("entries", "offloaded")},
            "link": cursor["properties"].get("CompactedTopicLedger") == internal["compactedLedger"]["ledgerId"],
            "entry": cursor["markDeletePosition"].split(":")[1],
        }
        found["deleted"] = admin.delete(f"{topic}/subscription/__compaction").status_code
        found["left"] = admin.get(f"{topic}/subscriptions").json()
        return found


def _waited(admin: httpx.Client, topic: str) -> dict[str, Any]:
    """The status of a compaction that is over."""
    return _answer(admin, f"{topic}/compaction", lambda status: status["status"] not in ("RUNNING", "NOT_RUN"))


def _stats_of_the_end(admin: httpx.Client, topic: str) -> dict[str, Any]:
    """Statistics of a topic whose compaction has acknowledged all: Apache Pulsar tells of its success before that."""
    return _answer(admin, f"{topic}/stats", lambda stats: not stats["subscriptions"]["__compaction"]["msgBacklog"])


def _answer(admin: httpx.Client, path: str, is_over: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first answer with which it ``is_over``, or the last one that there was time for."""
    until = time.monotonic() + PATIENCE_S
    while True:
        time.sleep(0.1)  # Only requests tell: this is the time between two of them.
        answer: dict[str, Any] = json.loads(admin.get(path).content)
        if is_over(answer) or time.monotonic() > until:
            return answer
