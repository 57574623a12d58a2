# SPDX-License-Identifier: Apache-2.0
"""LOOKUP over the binary protocol: which names are not served, with the codes of a real Apache Pulsar."""

from __future__ import annotations

from typing import Final

import httpx
import pytest

from broker_core.testing.raw_client import RawClient
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandLookupTopicResponse
from tests.server.oracle import Both

T: Final = "public/default/t"
REFUSED: Final = (
    (f"persistent://{T}", "nowhere", pb.ServiceNotReady),
    ("persistent://public/nowhere/t", "", pb.TopicNotFound),
    ("non-persistent://public/nowhere/t", "", pb.TopicNotFound),
    ("persistent://nobody/nowhere/t", "", pb.TopicNotFound),
    ("persistent://public/nowhere/t", "nowhere", pb.TopicNotFound),
)
"""Topic, listener name and code."""


def refusal(service_url: str, topic: str, listener: str) -> tuple[int, str]:
    """The code and the text; code -1 if the topic is served."""
    with RawClient(service_url) as client:
        command = BaseCommand(type=BaseCommand.LOOKUP, lookupTopic={"topic": topic, "request_id": 7})
        if listener:
            command.lookupTopic.advertised_listener_name = listener
        answer = client.ask(command).lookupTopicResponse
        failed = answer.response == CommandLookupTopicResponse.Failed
        return (answer.error if failed else -1), answer.message


@pytest.mark.parametrize(("topic", "listener", "code"), REFUSED)
def test_what_is_not_served_is_refused_with_a_reason(
    broker: RunningBroker, topic: str, listener: str, code: int
) -> None:
    """1.1.5: a namespace that does not exist, and a listener that the broker does not have, both named in the text."""
    found, text = refusal(broker.service_url, topic, listener)
    assert found == code
    assert (listener if code == pb.ServiceNotReady else topic.partition("://")[2].removesuffix("/t")) in text


def test_a_lookup_over_http_refuses_a_listener_too(broker: RunningBroker) -> None:
    """In the query or in the header, as clients send it."""
    url = f"{broker.http_url}/lookup/v2/topic/persistent/{T}"
    for query, headers in (("?listenerName=nowhere", {}), ("", {"X-Pulsar-ListenerName": "nowhere"})):
        answer = httpx.get(f"{url}{query}", headers=headers, timeout=60)
        assert answer.status_code == 400
        assert "nowhere" in answer.json()["reason"]
    assert httpx.get(url, timeout=60).status_code == 200


@pytest.mark.pulsar
def test_lookups_are_refused_with_pulsars_codes(both: Both) -> None:
    """1.1.5: the same requests to a real one."""
    for topic, listener, _code in (*REFUSED, (f"persistent://{T}", "", -1)):
        ours, theirs = (refusal(side.service_url, topic, listener)[0] for side in both.sides)
        assert ours == theirs, (topic, listener)
