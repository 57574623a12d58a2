# SPDX-License-Identifier: Apache-2.0
"""What is kept about a topic: its ledgers and how far its subscriptions have acknowledged, as stored.

Beside ``internal_stats``, which also tells what is going on. Source: Pulsar docs, "Admin API - topics - internal info".
"""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from broker_core.base.positions import Position
from broker_core.broker.internal_stats import stored_state
from broker_core.broker.stats import iso_time
from broker_core.broker.topic import Topic
from broker_core.server.admin.absent_features import NO_LEDGER
from broker_core.server.admin.answers import LongJsonAnswer, json_answer, json_field
from broker_core.server.admin.requests import existing_topic, registry_of, single_topic, used_topics
from broker_core.server.admin.routes import Route
from broker_core.storage.ledger import LedgerInfo

_VERSION: Final = 1


async def get_internal_info(request: Request) -> Response:
    """The ledgers and cursors that are kept; of a partitioned topic those of each partition that was ever used."""
    if not registry_of(request).partitions(existing_topic(request)):
        return json_answer(_info(single_topic(request)))
    parts = [json_field(str(topic.name), _info(topic)) async for topic in used_topics(request)]
    return LongJsonAnswer({"version": 0}, parts, under="partitions")


def _info(topic: Topic) -> dict[str, Any]:
    stored = stored_state(topic)
    return {
        "version": _VERSION,
        "creationDate": iso_time(stored.created_ms),
        "modificationDate": iso_time(stored.changed_ms),
        "ledgers": [_ledger(each) for each in stored.ledgers],
        "cursors": {name: _cursor(mark_delete) for name, mark_delete in stored.mark_deletes.items()},
    }


def _ledger(info: LedgerInfo) -> dict[str, Any]:
    """As in Pulsar the numbers of one that is still written to are in the internal stats only."""
    numbers = {"entries": info.entries, "size": info.size_bytes} if info.closed else {}
    return {"ledgerId": info.id, **numbers, "timestamp": info.last_ms if info.closed else 0, "isOffloaded": False}


def _cursor(mark_delete: Position) -> dict[str, Any]:
    place = {"ledgerId": mark_delete.ledger, "entryId": mark_delete.entry}
    return {"version": _VERSION, "cursorsLedgerId": NO_LEDGER, "markDelete": place}


ROUTES = [Route("/admin/v2/persistent/{tenant}/{namespace}/{topic}/internal-info", get_internal_info)]
