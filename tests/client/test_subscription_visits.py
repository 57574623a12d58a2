# SPDX-License-Identifier: Apache-2.0
"""What Apache Pulsar may answer for a moment, because somebody has asked whether a subscription is there."""

from __future__ import annotations

import asyncio

from broker_core.base.errors import NotAllowedError
from broker_core.client.async_client import AsyncClient
from broker_core.client.settings.config import ClientConfig
from broker_core.wire.commands import error, success
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.scripted_broker import Peer, scripted_broker


def test_a_subscription_that_is_refused_for_a_visitor_of_its_name_is_made_later() -> None:
    """The broker removes what the question has left behind some time after its consumer, and refuses until then."""
    refusals = [
        "NonDurable subscription with the same name already exists.",
        "NonDurable subscription with the same name already exists.",
    ]

    def subscribe(peer: Peer, command: BaseCommand) -> None:
        body = command.subscribe
        if not body.durable:
            says = NotAllowedError("Durable subscription with the same name already exists.")
            peer.send(error(body.request_id, says))
        elif refusals:
            peer.send(error(body.request_id, NotAllowedError(refusals.pop())))
        else:
            peer.send(success(body.request_id))

    async def play() -> None:
        async with scripted_broker() as broker, AsyncClient(ClientConfig(service_url=broker.service_url)) as client:
            broker.handlers[BaseCommand.SUBSCRIBE] = subscribe
            consumer = await client.subscribe_entries("t", "work")
            assert consumer.is_attached

    asyncio.run(play())
    assert refusals == []
