# SPDX-License-Identifier: Apache-2.0
"""Files that are put on disk as a whole: what is synced when, and what a failure leaves."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from broker_core.base.errors import ConfigError
from pulsarish_spark.losses.loss import QuarantineFolder
from pulsarish_spark.losses.lost import lost_gap
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.replaying.export_file import write_export
from pulsarish_spark.rows.schema import TopicColumns
from pulsarish_spark.whole_file import whole_file

KEY = TopicPartition("persistent://public/default/t", 3)


def export(folder: Path) -> None:
    """A batch without rows."""
    no_batches: list[pa.RecordBatch] = []
    write_export(folder / "batch.parquet", TopicColumns(("value",)), no_batches, dict)


def quarantine(folder: Path) -> None:
    """A loss."""
    QuarantineFolder(str(folder)).write(lost_gap(KEY, "5:2@10", "5:8@16", 6), "s")


@pytest.mark.parametrize("write", [export, quarantine])
def test_content_is_durable_before_the_name_and_then_the_name(
    write: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss in between leaves the old file or the new one, never a part, and behind it the new one."""
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def noting_sync(descriptor: int) -> None:
        done.append("folder" if os.path.samestat(os.fstat(descriptor), tmp_path.stat()) else "content")
        sync(descriptor)

    def noting_replace(old: Path, new: Path) -> None:
        done.append("name")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noting_sync)
    monkeypatch.setattr(os, "replace", noting_replace)
    write(tmp_path)
    assert done == ["content", "name", "folder"]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_loss_is_written_down_only_when_its_name_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is tried again finds the file of the attempt before, whose name a power loss could still take."""
    sync = os.fsync
    broken = True

    def folder_cannot_be_synced(descriptor: int) -> None:
        if broken and os.path.samestat(os.fstat(descriptor), tmp_path.stat()):
            raise OSError(5, "Input/output error")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", folder_cannot_be_synced)
    for _ in range(2):
        with pytest.raises(ConfigError, match="cannot be written to here: Input/output error"):
            quarantine(tmp_path)
    broken = False
    quarantine(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_failure_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a writer that gives up nor a disk that refuses to sync changes the file, or leaves another one."""
    target = tmp_path / "file"
    target.write_text("old")

    def writes(text: str) -> None:
        with whole_file(target) as new:
            new.write_text(text)
            if text == "half":
                raise RuntimeError("gives up")

    with pytest.raises(RuntimeError, match="gives up"):
        writes("half")

    def refused(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refused)
    with pytest.raises(OSError, match="No space"):
        writes("new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
