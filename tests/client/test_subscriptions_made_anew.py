# SPDX-License-Identifier: Apache-2.0
"""A subscription that is deleted between the question whether it is there and the SUBSCRIBE, which makes it anew."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from broker_core.base.names import TopicName
from broker_core.client import Client
from broker_core.client.columnar import durable_subscribing
from broker_core.client.connecting.connection import Connection
from broker_core.client.connecting.subscribing import is_subscription_there
from tests.client.conftest import Service, admin_path
from tests.client.helpers import eventually, send
from tests.client.test_entry_consumer import Inbox, topic_made


@contextmanager
def deleted_behind_the_answer(service: Service, topic: str) -> Iterator[None]:
    """The next answer that a subscription of ``topic`` is there is true no more when its asker goes on."""
    has_deleted = False

    async def ask_and_delete(connection: Connection, visitor_id: int, of: TopicName, subscription: str) -> bool:
        nonlocal has_deleted
        is_there = await is_subscription_there(connection, visitor_id, of, subscription)
        if is_there and not has_deleted:
            has_deleted = True
            path = f"{admin_path(topic)}/subscription/{subscription}?force=true"
            await asyncio.to_thread(service.admin, "DELETE", path)
        return is_there

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable_subscribing, "is_subscription_there", ask_and_delete)
        yield
    assert has_deleted


def test_a_queue_that_is_made_anew_gives_what_the_former_one_had_not_given(
    service: Service, client: Client, topic: str
) -> None:
    """It begins at the first entry, wherever the former one began: at the end it would skip messages in silence."""
    topic_made(client, topic)
    client.subscribe(topic, "other").close()  # Apache Pulsar deletes what no subscription keeps.
    with client.subscribe_entries(topic, "s", initial_position="latest", queue_size=0) as consumer:
        send(client, topic, 10, batched=False)
        session = consumer.session
        with deleted_behind_the_answer(service, topic):
            service.admin("PUT", f"{admin_path(topic)}/unload")
            eventually(lambda: consumer.session > session and consumer.is_attached, "the consumer is back")
        consumer.resize(100)
        assert len(Inbox(consumer).wait_for(10)) == 10
