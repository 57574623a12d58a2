# SPDX-License-Identifier: Apache-2.0
"""Exports one batch of a query: its exact range, as the checkpoint has it, read from the broker into one file.

The rows are those that the batch has in the query: by positions what lies between two offsets, in queue mode the
entries that the offset names. Nothing is acknowledged and no subscription is touched. What is gone is told with its
ids, by the same rule as in the query.

Of the checkpoint only ``offsets/N`` is read, and nothing is changed. Such a file has a line with the version of its
form, one with settings, and one for each source of the query, "-" where a source has no offset yet. The start of batch
N is the end of batch N-1. Source: Spark, ``OffsetSeqLog``.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from broker_core.base.clock import SystemClock
from broker_core.base.errors import ConfigError, UsageError
from broker_core.base.moments import time_text
from broker_core.base.names import TopicName
from broker_core.base.positions import POSITION_EARLIEST
from pulsarish_spark.connecting.connection import connected
from pulsarish_spark.losses.holes import lost_of_topic
from pulsarish_spark.losses.loss import LossPolicy, document_of
from pulsarish_spark.losses.lost import Loss, lost_beginning, lost_entries, lost_partition
from pulsarish_spark.options import ReadOptions, Side, exported_options, names_topics, option_texts, read_options
from pulsarish_spark.places.offsets import NO_TOPICS, Offset, SourceOffset
from pulsarish_spark.places.topics import Selection, TopicPartition
from pulsarish_spark.queue.dividing import divide_by_place
from pulsarish_spark.queue.queue_offset import QueueOffset
from pulsarish_spark.replaying.export_file import local_path, write_export
from pulsarish_spark.rows.schema import TopicColumns
from pulsarish_spark.tasks.planning import EntryRange
from pulsarish_spark.tasks.task import PartitionReading, RangeReading
from pulsarish_spark.typed.target_schema import with_typed_values
from pulsarish_spark.viewing.broker_view import BrokerView
from pulsarish_spark.viewing.layout import names_there

if TYPE_CHECKING:
    import pyarrow as pa

    from broker_core.client import Client

_TOPICS_TOLD: Final = 10
"""Topics of a batch that an error names."""
_OFFSETS_FORM: Final = "v1"
_NO_OFFSET: Final = "-"


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export: ``rows`` of batch ``batch``; ``losses``: the messages that are gone, in words."""

    batch: int
    rows: int
    losses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Noting(LossPolicy):
    """A policy that also notes the losses that it lets pass."""

    noted: list[Loss] = field(default_factory=list)

    def report(self, loss: Loss, subscription: str = "") -> None:
        LossPolicy.report(self, loss, subscription)
        self.noted.append(replace(loss, body=b""))  # Of many large entries the bytes would fill the memory.


def export_batch(
    checkpoint: str | os.PathLike[str],
    path: str | os.PathLike[str],
    /,
    *,
    batch: int | None = None,
    source: int | None = None,
    **options: object,
) -> Exported:
    """Write the rows of batch ``batch`` (None: the last one that was noted, as the one that fails) to ``path``.

        export_batch("/data/checkpoint", "batch.parquet", batch=41, **{"service.url": "pulsar://host:6650"})
        pulsarish_spark.replay("batch.parquet").read_all()
        spark.read.format("pulsarish").option("replayFile", "batch.parquet").load()

    ``options``: those of the query, as far as they say which broker and which columns and rows. Where they name
    topics, nothing of others is exported. ``source``: which source of the query, if several are of this format.

    Raises UsageError for a checkpoint that does not have the batch, ConfigError for wrong options and for a topic
    that the batch does not have, and DataLossError with the ids of what is gone, unless ``failOnDataLoss`` is warn:
    then the file says what it lacks.
    """
    target = local_path(path)
    noted = _noted_batch(checkpoint, batch, source)
    raw = option_texts(None, options)
    if not names_topics(raw, Side.STREAM_READ):
        raw["topics"] = ",".join(sorted({TopicName.parse(key.topic).short for key in _partitions(noted)}))
    checked = read_options(raw, Side.STREAM_READ, os.environ)
    _check_named(checked.selection, noted)
    base = LossPolicy.of(checked)
    base.prepare()
    policy = _Noting(base.fail, base.quarantine)

    def said() -> Mapping[str, Any]:
        now_ms = SystemClock().now_ms()
        return {
            "batch": noted.number,
            "source": noted.source,
            "start": noted.start,
            "end": noted.end,
            "options": exported_options(raw),
            "losses": [document_of(each, "", now_ms) for each in policy.noted],
            "exportedAt": time_text(now_ms),
        }

    with connected(checked.address) as client:
        checked = _typed(checked, client)
        columns = TopicColumns(checked.columns, typed=checked.typed)
        rows = write_export(target, columns, _rows(client, noted, checked, policy), said)
    return Exported(noted.number, rows, tuple(loss.what for loss in policy.noted))


