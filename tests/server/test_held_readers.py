# SPDX-License-Identifier: Apache-2.0
"""Transactions that hold topics back, as clients with and without rights learn of them over the admin REST."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from broker_core.base.errors import AuthorizationError
from broker_core.base.names import TopicName
from broker_core.client.admin import AdminApi
from broker_core.client.credentials.authentication import AuthenticationToken
from broker_core.client.held_readers import long_held_back
from broker_core.testing.raw_client import must_succeed
from broker_core.testing.running_broker import RunningBroker
from tests.server.credentials import token
from tests.server.rights_world import WHO, furnish, hello, secured
from tests.server.transaction_client import MINUTE_MS, TransactionClient

LATER_MS: Final = 4_000_000_000_000


def test_the_first_that_has_sent_is_told_if_it_may_last(broker: RunningBroker, topic: str) -> None:
    """9.9.3: not one that is aborted before it is a minute old, nor one that waits behind the first."""
    name, other = TopicName.parse(topic), TopicName.parse(f"{topic}-other")
    with TransactionClient(broker.service_url) as client, AdminApi(broker.http_url, timeout_s=60) as admin:
        must_succeed(client.open_producer(topic))
        short, first, second = client.new(ttl_ms=MINUTE_MS - 1), client.new(), client.new()
        client.send_in(short, "a0", sequence_id=0)
        client.send_in(first, "b0", sequence_id=1)
        client.send_in(second, "c0", sequence_id=2)
        assert long_held_back(admin, [name, other], LATER_MS) == {}
        client.end(short, commit=True)
        (held,) = long_held_back(admin, [name, other], LATER_MS).values()
        assert held[:2] == (topic, f"({first.most_bits},{first.least_bits})")
        opened_ms = int(admin.transaction(first)["openTimestamp"])
        assert long_held_back(admin, [name], opened_ms + MINUTE_MS - 1) == {}
        assert long_held_back(admin, [name], opened_ms + MINUTE_MS)[name].open_s == 60
        for each in (first, second):
            client.end(each, commit=False)
        assert long_held_back(admin, [name], LATER_MS) == {}


@pytest.mark.parametrize(("who", "is_told"), [("superuser", True), ("consumes everywhere", True), ("nobody", False)])
def test_whoever_may_read_the_topic_is_told(who: str, is_told: bool) -> None:
    """9.9.1, 9.9.3: only superusers see transactions, but what holds a topic back is a property of the topic."""
    with secured() as world:
        furnish(world, "acme/ns")
        topic = "persistent://acme/ns/plain"
        with TransactionClient(world.server.service_url, connect=False) as client:
            assert client.ask(hello(WHO["superuser"])).HasField("connected")
            must_succeed(client.open_producer(topic))
            name = client.new()
            client.send_in(name, "a0")
            shows = AuthenticationToken(token(WHO[who].role))
            with AdminApi(world.server.http_url, timeout_s=60, authentication=shows) as admin:
                found = long_held_back(admin, [TopicName.parse(topic), TopicName.parse(f"{topic}-none")], LATER_MS)
                if who != "superuser":
                    with pytest.raises(AuthorizationError, match="does not allow this"):
                        admin.open_transactions()
            assert [each.transaction for each in found.values()] == [f"({name.most_bits},{name.least_bits})"] * is_told
            client.end(name, commit=False)


def test_a_broker_without_transactions_holds_nothing_back(data_dir: Path) -> None:
    """9.2.3: and that is no error."""
    with (
        RunningBroker(data_dir, {"transactionCoordinatorEnabled": False}) as broker,
        AdminApi(broker.http_url, timeout_s=60) as admin,
    ):
        assert long_held_back(admin, [TopicName.parse("t")], LATER_MS) == {}
