# SPDX-License-Identifier: Apache-2.0
"""The topics of the transaction rig, their subscriptions, and what their messages are like.

The checker knows partitions, each by its own name, and no partitioned topics. The value of a message in chunks has a
tail, which is the same for all of them and of which nothing may be missing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker_core.base.hashing import partition_of_key
from broker_core.client import Message
from broker_core.client.settings.config import SubscriptionType
from tests.kill.txn_history import Place


class Kind(NamedTuple):
    """How messages of a topic come; ``partitions`` 0: it has none."""

    batches: bool = False
    chunks: bool = False
    partitions: int = 0


INPUTS: Final = {
    "batched": Kind(batches=True),
    "single": Kind(),
    "chunked": Kind(chunks=True),
    "parts": Kind(batches=True, partitions=2),
}
"""Topics that are taken from."""

OUTPUTS: Final = {"B": Kind(), "C": Kind(), "D": Kind(partitions=3)}
"""Topics to which each transaction writes; of the last one to one partition or more."""

WORKERS: Final[dict[str, SubscriptionType]] = {
    "shared-0": "shared",
    "shared-1": "shared",
    "exclusive-0": "exclusive",
    "failover-0": "failover",
    "keyed-0": "key_shared",
    "keyed-1": "key_shared",
}
"""Clients -> type of their subscriptions, which is the subscription's name too."""

CUMULATIVE: Final = ("exclusive", "failover")
"""Types whose messages are acknowledged cumulatively. All consumers of such a subscription are in one process, where
one after the other takes messages: nobody else could tell whose transaction is open, and what it acknowledges."""

CHUNK_BYTES: Final = 1024
TAIL: Final = "." * 3000
KEYS: Final = 16


def partition_name(topic: str, number: int) -> str:
    """The name of one partition."""
    return f"{topic}-partition-{number}"


def names_of(topic: str, kind: Kind) -> list[str]:
    """The topic, or its partitions."""
    return [partition_name(topic, number) for number in range(kind.partitions)] or [topic]


def whole_topic(name: str) -> str:
    """The topic that a producer opens to write to ``name``."""
    return name.partition("-partition-")[0]


def keys_of(name: str) -> list[str]:
    """The keys of messages that go to ``name``."""
    keys = [f"k{number}" for number in range(KEYS)]
    topic, _, number = name.partition("-partition-")
    if not number:
        return keys
    count = {**INPUTS, **OUTPUTS}[topic].partitions
    return [key for key in keys if partition_of_key(key, count) == int(number)]


def is_taken(topic: str, subscription: SubscriptionType) -> bool:
    """Whether workers of that type take from the topic. A cumulative acknowledgement concerns one partition."""
    return not (INPUTS[topic].partitions and subscription in CUMULATIVE)


TOPICS: Final = [name for topic, kind in {**INPUTS, **OUTPUTS}.items() for name in names_of(topic, kind)]
PLACES: Final = [
    Place(name, subscription)
    for topic, kind in INPUTS.items()
    for subscription in dict.fromkeys(WORKERS.values())
    if is_taken(topic, subscription)
    for name in names_of(topic, kind)
]


def place_of(message: Message, subscription: str) -> Place:
    """Where a consumer of the subscription got it."""
    return Place(message.topic.rpartition("/")[2], subscription)


def text_of(message: Message) -> str:
    """The value of a message, without its tail."""
    return text_of_value(message.value or b"")


def text_of_value(value: bytes) -> str:
    """The same of the value alone. A tail that is not whole makes it another value."""
    text, separator, tail = value.decode(errors="replace").partition("\n")
    return text if tail == (TAIL if separator else "") else f"{text} with {len(tail)} bytes of its tail"
