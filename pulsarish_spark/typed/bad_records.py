# SPDX-License-Identifier: Apache-2.0
"""Bad records: messages whose values cannot be decoded, and what is done about them by ``onBadRecord``.

Dead letters are raw messages with the names of properties that Pulsar's dead letters have, and the reason. They are
stored before the rows behind them are given to Spark, so before their batch can be done; a task that is run again sends
its letters again. Source: semantics 4.6.4.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from broker_core.base.errors import PulsarishError
from broker_core.client.dead_letters.letter_copies import ORIGIN_MESSAGE_ID, REAL_SUBSCRIPTION, REAL_TOPIC
from broker_core.values.decoding import Flaw
from broker_core.wire.batch.columns import ByteColumn, booleans, flags_of, presence
from broker_core.wire.batch.sent_keys import is_text
from pulsarish_spark.rows.columns import id_texts
from pulsarish_spark.rows.typed_values import ValueRules

if TYPE_CHECKING:
    from broker_core.client import Client

logger = logging.getLogger(__name__)

BAD_RECORD_REASON: Final = "BAD_RECORD_REASON"
ORIGIN_SCHEMA_VERSION: Final = "ORIGIN_SCHEMA_VERSION"

_REASON_MAX: Final = 1000
_COPIED: Final = ("key", "ordering_key", "event_time", "value")

_WAY_OUT: Final = (
    'go on without it: .option("onBadRecord", "null"), "skip", or "dead-letter", which keeps it; or decode it '
    "yourself from bytes, which valueFormat=raw gives"
)


class BadRecordError(PulsarishError):
    """The value of a message cannot be decoded, and ``onBadRecord`` is fail."""


class BadRecords:
    """The handling of bad records of one partition, by the name that it has on the broker."""

    def __init__(self, client: Client, name: str, partition: int, rules: ValueRules) -> None:
        """``partition``: of ids, -1 where there is none."""
        self._client = client
        self._name = name
        self._partition = partition
        self._rules = rules

    def kept(self, rows: pa.RecordBatch, flaws: Sequence[Flaw]) -> pa.Array | None:
        """A mask of the ``rows`` that stay, or None for all; BadRecordError where there must be no bad ones."""
        policy = self._rules.on_bad_record
        if policy == "fail":
            raise BadRecordError(self._told(rows, flaws[0]), hint=_WAY_OUT)
        if policy == "dead-letter":
            self._send(rows, flaws)
        effect = {
            "null": "their values are null",
            "skip": "they are no rows",
            "dead-letter": f"they are stored in {self._rules.dead_letter_topic}",
        }[policy]
        logger.warning("bad records count=%d effect=%s first=%s", len(flaws), effect, self._told(rows, flaws[0]))
        if policy == "null":
            return None
        keep = np.ones(rows.num_rows, np.bool_)
        keep[[flaw.row for flaw in flaws]] = False
        return booleans(keep)

    def _told(self, rows: pa.RecordBatch, flaw: Flaw) -> str:
        return (
            f"message {self._id(rows, flaw.row)} of {self._name}, schema version {_version(rows, flaw.row) or 'none'}, "
            f"cannot be decoded: {flaw.reason}"
        )

    def _id(self, rows: pa.RecordBatch, row: int) -> str:
        text: str = id_texts(rows.slice(row, 1), self._partition)[0].as_py()
        return text

    def _send(self, rows: pa.RecordBatch, flaws: Sequence[Flaw]) -> None:
        """Store a copy of each bad record; returns when the broker has them all."""
        bad = rows.take(pa.array([flaw.row for flaw in flaws], pa.int64()))
        columns = {name: bad.column(name) for name in _COPIED}
        # Clients in other languages send keys as text that are none; a copy has their bytes.
        as_bytes = flags_of(bad.column("key_is_bytes")) | ~is_text(ByteColumn.of(bad.column("key")))
        columns["key_is_bytes"] = booleans(as_bytes, presence(bad.column("key")) != 0)
        own = bad.column("properties").to_pylist()
        letters = [
            [*self._properties(dict(before or ()), rows, flaw).items()] for before, flaw in zip(own, flaws, strict=True)
        ]
        columns["properties"] = pa.array(letters, pa.map_(pa.string(), pa.string()))
        with self._client.write_rows(self._rules.dead_letter_topic, chunking_enabled=True) as writer:
            writer.write(pa.record_batch(columns))
            writer.flush()

    def _properties(self, own: Mapping[str, str], rows: pa.RecordBatch, flaw: Flaw) -> dict[str, str]:
        """Where a message was first stays the same in every copy."""
        said = {
            BAD_RECORD_REASON: flaw.reason[:_REASON_MAX],
            REAL_TOPIC: own.get(REAL_TOPIC, self._name),
            ORIGIN_MESSAGE_ID: own.get(ORIGIN_MESSAGE_ID, self._id(rows, flaw.row)),
        }
        if (version := _version(rows, flaw.row)) is not None:
            said[ORIGIN_SCHEMA_VERSION] = version
        if self._rules.subscription:
            said[REAL_SUBSCRIPTION] = self._rules.subscription
        return {**own, **said}


def _version(rows: pa.RecordBatch, row: int) -> str | None:
    """The schema version of a message; None: it has none."""
    version = rows.column("schema_version")[row].as_py()
    return None if version is None else str(version)
