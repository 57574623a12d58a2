# SPDX-License-Identifier: Apache-2.0
"""Messages in chunks while a Failover subscription passes from one consumer to another, on both servers."""

from __future__ import annotations

from broker_core.client import Client
from tests.client.conftest import Service
from tests.client.helpers import assert_nothing_comes, eventually, take, values
from tests.client.raw_chunks import RawChunks

EXPIRE_S = 2.0
"""When the one that stands by would give up what it has; the other begins within a second (2.3.4.1)."""


def test_who_stands_by_gives_up_no_chunks_of_the_active_one(client: Client, service: Service, topic: str) -> None:
    """5.3.7, 5.3.9, 2.3.4.3: it acknowledged the first chunk, and whoever had the whole message could lose it."""
    options = {"type": "failover", "expire_time_of_incomplete_chunked_message_s": EXPIRE_S}
    first = client.subscribe(topic, "s", priority_level=1, **options)  # type: ignore[arg-type]
    raw = RawChunks(service.service_url, topic)
    with raw.connection:
        raw.send("A0", 2)
        eventually(lambda: first.stats().entries_received == 1, "it has the first chunk")
        with client.subscribe(topic, "s", type="failover") as second:
            eventually(lambda: second.stats().incomplete_chunked_messages == 1, "the other one has it too")
            assert first.stats().incomplete_chunked_messages == 0
            assert_nothing_comes(first, EXPIRE_S + 0.5)
            raw.send("A1", 2)
            assert values(take(second, 1)) == ["abcdefghij" * 2]
        # An Apache Pulsar that hears of the close just before it has noted that the last chunk left waits for what is
        # published next, for the new active consumer, and its rewind a second later is in vain until something is.
        eventually(lambda: first.is_active, "it has taken over")
        raw.send("B0", 1)
        assert values(take(first, 2)) == ["abcdefghij" * 2, "abcdefghij"]
