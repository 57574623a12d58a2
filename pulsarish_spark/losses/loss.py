# SPDX-License-Identifier: Apache-2.0
"""``failOnDataLoss``: what is done when messages between two offsets are not there any more, or cannot be decoded.

``fail``: DataLossError, which fails the query. ``warn``: one warning, and reading goes on with what is there.
``quarantine``: the same, behind one JSON file for each loss, on disk before the batch that goes on without it. Losses
are found by those who read (``range_reader``, ``resuming``); their texts are in ``lost``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from broker_core.base.clock import SystemClock
from broker_core.base.errors import ConfigError, PulsarishError
from broker_core.base.moments import time_text
from broker_core.base.names import TopicName
from pulsarish_spark.losses.lost import Loss
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.whole_file import keep_name, whole_file

if TYPE_CHECKING:
    from pulsarish_spark.options import ReadOptions

logger = logging.getLogger(__name__)

_HINT: Final = (
    "retention or somebody deleted them; restore them, start a new checkpoint, "
    'or go on without them: .option("failOnDataLoss", "false")'
)

_UNDECODABLE_HINT: Final = (
    "no restart helps, as the entry stays as it is; let a client that can decode it (one with the keys, where it is "
    "encrypted) copy it to another topic, and go on without it here: "
    '.option("failOnDataLoss", "false"), or "quarantine" to keep its bytes in a file'
)

_GAPS: Final = ("start", "gap", "end")
"""Reasons of losses as which the gaps of a compacted topic appear: a message that is not there between two that are."""

FORM: Final = 1

_TOLD_AT: Final = "toldAt"

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


class DataLossError(PulsarishError):
    """Messages that a query should have read are gone, or cannot be decoded."""


@dataclass(frozen=True, slots=True)
class QuarantineFolder:
    """The folder of the files. ``directory`` is an absolute path, which driver and executors must share.

    Both the driver and tasks write; a loss is reported before its batch can be committed, and a file that cannot be
    written is an error. The same loss of the same reader has the same name: a retry, a replay or a restart makes no
    second file. Losses that have no ids, such as a deleted subscription, get one each time they are told.
    docs/losses.md explains the fields of the document; its ``form`` changes with them.
    """

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


@dataclass(frozen=True, slots=True)
class LossPolicy:
    """The policy for lost messages; it travels to the tasks. ``quarantine``: where they are written down, if they
    are; ``fail`` is false then. ``compacted``: messages that are not there were left out by compaction."""

    fail: bool
    quarantine: QuarantineFolder | None = None
    compacted: bool = False

    @classmethod
    def of(cls, options: ReadOptions) -> LossPolicy:
        """The policy that the options say."""
        directory = options.quarantine_directory
        quarantine = QuarantineFolder(directory) if directory else None
        return cls(options.on_loss == "fail", quarantine, compacted=options.address.compacted)

    def prepare(self) -> None:
        """On the driver, before anything is read: ConfigError where no loss could be written down."""
        if self.quarantine is not None:
            self.quarantine.prepare()

    def report(self, loss: Loss, subscription: str = "") -> None:
        """Raise DataLossError; or warn, when what is missing is written down, if it has to be.

        ``subscription``: of the query, where the driver tells. Raises ConfigError where it cannot be written down.
        """
        if self.compacted and loss.reason in _GAPS:
            logger.debug("left out by compaction what=%s", loss.what)
            return
        if self.fail:
            raise DataLossError(loss.what, hint=_UNDECODABLE_HINT if loss.reason == "undecodable" else _HINT)
        effect = "reading goes on because failOnDataLoss is false"
        if self.quarantine is not None:
            effect = f"reading goes on, and what is missing is in {self.quarantine.write(loss, subscription)}"
        logger.warning("data loss what=%s effect=%s", loss.what, effect)


# -- the document of a loss


def document_of(loss: Loss, subscription: str, now_ms: int) -> dict[str, Any]:
    """The document of ``loss``; JSON types alone."""
    query_id, batch_id = running_batch()
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
        "queryId": query_id,
        "batchId": batch_id,
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
    except (FileNotFoundError, ValueError):  # A ValueError: somebody has written into the file.
        return False
    return isinstance(found, dict) and found | {_TOLD_AT: document[_TOLD_AT]} == document


def running_batch() -> tuple[str | None, int | None]:
    """The query of the checkpoint, and the number of the batch, that this process works for; None outside of a task of
    a stream. Spark tells that to tasks, and to nothing else of a source."""
    if sys.modules.get("pyspark") is not None:
        from pyspark import TaskContext

        context = TaskContext.get()
        query, batch = (context and context.getLocalProperty(name) for name in (_QUERY_ID, _BATCH_ID))
        if query and batch:
            return query, int(batch)
    return None, None
