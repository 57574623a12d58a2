# SPDX-License-Identifier: Apache-2.0
"""Offsets of queue mode: one says which entries one batch has, not what has been read so far.

    {"queue": 1, "n": 41, "m": 100000,
     "topics": {"persistent://public/default/orders": {"0": {"17": "0-99999", "18": "4-90,93,97-120"}}},
     "part":   {"persistent://public/default/orders": {"0": {"18:93": "3f0"}}},
     "again":  {"persistent://public/default/orders": {"0": {"2": {"18": "93"}}}},
     "published": {"persistent://public/default/orders": {"0": 1795735412881}},
     "lock": {"own": "0:1187", "until": 1795735412881, "next": "0:1190"}}

``queue`` is the version of this form. ``n`` counts batches of the query, so that no offset equals its predecessor, and
``m`` is how many messages the batch has, for people who read the offset. ``topics`` has the entries of each partition
by ledger, in the words of ``entry_ids``. ``part`` has entries of which others had acknowledged some messages: those
left, in hex, bit i for batch index i. ``again`` has entries that were given out before, by how often. Both change from
delivery to delivery, so a replay can only give the same rows if they are noted. ``published`` is the publish time, in
milliseconds, of the last entry of each partition: a broker that was restored from an older copy gives its id to another
entry. ``lock``, where batches are locked: the transaction that holds the entries of the batch, if it has any, the
time until which it does, and the transaction that will hold those of the next batch. Keys are sorted: one batch has
one text. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from broker_core.base.errors import UsageError
from broker_core.base.positions import Position, positions_of
from broker_core.wire.heads import TxnId
from pulsarish_spark.places.offsets import by_partition, by_topic
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.queue.entry_ids import Entries, EntryOrRun, EntryRun, entries_of_text, entries_to_text, ids_of

FORM: Final = 1

TEXT_BYTES_MAX: Final = 256 * 1024
"""Size of one offset: Spark keeps it in memory, in its log and in each progress report."""

IdTexts: TypeAlias = Mapping[int, str]
"""Entries by ledger."""

_POSITION: Final = re.compile(r"(\d+):(\d+)")
_TXN_ID: Final = re.compile(r"(-?\d+):(-?\d+)")


@dataclass(frozen=True, slots=True)
class PartitionBatch:
    """The entries of one batch in one partition; they travel to the tasks."""

    ids: IdTexts
    parts: Mapping[Position, int] = field(default_factory=dict)
    again: Mapping[int, IdTexts] = field(default_factory=dict)
    published_ms: int | None = None
    """The publish time of the last entry; None in offsets of older versions, too."""

    @property
    def last(self) -> Position:
        """The last entry, by position."""
        ledger = max(self.ids)
        return Position(ledger, int(entries_of_text(self.ids[ledger])[-1]))

    def entries(self) -> dict[int, Entries]:
        """The entries by ledger, sorted."""
        return {ledger: entries_of_text(text) for ledger, text in sorted(self.ids.items())}

    def positions(self) -> list[Position]:
        """The positions of all entries, in their order."""
        return [each for ledger, entries in self.entries().items() for each in positions_of(ledger, entries.tolist())]

    def redelivered(self) -> list[tuple[int, int, Entries]]:
        """Redelivery count, ledger and entries, of what was given out before."""
        return [
            (count, ledger, entries_of_text(text))
            for count, ids in sorted(self.again.items())
            for ledger, text in ids.items()
        ]

    @classmethod
    def of(cls, given: Collection[EntryOrRun]) -> PartitionBatch:
        """Make it of ``given``, which are in any order, each once."""
        single = [each for each in given if not isinstance(each, EntryRun)]
        counts = {each.redelivery_count for each in single} - {0}
        again = {count: id_texts([each for each in single if each.redelivery_count == count]) for count in counts}
        parts = {each.position: each.unacked for each in single if each.unacked is not None}
        return cls(id_texts(given), parts, again)


@dataclass(frozen=True, slots=True)
class BatchLock:
    """Transactions of a batch: ``own`` holds its entries, at least until ``until_ms``, and ``next`` will hold those of
    the next one. ``own`` None: the batch has none, and is there to name ``next``."""

    own: TxnId | None
    until_ms: int
    next: TxnId

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, in the one order."""
        own = {} if self.own is None else {"own": _txn_text(self.own), "until": self.until_ms}
        return own | {"next": _txn_text(self.next)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> BatchLock:
        """Read ``to_json()`` back."""
        own = _txn_id(document["own"]) if "own" in document else None
        return cls(own, int(document.get("until", 0)), _txn_id(document["next"]))


@dataclass(frozen=True)
class QueueOffset:
    """The entries of batch ``n``, which hold ``messages``; none before the first batch."""

    n: int = 0
    messages: int = 0
    partitions: Mapping[TopicPartition, PartitionBatch] = field(default_factory=dict)
    lock: BatchLock | None = None

    @property
    def text_bytes(self) -> int:
        """Length of the offset's text."""
        return len(json.dumps(self.to_json()))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, in the one order."""
        document: dict[str, Any] = {"queue": FORM, "n": self.n}
        if self.n:
            document["m"] = self.messages
        tables: dict[str, dict[TopicPartition, Any]] = {"topics": {}, "part": {}, "again": {}, "published": {}}
        for key, batch in self.partitions.items():
            tables["topics"][key] = _ledgers(batch.ids)
            tables["part"][key] = {str(at): f"{bits:x}" for at, bits in sorted(batch.parts.items())}
            tables["again"][key] = {str(count): _ledgers(ids) for count, ids in sorted(batch.again.items())}
            tables["published"][key] = batch.published_ms
        filled = {word: {key: told for key, told in table.items() if told} for word, table in tables.items()}
        document |= {word: by_topic(table) for word, table in filled.items() if table}
        return document if self.lock is None else document | {"lock": self.lock.to_json()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> QueueOffset:
        """Read ``to_json()`` back; UsageError for an offset that this version cannot read."""
        if "queue" not in document:
            raise UsageError(
                "the checkpoint was made by a query without a subscriptionType, and this one has one",
                hint="remove subscriptionType, or use a new checkpoint folder",
            )
        try:
            return cls._read(document)
        except (ValueError, AttributeError, TypeError, KeyError) as error:
            raise UsageError(
                f"the checkpoint holds an offset that cannot be read: {error}",
                hint="it was made by a newer version, or changed by hand; use a new checkpoint folder",
            ) from error

    @classmethod
    def _read(cls, document: Mapping[str, Any]) -> QueueOffset:
        if document["queue"] != FORM or not isinstance(document["n"], int):
            raise ValueError(f"its form is {document['queue']!r}, and this version reads {FORM}")
        ids, parts, again, published = (
            by_partition(document.get(word, {})) for word in ("topics", "part", "again", "published")
        )
        partitions = {
            key: PartitionBatch(
                _texts(ledgers),
                {_position(at): int(bits, 16) for at, bits in parts.get(key, {}).items()},
                {int(count): _texts(found) for count, found in again.get(key, {}).items()},
                int(published[key]) if key in published else None,
            )
            for key, ledgers in ids.items()
        }
        lock = BatchLock.from_json(document["lock"]) if "lock" in document else None
        return cls(document["n"], int(document.get("m", 0)), partitions, lock)


@dataclass(frozen=True, slots=True)
class QueueBacklog:
    """The backlog of a subscription beside the batch that the query has, as its progress reports tell it.

        {"queue": 1, "behind": {"persistent://public/default/orders": {"0": 12, "1": null}}}

    ``entries``, as brokers count a backlog: those of each partition that nobody has acknowledged and that are in no
    batch, given to other consumers and delayed ones among them; None: not known.
    """

    entries: Mapping[TopicPartition, int | None]

    @classmethod
    def beside(cls, batch: QueueOffset, unacked: Mapping[TopicPartition, int | None]) -> QueueBacklog:
        """``unacked``, as the broker counts it, without the entries of ``batch``, which is not acknowledged.

        Where the broker counts fewer than those, somebody else has acknowledged some of them, and nobody knows how
        many: then nothing is known of the rest.
        """
        found: dict[TopicPartition, int | None] = dict(unacked)
        for key, part in batch.partitions.items():
            if (count := found.get(key)) is not None:
                left = count - sum(len(entries) for entries in part.entries().values())
                found[key] = left if left >= 0 else None
        return cls(found)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, in the one order."""
        return {"queue": FORM, "behind": by_topic(self.entries)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> QueueBacklog | None:
        """Read ``to_json()`` back; None for anything else."""
        if document.get("queue") != FORM or not isinstance(document.get("behind"), Mapping):
            return None
        return cls(by_partition(document["behind"]))


def id_texts(given: Iterable[EntryOrRun]) -> dict[int, str]:
    """Entries in any order, as texts by ledger."""
    return {ledger: entries_to_text(entries) for ledger, entries in ids_of(given).items()}


def _ledgers(ids: IdTexts) -> dict[str, str]:
    return {str(ledger): ids[ledger] for ledger in sorted(ids)}


def _texts(ledgers: Mapping[str, str]) -> dict[int, str]:
    """IdTexts, each of which can be read."""
    for text in ledgers.values():
        entries_of_text(text)
    return {int(ledger): text for ledger, text in ledgers.items()}


def _position(text: str) -> Position:
    found = _POSITION.fullmatch(text)
    if found is None:
        raise ValueError(f'"{text}" is no position')
    return Position(int(found[1]), int(found[2]))


def _txn_text(txn_id: TxnId) -> str:
    return f"{txn_id.most_bits}:{txn_id.least_bits}"


def _txn_id(text: str) -> TxnId:
    found = _TXN_ID.fullmatch(text)
    if found is None:
        raise ValueError(f'"{text}" is no transaction')
    return TxnId(int(found[1]), int(found[2]))
