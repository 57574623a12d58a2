# SPDX-License-Identifier: Apache-2.0
"""What several tests of the client do: send numbered messages, take messages, wait for something to become true."""

import json
import time
from collections.abc import Callable

import pytest

from broker_core.base.errors import OperationTimeoutError
from broker_core.client import Client, Consumer, Message, Reader
from tests.client.conftest import Service, admin_path

WAIT_S = 15.0
"""How long something may take on a busy machine before a test fails."""

QUIET_S = 0.3
"""How long to look before saying that nothing comes."""


EARLY_S = 1.0 + 0.512
"""A delayed message may come so much before its time: a tick, and a step of the in-memory tracker (6.1.3, 6.3.1)."""


def send(client: Client, topic: str, count: int, *, batched: bool = True, first: int = 0) -> None:
    """Send the messages ``m<first>`` and so on, in batches of ten or one by one."""
    options = {"batching_max_messages": 10, "batching_max_publish_delay_s": 60.0} if batched else {}
    with client.create_producer(topic, batching_enabled=batched, **options) as producer:  # type: ignore[arg-type]
        for number in range(first, first + count):
            producer.send_async(f"m{number}")


def take(source: Consumer | Reader, count: int) -> list[Message]:
    """The next ``count`` messages."""
    receive = source.receive if isinstance(source, Consumer) else source.read_next
    return [receive(WAIT_S) for _ in range(count)]


def values(messages: list[Message]) -> list[str]:
    """The values of ``messages`` as text."""
    return [(message.value or b"").decode() for message in messages]


def numbered(first: int, end: int) -> list[str]:
    """What ``send`` sends."""
    return [f"m{number}" for number in range(first, end)]


def assert_nothing_comes(consumer: Consumer, for_s: float = QUIET_S) -> None:
    """No message within a short while."""
    with pytest.raises(OperationTimeoutError):
        consumer.receive(for_s)


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Return when ``condition`` holds."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not in {WAIT_S:g} s: {what}"
        time.sleep(0.01)


def is_all_acknowledged(consumer: Consumer) -> bool:
    """Whether nothing is left in the backlog of any topic of ``consumer``."""
    lasts = consumer._thread.run(consumer._inner.last_messages())
    return all(last.message_id.entry < 0 or last.mark_delete == last.message_id.position for last in lasts)


def unload_under(consumer: Consumer, service: Service, topic: str) -> None:
    """Have the topic unloaded, and return when ``consumer`` is attached again: before, another unload may miss it."""
    part = consumer._inner.children[0]
    attachments = part.attachments
    service.admin("PUT", f"{admin_path(topic)}/unload")
    eventually(
        lambda: part.attachments > attachments and part._attachment.connection is not None,
        "the consumer is attached again",
    )


def until_acks_are_stored(service: Service, topic: str, subscription: str = "s") -> None:
    """Return when the first acknowledgements of a subscription are stored.

    Apache Pulsar confirms them while it makes the ledger for them, and a seek that comes then is undone when the ledger
    is there: one in 3,500 was lost, none after this.
    """

    def stored() -> bool:
        cursor = json.loads(service.admin("GET", f"{admin_path(topic)}/internalStats"))["cursors"][subscription]
        return bool(cursor["state"] == "Open" and cursor["cursorLedgerLastEntry"] > 0)

    if service.kind == "apache":
        eventually(stored, "the first acknowledgements are stored")