def _typed(options: ReadOptions, client: Client) -> ReadOptions:
    """``options`` with the schema of values. The query has sent its dead letters, or will: an export sends none."""
    found = with_typed_values(options, client)
    typed = found.typed
    if typed is None or not typed.rules.dead_letter_topic:
        return found
    rules = replace(typed.rules, on_bad_record="skip", dead_letter_topic="")
    return replace(found, typed=replace(typed, rules=rules))


def _partitions(noted: _NotedBatch) -> Mapping[TopicPartition, object]:
    is_queue = "queue" in noted.end
    return QueueOffset.from_json(noted.end).partitions if is_queue else SourceOffset.from_json(noted.end).points


def _check_named(selection: Selection, noted: _NotedBatch) -> None:
    """ConfigError if ``selection`` names what the batch does not have.

    A query in queue mode is not given something of each of its topics in each batch: there one of them is enough.
    """
    keys = _partitions(noted)
    there = {key.topic for key in keys}
    named = [TopicPartition(topic, each) for topic, only in selection.topics for each in only or ()]
    missing = [
        *(topic for topic in selection.names if topic not in there),
        *(str(key) for key in named if key.topic in there and key not in keys),
    ]
    wants_some = any(map(selection.wants, keys))
    if not keys or (wants_some and ("queue" in noted.end or not missing)):
        return
    topics = sorted(TopicName.parse(each).short for each in there)
    more = f" and {len(topics) - _TOPICS_TOLD} more" if len(topics) > _TOPICS_TOLD else ""
    raise ConfigError(
        f"batch {noted.number} of the query has nothing of {missing[0] if missing else selection.pattern}",
        hint=f"it has {', '.join(topics[:_TOPICS_TOLD])}{more}: name one of these, or no topic to export all",
    )


def _rows(client: Client, noted: _NotedBatch, options: ReadOptions, policy: LossPolicy) -> Iterator[pa.RecordBatch]:
    if "queue" in noted.end:
        end = QueueOffset.from_json(noted.end)
        wanted = {key: part for key, part in end.partitions.items() if options.selection.wants(key)}
        readings = _entries(client, replace(end, partitions=wanted), policy)
    else:
        readings = _ranges(client, noted, options, policy)
    for reading in readings:
        yield from reading.rows(client, options.columns_of(reading.topic), policy)


def _entries(client: Client, end: QueueOffset, policy: LossPolicy) -> Iterator[PartitionReading]:
    """The entries of a batch of a shared subscription."""
    names = names_there(end.partitions, client)
    for key in sorted(end.partitions.keys() - names.keys()):
        policy.report(lost_entries(key, end.partitions[key].ids))
    yield from itertools.chain.from_iterable(divide_by_place(end, names, 1))


