# SPDX-License-Identifier: Apache-2.0
"""``failOnDataLoss=quarantine``: one JSON file for each loss, on disk before the batch that goes on without it.

Both the driver and tasks write; a loss is reported before its batch can be committed, and a file that cannot be written
is an error. The same loss of the same reader has the same name: a retry, a replay or a restart makes no second file.
Losses that have no ids, such as a deleted subscription, get one each time they are told. Knows nothing of how losses
are found. docs/losses.md explains the fields of the document; its ``form`` changes with them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from broker_core.base.clock import SystemClock
from broker_core.base.errors import ConfigError
from broker_core.base.moments import time_text
from broker_core.base.names import TopicName
from pulsarish_spark.losses.lost import Loss
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.whole_file import keep_name, whole_file

FORM: Final = 1

_TOLD_AT: Final = "toldAt"

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


class RunningBatch(NamedTuple):
    """``query_id`` is that of the checkpoint, the same over restarts; ``number`` counts from 0."""

    query_id: str
    number: int


@dataclass(frozen=True, slots=True)
class QuarantineFolder:
    """The folder of the files. ``directory`` is an absolute path, which driver and executors must share."""

    directory: str

    def prepare(self) -> None:
        """Make the folder, on the driver; ConfigError if it cannot be written to."""
        try:
            os.makedirs(self.directory, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.directory):
                pass
        except OSError as error:
            raise self._refused(error) from error

    def write(self, loss: Loss, subscription: str) -> Path:
        """Put ``loss`` on disk, and return its file; ConfigError if that fails.

        A file that is there already and says the same but for the time stays.
        """
        document = document_of(loss, subscription, SystemClock().now_ms())
        if loss.body:
            document["body"] = base64.b64encode(loss.body).decode()
        path = Path(self.directory, f"loss-{_digest(document)}.json")
        try:
            if _says_same(path, document):
                keep_name(path)  # A task that was killed, or failed, right before that has not.
            else:
                with whole_file(path) as new:
                    new.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise self._refused(error) from error
        return path

    def _refused(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"quarantineDirectory {self.directory} cannot be written to here: {error.strerror}",
            hint="give a folder that the driver and all executors share and may write to",
        )


def document_of(loss: Loss, subscription: str, now_ms: int) -> dict[str, Any]:
    """The document of ``loss``; JSON types alone."""
    batch = running_batch()
    first, following = _place(loss.first), _place(loss.next)
    key = _partition(loss)
    return {
        "form": FORM,
        "topic": key.topic,
        "partition": key.partition,
        "reason": loss.reason,
        "what": loss.what,
        "first": first,
        "last": _last(loss, first, following),
        "next": following,
        "entries": {str(ledger): loss.entries[ledger] for ledger in sorted(loss.entries)} or None,
        "messages": loss.messages if loss.messages >= 0 else None,
        "entriesMin": loss.entries_min or None,
        "subscription": subscription or None,
        "queryId": batch.query_id if batch is not None else None,
        "batchId": batch.number if batch is not None else None,
        _TOLD_AT: time_text(now_ms),
    }


def _partition(loss: Loss) -> TopicPartition:
    if isinstance(loss.where, TopicPartition):
        return loss.where
    name = TopicName.parse(loss.where)
    return TopicPartition(str(name.base), max(name.partition_index, 0))


def _place(text: str) -> dict[str, int] | None:
    """A place as an object: what of ledger, entry, batchIndex and index is known."""
    if not text or text.isdecimal():
        return {"index": int(text)} if text else None
    at = Offset.parse(text)
    known = {"index": at.message_index} if at.message_index >= 0 else {}
    return {"ledger": at.position.ledger, "entry": at.position.entry, "batchIndex": at.batch} | known


def _last(loss: Loss, first: Mapping[str, int] | None, following: Mapping[str, int] | None) -> dict[str, int] | None:
    """The last entry that is known to be missing; only entries of one ledger can be counted."""
    if first is None or "entry" not in first:
        return None
    if following is not None and following.get("ledger") == first["ledger"]:
        last = following["entry"] if following["batchIndex"] else following["entry"] - 1
    else:
        last = first["entry"] + loss.entries_min - 1
    return {"ledger": first["ledger"], "entry": last} if last >= first["entry"] else None


def _digest(document: Mapping[str, Any]) -> str:
    """The identity of a loss: reader and entries."""
    who = [document["queryId"], document["subscription"], document["topic"], document["partition"]]
    what = [document["first"], document["entries"]]
    identity = [who, what if any(what) else [document["what"], document[_TOLD_AT]]]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]


def _says_same(path: Path, document: Mapping[str, Any]) -> bool:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    except ValueError:  # Somebody has written into it.
        return False
    return isinstance(found, dict) and found | {_TOLD_AT: document[_TOLD_AT]} == document


def running_batch() -> RunningBatch | None:
    """The batch that this process runs; None outside of a task of a stream, and without ``pyspark``."""
    if sys.modules.get("pyspark") is None:
        return None
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return None
    query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    return RunningBatch(query, int(batch)) if query and batch else None
