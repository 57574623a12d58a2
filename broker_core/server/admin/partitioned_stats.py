# SPDX-License-Identifier: Apache-2.0
"""The statistics of all partitions as those of one topic: numbers added up, clients listed side by side.

Where adding makes no sense (positions, names, flags) the merged value is that of the first partition that has one.
Source: Pulsar docs, "Admin API - partitioned topics - get stats".
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, TypeVar

import msgspec

from broker_core.broker.dispatch.dispatcher import NO_TYPE
from broker_core.broker.stats import TopicTraffic
from broker_core.server.admin.absent_features import OF_TOPICS
from broker_core.server.admin.answers import json_field

Json = dict[str, Any]
S = TypeVar("S", bound=TopicTraffic)

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

_OLDEST, _WHOSE_OLDEST = "oldestBacklogMessageAgeSeconds", "oldestBacklogMessageSubscriptionName"
"""The second says of which subscription the first is, so they are taken from the same partition."""

_EARLIEST = frozenset({"earliestMsgPublishTimeInBacklog", "earliestMsgPublishTimeInBacklogs"})
"""The earliest of those that are a time at all."""


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
    if field in _LARGEST:
        return max(before, value)
    if field in _EARLIEST:
        return min((each for each in (before, value) if each > 0), default=before)
    if isinstance(before, bool):
        return before or value
    if isinstance(before, int | float | list):
        return before + value
    return value if before == NO_TYPE else before or value