def _ranges(client: Client, noted: _NotedBatch, options: ReadOptions, policy: LossPolicy) -> Iterator[PartitionReading]:
    """The ranges between two offsets. A partition without a start, or without a message at that time, is read whole."""
    end = SourceOffset.from_json(noted.end)
    starts = end.starts_from(None if noted.start is None else SourceOffset.from_json(noted.start))
    begin = {key: start for key, start in starts.items() if start.position.ledger >= 0}
    wants = options.selection.wants
    ends = {key: stop for key, stop in end.offsets.items() if stop.position.ledger >= 0}
    moved = {key: stop for key, stop in sorted(ends.items()) if wants(key) and begin.get(key) != stop}
    names = names_there(moved, client)
    for key, stop in moved.items():
        if (name := names.get(key)) is None:
            policy.report(lost_partition(key, (begin.get(key) or stop).text(key.partition)))
            continue
        start = begin.get(key) or _beginning(client, key, name, policy)
        if start.key < stop.key or key in begin:
            whole = EntryRange(key, name, name != key.topic, start, stop, exact=key in begin)
            view_end = end.points[key].view_end
            for part in whole.divided(POSITION_EARLIEST if view_end is None else view_end.position):
                yield RangeReading(part, options.kept)


def _beginning(client: Client, key: TopicPartition, name: str, policy: LossPolicy) -> Offset:
    """The first message of a partition that was new; it has lost some if it does not begin with index 0."""
    view = BrokerView(client)
    first = view.with_index(name, view.earliest(name))
    if (lost := lost_of_topic(first)) > 0:
        policy.report(lost_beginning(key, first.text(key.partition), lost))
    return first


# -- the checkpoint


@dataclass(frozen=True, slots=True)
class _NotedBatch:
    """Batch ``number`` of source ``source``, counted from 0, as offsets in JSON; ``start`` None: the first batch."""

    number: int
    source: int
    start: Mapping[str, Any] | None
    end: Mapping[str, Any]


def _noted_batch(checkpoint: str | os.PathLike[str], number: int | None, source: int | None) -> _NotedBatch:
    """The offsets of batch ``number``; None: the last one. UsageError where the checkpoint has none, or several.

    ``source``: which of the query's sources, if several are of this format.
    """
    folder = Path(local_path(checkpoint), "offsets")
    numbers = _numbers(folder)
    wanted = numbers[-1] if number is None else number
    needed = {wanted, wanted - 1} - {-1}
    if not needed <= {*numbers}:
        raise UsageError(
            f"the checkpoint {checkpoint} does not tell where batch {wanted} begins and ends; it has offsets of "
            f"{numbers[0]} to {numbers[-1]}",
            hint="Spark forgets those of older batches: export one that it still has",
        )
    lines = _sources(folder / str(wanted))
    chosen = _chosen(lines, source, folder / str(wanted))
    end = lines[chosen]
    assert end is not None
    before = _sources(folder / str(wanted - 1)) if wanted else []
    return _NotedBatch(wanted, chosen, before[chosen] if chosen < len(before) else None, end)


def _numbers(folder: Path) -> list[int]:
    try:
        found = sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be read: {error.strerror}",
            hint="give the checkpointLocation of the query, a folder that is mounted here",
        ) from error
    if not found:
        raise UsageError(f"{folder} has no batch", hint="the query has not begun its first one")
    return found


def _sources(path: Path) -> list[Mapping[str, Any] | None]:
    """The offsets of all sources; None for a source that is not of this format, or has none."""
    form, *lines = path.read_text(encoding="utf-8").split("\n")
    if form != _OFFSETS_FORM or not lines:
        raise UsageError(
            f"{path} has the form {form!r}, and this version reads {_OFFSETS_FORM}",
            hint="it was made by a newer Spark, or with another spark.sql.streaming.offsetLog.formatVersion",
        )
    return [_ours(line) for line in lines[1:]]


def _ours(line: str) -> Mapping[str, Any] | None:
    try:
        document = None if line == _NO_OFFSET else json.loads(line)
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    is_ours = "queue" in document or all("://" in word or word in NO_TOPICS for word in document)
    return document if is_ours and document else None


def _chosen(lines: list[Mapping[str, Any] | None], source: int | None, path: Path) -> int:
    ours = [number for number, line in enumerate(lines) if line is not None]
    if source is None and len(ours) == 1:
        return ours[0]
    if source in ours:
        return source
    which = ", ".join(map(str, ours)) or "none"
    wanted = "and which one is meant was not said" if source is None else f"and {source} is none of them"
    raise UsageError(f"the sources of this format in {path} are {which}, {wanted}", hint="give source, counted from 0")
