# SPDX-License-Identifier: Apache-2.0
"""``Loss``: what is missing, as a value with the ids, and in words. All texts about lost messages are here.

Places are the texts of offsets, ``ledger:entry[:partition:batch][@index]``. Finding a loss is the business of those who
read; what is done about it is ``loss``'s. What is only told, as nothing is known to be lost, is plain text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from broker_core.base.errors import PulsarishError
from broker_core.base.limits import BATCH_MESSAGES_MAX
from broker_core.wire.entry import EntryRef, messages_of
from pulsarish_spark.places.entries import offset_of
from pulsarish_spark.places.topics import TopicPartition

Where: TypeAlias = TopicPartition | str
"""A partition, or what the broker calls it."""

Reason: TypeAlias = Literal[
    "start",
    "gap",
    "end",
    "disagreement",
    "replaced",
    "chunks",
    "undecodable",
    "entries",
    "subscription",
    "partition",
    "left",
]

_NAMED_MAX: Final = 200
"""Characters of a list of entries that an error repeats."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages of one partition that should be read and are not there; ``what`` says so in one line.

    ``first``: the first place that is missing, or the message index that a user named; ``next``: what is there behind
    it; each empty where it is not known, or where there is none. ``messages``: how many are missing, -1 where that is
    not known; ``entries_min``: so many entries are missing, perhaps more. ``entries``: by ledger, where just these are
    missing. ``body``: the entry that cannot be decoded, as it is stored; empty where it is another loss.
    """

    reason: Reason
    where: Where
    what: str
    first: str = ""
    next: str = ""
    messages: int = -1
    entries_min: int = 0
    entries: Mapping[int, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class LogPlaces:
    """Places of a log as the broker has it now: an entry of it, and its end, each as the text of an offset.

    ``begins``: whether ``entry`` is the first of all, else the first at or behind a place; empty: there is none.
    """

    entry: str
    end: str
    begins: bool = False

    def __str__(self) -> str:
        if not self.entry:
            return f"ends at {self.end}"
        return f"{'begins' if self.begins else 'goes on'} at {self.entry} and ends at {self.end}"


def _count(messages: int) -> str:
    return "an unknown number of messages" if messages < 0 else f"{messages} message{'s' if messages != 1 else ''}"


def lost_start(where: Where, what: str, wanted: str, found: str | None, messages: int) -> Loss:
    """The start that a user named was deleted."""
    text = f"{what} is {wanted}, but the first message still there is {found or 'none'}: {_count(messages)} lost"
    return Loss("start", where, text, wanted, found or "", messages)


def lost_beginning(partition: TopicPartition, found: str, messages: int) -> Loss:
    """A partition was added to a topic that is read, and does not begin with its first message."""
    text = f"partition {partition} was added, but the first message still there is {found}: {_count(messages)} lost"
    return Loss("start", partition, text, "0", found, messages)


def lost_added(
    partition: TopicPartition, first: str, start: str, subscription: str, passed: str, messages: int
) -> Loss:
    """A partition was added to a topic that is read, and its subscription has passed over messages of it."""
    text = (
        f'partition {partition} was added, but its subscription "{subscription}" stands after {passed}, where this '
        f"query has not put it, and what comes first is {first or start}: {_count(messages)} lost"
    )
    return Loss("start", partition, text, first, start, messages)


def lost_gap(partition: Where, wanted: str, found: str, messages: int) -> Loss:
    """A range does not go on where it should."""
    text = f"partition {partition} should go on at {wanted}, but the next message is {found}: {_count(messages)} lost"
    return Loss("gap", partition, text, wanted, found, messages)


def lost_before(partition: Where, wanted: str, found: str | None, why: str, entries: int) -> Loss:
    """Checkpoint, subscription and broker disagree; so many entries are known to be missing, perhaps more."""
    comes = "there is nothing at or after it" if found is None else f"the next message is {found}"
    known = f"at least {entries} {'entry' if entries == 1 else 'entries'}" if entries else _count(-1)
    text = f"partition {partition} should go on at {wanted}, but {comes}, and {why}: {known} lost"
    return Loss("disagreement", partition, text, wanted, found or "", entries_min=entries)


def lost_topic(partition: Where, wanted: str, found: str) -> Loss:
    """Message indexes go back: these are other messages than those before."""
    text = f"partition {partition} should go on at {wanted}, but {found} comes next: it was deleted or replaced"
    return Loss("replaced", partition, text, wanted, found)


def lost_tail(partition: Where, wanted: str, end: str, messages: int) -> Loss:
    """A range ends too early."""
    text = f"partition {partition} has nothing between {wanted} and {end}: {_count(messages)} lost"
    return Loss("end", partition, text, wanted, end, messages)


def lost_end(partition: Where, start: str, end: str) -> Loss:
    """The topic now ends before the place that was read already: it was deleted and made again, or restored."""
    text = f"partition {partition} ends at {end}, before {start} where reading should go on: it was deleted or replaced"
    return Loss("replaced", partition, text, start)


def lost_identity(
    partition: Where, wanted: str, read_ms: int, found_ms: int | None, log: LogPlaces, subscription: str, stands: str
) -> Loss:
    """The entry before the place is another one than the query has read there, or is not there (None): the broker was
    restored from an older copy of its data, or its topic was replaced."""
    found = "that entry is not there any more"
    if found_ms is not None:
        found = f"the entry there was published at {_time(found_ms)}"
    text = (
        f"partition {partition} should go on at {wanted}, behind an entry that was published at {_time(read_ms)}, but "
        f'{found}, the log {log}, and its subscription "{subscription}" {stands}: '
        f"the broker was restored from an older copy of its data, or the topic was replaced; reading goes on "
        f"behind what the subscription has acknowledged, and rows may come again: {_count(-1)} lost"
    )
    return Loss("replaced", partition, text, wanted)


def lost_queue_identity(
    partition: TopicPartition,
    entry: str,
    read_ms: int,
    found_ms: int | None,
    log: LogPlaces,
    subscription: str,
    mark: str,
) -> Loss:
    """The same of the last entry that a batch of a shared subscription has of a partition; None: it is not there."""
    found = "is not there any more" if found_ms is None else f"was published at {_time(found_ms)} now"
    text = (
        f"partition {partition}: entry {entry}, of which a batch of the checkpoint has what was published at "
        f'{_time(read_ms)}, {found}, the log {log}, and subscription "{subscription}" stands after {mark}: the broker '
        "was restored from an older copy of its data, or the topic was replaced; what the subscription has not "
        f"acknowledged is processed, and rows may come again: {_count(-1)} lost"
    )
    return Loss("replaced", partition, text, entry)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def lost_chunks(partition: Where, what: str) -> Loss:
    """A message in chunks is not there whole."""
    return Loss("chunks", partition, f"partition {partition}: {what}: 1 message lost", messages=1)


def lost_undecodable(
    partition: TopicPartition, entry: EntryRef, failure: PulsarishError, messages: int | None = None
) -> Loss:
    """An entry is there and cannot be decoded. ``messages``: how many of it are wanted; None: as many as it has."""
    if messages is None:
        stated = messages_of(entry.body)
        messages = stated if stated <= BATCH_MESSAGES_MAX else -1
    return Loss(
        "undecodable",
        partition,
        f"partition {partition}: {failure.message}: {_count(messages)} lost",
        offset_of(entry).text(partition.partition),
        messages=messages,
        entries_min=1,
        entries={entry.ledger: str(entry.entry)},
        body=bytes(entry.body),
    )


def lost_partition(partition: TopicPartition, start: str) -> Loss:
    """A partition that was read does not exist any more."""
    return Loss(
        "partition", partition, f"partition {partition}, to be read on at {start}, does not exist any more", start
    )


def left_partition(partition: TopicPartition, start: str, subscription: str) -> Loss:
    """The options do not name it any more."""
    text = (
        f'partition {partition}, to be read on at {start}, is not read any more; its subscription "{subscription}" '
        "stays on the broker and keeps what was not read, until somebody deletes it"
    )
    return Loss("left", partition, text, start)


def _shown(entries: Mapping[int, str]) -> str:
    named = "; ".join(f"{ledger}:{found}" for ledger, found in entries.items())
    return named if len(named) <= _NAMED_MAX else named[:_NAMED_MAX] + "..."


def lost_entries(partition: TopicPartition, gone: Mapping[int, str]) -> Loss:
    """Entries of a batch, by ledger, that are not there any more."""
    text = (
        f"partition {partition} does not have the entries {_shown(gone)} any more, which the checkpoint has in this "
        "batch; they were acknowledged by another consumer, or deleted: an unknown number of messages lost"
    )
    return Loss("entries", partition, text, entries=gone)


def lost_with_partition(partition: TopicPartition, noted: Mapping[int, str]) -> Loss:
    """Entries of a batch, by ledger, of a partition that the query has no more."""
    text = (
        f"the checkpoint has the entries {_shown(noted)} of partition {partition} in this batch, which does not exist "
        "any more, or is not named by the options any more: an unknown number of messages lost"
    )
    return Loss("entries", partition, text, entries=noted)


def lost_subscription(partition: TopicPartition, subscription: str) -> Loss:
    """A subscription that a query shares was deleted."""
    text = (
        f'subscription "{subscription}" of partition {partition} was deleted, and with it which messages were not '
        "processed yet; a new one begins with the first message that is there"
    )
    return Loss("subscription", partition, text)


def lost_queue(partition: TopicPartition, subscription: str) -> Loss:
    """A partition whose messages a query shares was deleted."""
    text = f'partition {partition} does not exist any more, nor what subscription "{subscription}" had not processed'
    return Loss("partition", partition, text)


# -- told, though nothing is known to be lost


def subscription_gone(partition: TopicPartition, subscription: str, wanted: str) -> str:
    """The subscription is made anew, and nothing is known to be lost."""
    return (
        f'subscription "{subscription}" of partition {partition} was deleted; it is made anew at {wanted}, '
        "and what comes there is still known"
    )


def subscription_renamed(partition: TopicPartition, former: str, subscription: str, wanted: str) -> str:
    """The user has given a running checkpoint another subscription."""
    return (
        f'the checkpoint of partition {partition} was made with subscription "{former}"; "{subscription}" begins at '
        f"{wanted}. The former one stays on the broker and keeps what was not read, until somebody deletes it"
    )


def moved_ahead(partition: TopicPartition, subscription: str, mark_delete: str, wanted: str) -> str:
    """The subscription no longer keeps what is to be read, and all of it is still there."""
    return (
        f'subscription "{subscription}" of partition {partition} stands after {mark_delete}, ahead of {wanted} where '
        "reading goes on: somebody has skipped or reset it, or messages have expired; what is there is read, "
        "but the broker may delete it any moment"
    )
