# SPDX-License-Identifier: Apache-2.0
"""Messages in chunks whose key passes to another consumer of a Key_Shared subscription amid them, on both servers."""

from __future__ import annotations

from typing import Any, Final

from broker_core.client import Client, Consumer
from tests.client.conftest import Service
from tests.client.helpers import eventually, values
from tests.client.raw_chunks import RawChunks

EXPIRE_S: Final = 2.0
MESSAGES: Final = 16
"""Some of so many keys are the second consumer's, some stay with the first."""


def test_a_consumer_that_joins_amid_messages_tears_none(client: Client, service: Service, topic: str) -> None:
    """5.3.7, 2.4.7: who had the first chunks acknowledged them after the expiry, and the rest came to the other one."""
    options: Any = {
        "type": "key_shared",
        "expire_time_of_incomplete_chunked_message_s": EXPIRE_S,
        "max_pending_chunked_message": MESSAGES,
    }
    first = client.subscribe(topic, "s", **options)
    raw = RawChunks(service.service_url, topic)
    names = [chr(ord("A") + number) for number in range(MESSAGES)]
    with raw.connection:
        for name in names:
            raw.send(f"{name}0", 2, name.encode() * 5, key=name)
        eventually(lambda: first.stats().entries_received == MESSAGES, "it has the first chunks")
        with client.subscribe(topic, "s", **options) as second:
            for name in names:
                raw.send(f"{name}1", 2, name.encode() * 5, key=name)
            got: list[tuple[str, Consumer]] = []

            def all_came() -> bool:
                for consumer in (first, second):
                    for message in consumer.batch_receive(timeout_s=0.1):
                        got.append((values([message])[0], consumer))
                        consumer.acknowledge(message)
                return len(got) >= MESSAGES

            eventually(all_came, "each message is put together by one of them")
    assert sorted(text for text, _ in got) == [name * 10 for name in names]
    assert {consumer for _, consumer in got} == {first, second}
