# SPDX-License-Identifier: Apache-2.0
"""The statistics of topics as JSON under Pulsar's names, and those of all partitions as of one topic.

Tools read the fields of features that this broker does not have without asking whether they are there, so they say that
there is nothing; ``tests/server/test_admin_oracle_fields.py`` compares all fields with those of Apache Pulsar and says
which are left out, and why. Of a partitioned topic numbers are added up and clients listed side by side; where adding
makes no sense (positions, names, flags) the merged value is that of the first partition that has one.
Source: Pulsar docs, "Admin API - topics - get stats", "get internal stats", "internal info", "partitioned topics".
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, Final, TypeVar

import msgspec

from broker_core.base.positions import Position
from broker_core.broker.compaction.topic_compaction import CURSOR_NAME
from broker_core.broker.dispatch.dispatcher import NO_TYPE
from broker_core.broker.stats import TopicTraffic, internal_stats, iso_time, stored_state
from broker_core.broker.topic import Topic
from broker_core.server.admin.answers import json_field
from broker_core.storage.ledger import LedgerInfo

Json = dict[str, Any]
S = TypeVar("S", bound=TopicTraffic)

_VERSION: Final = 1

OF_TOPICS: Final[dict[str, Any]] = {
    "replication": {},
    **dict.fromkeys(("ongoingTxnCount", "abortedTxnCount", "committedTxnCount"), 0),
    **dict.fromkeys(("lastOffloadLedgerId", "lastOffloadSuccessTimeStamp", "lastOffloadFailureTimeStamp"), 0),
    **dict.fromkeys(("offloadedStorageSize", "systemTopicBytesInCounter", "bytesOutInternalCounter"), 0),
    "publishRateLimitedTimes": 0,
    "compaction": dict.fromkeys(
        (
            *("lastCompactionRemovedEventCount", "lastCompactionSucceedTimestamp"),
            *("lastCompactionFailedTimestamp", "lastCompactionDurationTimeInMills"),
        ),
        0,
    ),
}
"""No replication, offloading, no topics of the broker's own, and no rates and transactions of what is not
stored."""

_NO_LEDGER: Final = -1

_OF_LEDGERS: Final[dict[str, Any]] = {
    "schemaLedgers": [],
    "properties": {},
}

_OF_CURSORS: Final[dict[str, Any]] = {
    "cursorLedger": _NO_LEDGER,
    "cursorLedgerLastEntry": _NO_LEDGER,
    "pendingReadOps": 0,
    "properties": {},
}
"""All cursors are in one log, and what is read is there at once."""

_PER_PARTITION_ONLY = frozenset(
    {
        *("lastConfirmedEntry", "markDeletePosition", "readPosition", "stoppedAtDamagedEntry"),
        *("deduplicationStatus", "ownerBroker"),
    }
)
"""Positions mean nothing outside their own partition; the others Pulsar does not tell of all together."""

_LARGEST = frozenset(
    {
        *("backlogQuotaLimitSize", "backlogQuotaLimitTime", "oldestBacklogMessageAgeSeconds"),
        *("topicCreationTimeStamp", "lastPublishTimeStamp", "lastAckedTimestamp", "lastConsumedTimestamp"),
        *("lastConsumedFlowTimestamp", "lastMarkDeleteAdvancedTimestamp", "lastExpireTimestamp"),
    }
)
"""Fields that are equal for all partitions, or of which only the largest value means anything."""

_SUMS = frozenset({"lastCompactionRemovedEventCount", "lastCompactionDurationTimeInMills"})
"""Figures of compaction that are added up; the others are times, of which the latest counts."""

_OLDEST, _WHOSE_OLDEST = "oldestBacklogMessageAgeSeconds", "oldestBacklogMessageSubscriptionName"
"""The second says of which subscription the first is, so they are taken from the same partition."""

_EARLIEST = frozenset({"earliestMsgPublishTimeInBacklog", "earliestMsgPublishTimeInBacklogs"})
"""The earliest of those that are a time at all."""


def internal_stats_object(topic: Topic) -> Json:
    """Ledgers and cursors of one topic, and what goes on in them."""
    found: Json = msgspec.to_builtins(internal_stats(topic))
    cursors = {name: {**_OF_CURSORS, **each} for name, each in found["cursors"].items()}
    if CURSOR_NAME in cursors and topic.compaction.view.number:
        cursors[CURSOR_NAME]["properties"] = {"CompactedTopicLedger": topic.compaction.view.number}
    return {**_OF_LEDGERS, **found, "cursors": cursors}


def internal_info_object(topic: Topic) -> Json:
    """The ledgers of one topic and how far its subscriptions have acknowledged, as stored."""
    stored = stored_state(topic)
    return {
        "version": _VERSION,
        "creationDate": iso_time(stored.created_ms),
        "modificationDate": iso_time(stored.changed_ms),
        "ledgers": [_ledger(each) for each in stored.ledgers],
        "cursors": {name: _cursor(mark_delete) for name, mark_delete in stored.mark_deletes.items()},
    }


def _ledger(info: LedgerInfo) -> Json:
    """As in Pulsar the numbers of one that is still written to are in the internal stats only."""
    numbers = {"entries": info.entries, "size": info.size_bytes} if info.closed else {}
    return {"ledgerId": info.id, **numbers, "timestamp": info.last_ms if info.closed else 0, "isOffloaded": False}


def _cursor(mark_delete: Position) -> Json:
    place = {"ledgerId": mark_delete.ledger, "entryId": mark_delete.entry}
    return {"version": _VERSION, "cursorsLedgerId": _NO_LEDGER, "markDelete": place}


def merged_stats(
    partitions: dict[str, S], *, owner: str, keep_parts: bool
) -> Generator[None, None, tuple[Json, list[bytes]]]:
    """Pulsar's answer for a partitioned topic, in steps: the sum, and with ``keep_parts`` each partition: its full
    name and what there is of it, as JSON.

    ``partitions`` is empty at the end: to let go of thousands at once would take as long as a whole turn may.
    """
    about: Json = {**OF_TOPICS, "ownerBroker": owner}
    parts: list[bytes] = []
    merged: Json = {}
    count = len(partitions)
    for name in list(partitions):
        part: Json = {**about, **msgspec.to_builtins(partitions.pop(name))}
        if keep_parts:
            parts.append(json_field(name, part))  # now, as there may be thousands
        merged = _merge((merged, part))
        yield
    messages = merged.get("msgInCounter", 0)
    merged["averageMsgSize"] = merged.get("bytesInCounter", 0) / messages if messages else 0.0
    merged["metadata"] = {"partitions": count, "deleted": False}
    return merged, parts


def _merge(parts: Iterable[Json]) -> Json:
    merged: Json = {}
    for part in parts:
        if part.get(_OLDEST, -1) > merged.get(_OLDEST, -1):
            merged[_WHOSE_OLDEST] = part[_WHOSE_OLDEST]
        for field, value in part.items():
            if field not in _PER_PARTITION_ONLY:
                merged[field] = _add(field, merged[field], value) if field in merged else value
    return merged


def _add(field: str, before: Any, value: Any) -> Any:
    if field == "subscriptions":
        names = [*before, *(name for name in value if name not in before)]
        return {name: _merge([side[name] for side in (before, value) if name in side]) for name in names}
    if field == "compaction":
        return {name: before[name] + value[name] if name in _SUMS else max(before[name], value[name]) for name in value}
    if field in _LARGEST:
        return max(before, value)
    if field in _EARLIEST:
        return min((each for each in (before, value) if each > 0), default=before)
    if isinstance(before, bool):
        return before or value
    if isinstance(before, int | float | list):
        return before + value
    return value if before == NO_TYPE else before or value
