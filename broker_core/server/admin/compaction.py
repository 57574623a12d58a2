# SPDX-License-Identifier: Apache-2.0
"""Compaction: begin it, ask how the last run went. Source: Pulsar docs, "Topic compaction"; semantics 7.4."""

from __future__ import annotations

from typing import Final

from broker_core.base.errors import NotAllowedError
from broker_core.server.admin.answers import ConflictError
from broker_core.server.admin.requests import AdminRequest, Route
from broker_core.server.security import needs


async def compact(request: AdminRequest) -> None:
    """Begin to compact a topic, of a partitioned one all partitions that were ever used; 409 if one is being compacted
    already. Nothing happens where nothing has come since the last time."""
    refusals: list[NotAllowedError] = []
    async for topic in request.used_topics():
        try:
            topic.compaction.request()
        except NotAllowedError as error:
            refusals.append(error)
    if refusals:
        raise ConflictError(str(refusals[0]))


async def get_compaction(request: AdminRequest) -> object:
    """How the last compaction of a topic or partition since it was loaded went: NOT_RUN, RUNNING, SUCCESS or ERROR."""
    compaction = request.single_topic().compaction
    return {"status": compaction.status.value, "lastError": compaction.last_error}


_PATH: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}/compaction"

COMPACTION: Final = needs.of_topic("COMPACT")

ROUTES: Final = [
    Route(_PATH, get_compaction, COMPACTION),
    Route(_PATH, compact, COMPACTION, methods=["PUT"]),
]
