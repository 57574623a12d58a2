# SPDX-License-Identifier: Apache-2.0
"""What an application may send is checked where it can be told: what passes can be encoded."""

from typing import Any

import pytest

from broker_core.base.errors import UsageError
from broker_core.client import Client
from broker_core.client.batching import BatchBuilder, EntryEncoder, outgoing
from tests.client.helpers import take, values

UNFIT: list[dict[str, Any]] = [
    {"key": "\ud800"},
    {"ordering_key": "text"},
    {"properties": {"a": b"bytes"}},
    {"properties": {"\udfff": "a"}},
    {"event_time_ms": 2**64},
    {"event_time_ms": 1.5},
    {"event_time_ms": -1},
    {"sequence_id": 2**64},
    {"deliver_at_ms": 2**63},
    {"deliver_at_ms": -1},
    {"deliver_after_s": 1e300},
]


@pytest.mark.parametrize("fields", UNFIT)
def test_what_cannot_be_encoded_is_refused(fields: dict[str, Any]) -> None:
    """Later it would fail beside others' messages in a batch, and whoever waits for its receipt would wait for ever."""
    with pytest.raises(UsageError):
        outgoing(b"x", **fields)


def test_the_largest_numbers_can_be_encoded() -> None:
    """A delay is added to the time of publishing, and the next sequence id is one more."""
    encoder = EntryEncoder(0)
    encoder.producer_name = "p"
    builder = BatchBuilder(encoder, 10, 1000)
    for number in range(2):
        fields: dict[str, Any] = {"event_time_ms": 2**62, "deliver_after_s": 2**62 // 1000}
        message = outgoing("ü", key="é", ordering_key=b"o", properties={"ö": "ß"}, **fields)
        builder.add(message, 2**62 + number, None)
        assert len(builder.take_all(2**41)) == 1


def test_a_message_that_is_refused_harms_no_other(client: Client, topic: str) -> None:
    """It is not sent, nobody waits for it, and the producer goes on."""
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    with client.create_producer(topic, batching_max_publish_delay_s=1.0) as producer:
        producer.send_async("before")
        for fields in UNFIT:
            with pytest.raises(UsageError):
                producer.send("never", **fields)
        producer.send("after")
    assert values(take(consumer, 2)) == ["before", "after"]
