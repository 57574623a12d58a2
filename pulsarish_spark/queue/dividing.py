# SPDX-License-Identifier: Apache-2.0
"""From the entries of a batch to tasks: one hot partition is spread over all cores, however many consumers share it.
Pure.

Shared: all entries in their order, cut into pieces of as many entries. Key_Shared: all entries of a key in one task, in
the order of their positions. While the batch is fresh the driver knows the keys' hashes, and cuts their range so that
tasks have as many messages; at a replay it does not, as offsets hold none, so each task reads all entries and keeps
those of its share of the range. A replay has the same rows, if not in the same tasks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from broker_core.base.positions import Position
from broker_core.client import GivenEntry
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.queue.entry_ids import Entries, entries_to_text
from pulsarish_spark.queue.id_reader import IdReading, KeyRange
from pulsarish_spark.queue.queue_offset import PartitionBatch, QueueOffset

TASK_MESSAGES_MIN: Final = 10_000
TASK_ENTRIES_MIN: Final = 1_000
"""A task with less than either is not worth its 10 ms."""

HASHES: Final = 2**31
"""Key hashes are below this."""

Names = Mapping[TopicPartition, str]
"""The name of each partition on the broker."""


def tasks_wanted(messages: int, entries: int, cores: int) -> int:
    """Tasks that pay for themselves."""
    return max(1, min(cores, math.ceil(max(messages / TASK_MESSAGES_MIN, entries / TASK_ENTRIES_MIN))))


def divide_by_place(batch: QueueOffset, names: Names, cores: int) -> list[list[IdReading]]:
    """Shared: pieces of as many entries, in their order."""
    entries = {key: part.entries() for key, part in batch.partitions.items() if key in names}
    total = sum(len(found) for ledgers in entries.values() for found in ledgers.values())
    tasks = tasks_wanted(batch.messages, total, cores)
    mean = batch.messages / max(total, 1)
    planned: list[list[IdReading]] = [[] for _ in range(tasks)]
    before = 0
    for key, ledgers in sorted(entries.items()):
        pieces: dict[int, dict[int, Entries]] = {}
        for ledger, found in ledgers.items():
            at = (before + np.arange(len(found))) * tasks // total
            before += len(found)
            for task in np.unique(at).tolist():
                pieces.setdefault(task, {})[ledger] = found[at == task]
        for task, piece in pieces.items():
            planned[task].append(IdReading(key, names[key], _only(batch.partitions[key], piece), mean))
    return [readings for readings in planned if readings]


def divide_by_key(
    batch: QueueOffset, fresh: Mapping[TopicPartition, Sequence[GivenEntry]] | None, names: Names, cores: int
) -> list[list[IdReading]]:
    """Key_Shared: ranges of keys. ``fresh``: the batch as it was given, None at a replay."""
    total = sum(len(found) for part in batch.partitions.values() for found in part.entries().values())
    tasks = tasks_wanted(batch.messages, total, cores)
    mean = batch.messages / max(total, 1)
    if fresh is None:
        whole = [
            IdReading(key, names[key], part, mean) for key, part in sorted(batch.partitions.items()) if key in names
        ]
        ranges = [KeyRange(task * HASHES // tasks, (task + 1) * HASHES // tasks) for task in range(tasks)]
        return [[replace(each, keys=keys) for each in whole] for keys in ranges] if tasks > 1 else [whole]
    bounds = _bounds([each for given in fresh.values() for each in given], tasks)
    planned: list[list[IdReading]] = [[] for _ in range(tasks)]
    for key, given in sorted(fresh.items()):
        if key not in names:
            continue
        hashes = np.array([each.key_hash for each in given], np.int64)
        found: dict[int, list[GivenEntry]] = {}
        for owner, entry in zip(np.searchsorted(bounds, hashes, side="right").tolist(), given, strict=True):
            found.setdefault(owner, []).append(entry)
        for task, mine in found.items():
            planned[task].append(IdReading(key, names[key], PartitionBatch.of(mine), mean))
    return [readings for readings in planned if readings]


def _bounds(given: Sequence[GivenEntry], tasks: int) -> Entries:
    """The hashes at which the tasks after the first begin: keys are not cut, messages are shared out evenly."""
    hashes = np.array([each.key_hash for each in given], np.int64)
    weights = np.array([max(each.messages, 1) for each in given], np.int64)
    order = np.argsort(hashes)
    sums = np.cumsum(weights[order])
    wanted = sums[-1] * np.arange(1, tasks) // tasks
    bounds: Entries = hashes[order][np.minimum(np.searchsorted(sums, wanted, side="right"), len(order) - 1)]
    return bounds


def _only(part: PartitionBatch, entries: Mapping[int, Entries]) -> PartitionBatch:
    """``part`` with some of its entries."""
    again: dict[int, dict[int, str]] = {}
    for count, ledger, found in part.redelivered():
        if len(both := np.intersect1d(found, entries.get(ledger, found[:0]), assume_unique=True)):
            again.setdefault(count, {})[ledger] = entries_to_text(both)
    parts = {at: bits for at, bits in part.parts.items() if _holds(entries, at)}
    return PartitionBatch({ledger: entries_to_text(found) for ledger, found in entries.items()}, parts, again)


def _holds(entries: Mapping[int, Entries], at: Position) -> bool:
    found = entries.get(at.ledger)
    place = -1 if found is None else int(np.searchsorted(found, at.entry))
    return found is not None and place < len(found) and int(found[place]) == at.entry
