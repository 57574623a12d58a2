# SPDX-License-Identifier: Apache-2.0
"""The start and the end of one batch in Spark's checkpoint. Reads ``offsets/N``, and changes nothing.

A file has a line with the version of its form, one with settings, and one for each source of the query, "-" where a
source has no offset yet. The start of batch N is the end of batch N-1. Source: Spark, ``OffsetSeqLog``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from broker_core.base.errors import UsageError
from pulsarish_spark.places.offsets import NO_TOPICS
from pulsarish_spark.replaying.export_file import local_path

_FORM: Final = "v1"
_NO_OFFSET: Final = "-"


@dataclass(frozen=True, slots=True)
class NotedBatch:
    """Batch ``number`` of source ``source``, counted from 0, as offsets in JSON; ``start`` None: the first batch."""

    number: int
    source: int
    start: Mapping[str, Any] | None
    end: Mapping[str, Any]


def noted_batch(checkpoint: str | os.PathLike[str], number: int | None, source: int | None) -> NotedBatch:
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
    return NotedBatch(wanted, chosen, before[chosen] if chosen < len(before) else None, end)


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
    if form != _FORM or not lines:
        raise UsageError(
            f"{path} has the form {form!r}, and this version reads {_FORM}",
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
