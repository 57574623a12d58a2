# SPDX-License-Identifier: Apache-2.0
"""What load processes hand to the rig when they end: JSON files, and how they become the histories of topics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.kill.history import Message, Session, Slot, TopicHistory


class Receipt(NamedTuple):
    """A confirmed send."""

    topic: str
    message: Message
    slot: Slot


class SentRecord(msgspec.Struct, frozen=True):
    """What one producer did. ``topics`` are those (partitions) that its messages may have gone to.

    ``unknown``: the numbers of messages that the client gave up at some time; they may be confirmed later, or earlier.
    ``known``: the numbers of messages that the broker confirmed without a place, because it had them already.
    ``due_ms``: when each message may be delivered, by its number, for those that are delayed.
    """

    producer: str
    topics: list[str]
    sent: int
    receipts: list[Receipt]
    unknown: list[int] = []
    known: list[int] = []
    due_ms: dict[int, int] = {}

    def given_up(self) -> set[Message]:
        """What it never got confirmed, its client having given it up."""
        confirmed = {receipt.message for receipt in self.receipts}
        confirmed |= {Message(self.producer, number) for number in self.known}
        return {Message(self.producer, number) for number in self.unknown} - confirmed


class Delivery(NamedTuple):
    """A message with one consumer. ``taken`` and ``released`` count on one clock of all consumers.

    ``released``: just before it was acknowledged or the consumer left; -1: never, while its broker (``life``) lived.
    """

    consumer: str
    life: int
    key: str
    slot: Slot
    message: Message
    at_ms: int
    taken: int
    released: int = -1


class ConsumedRecord(msgspec.Struct, frozen=True):
    """What one consumer of one topic did."""

    topic: str
    subscription: str
    sessions: list[Session]
    acked: list[tuple[Slot, float]]
    deliveries: list[Delivery] = []


class Records(msgspec.Struct, frozen=True):
    """The whole file of one load process."""

    sent: list[SentRecord]
    consumed: list[ConsumedRecord]


def save(path: Path, records: Records) -> None:
    """Write the file of one load process."""
    path.write_bytes(msgspec.json.encode(records))


def load(paths: Iterable[Path]) -> list[Records]:
    """The files of all load processes."""
    return [msgspec.json.decode(path.read_bytes(), type=Records) for path in paths]


def histories(loads: Iterable[Records]) -> dict[str, TopicHistory]:
    """The histories of all topics, without their logs."""
    topics: dict[str, TopicHistory] = defaultdict(TopicHistory)
    for records in loads:
        for sent in records.sent:
            for topic in sent.topics:
                topics[topic].sent[sent.producer] = sent.sent
                topics[topic].given_up |= sent.given_up()
            for receipt in sent.receipts:
                topics[receipt.topic].receipts[receipt.message] = receipt.slot
        for consumed in records.consumed:
            topics[consumed.topic].sessions[consumed.subscription] += consumed.sessions
            acked_at = topics[consumed.topic].acked_at[consumed.subscription]
            for slot, confirmed_at in consumed.acked:
                acked_at[slot] = min(confirmed_at, acked_at.get(slot, confirmed_at))
    return topics
