# SPDX-License-Identifier: Apache-2.0
"""What lies behind a topic: its ledgers and the positions of its cursors, under Pulsar's field names.

Source: Pulsar docs, "Admin API - topics - get internal stats".
"""

from __future__ import annotations

from typing import Any

from broker_core.broker.stats import iso_time
from broker_core.broker.subscription import Subscription
from broker_core.broker.topic import Topic
from broker_core.server.admin.absent_features import OF_CURSORS, OF_LEDGERS


def internal_stats(topic: Topic) -> dict[str, Any]:
    """Ledgers and cursors of one topic, as JSON."""
    log = topic.log
    ledgers = log.ledgers()
    newest = ledgers[-1] if ledgers else None
    return {
        **OF_LEDGERS,
        "entriesAddedCounter": log.entries_added,
        "numberOfEntries": log.entries_count,
        "totalSize": log.size_bytes,
        "currentLedgerEntries": newest.entries if newest and not newest.closed else 0,
        "currentLedgerSize": newest.size_bytes if newest and not newest.closed else 0,
        "lastLedgerCreatedTimestamp": iso_time(newest.created_ms if newest else 0),
        "lastConfirmedEntry": str(log.last_confirmed),
        "state": _state(topic),
        "ledgers": [
            {
                "ledgerId": info.id,
                "entries": info.entries,
                "size": info.size_bytes,
                "offloaded": False,
                "underReplicated": False,
            }
            for info in ledgers
        ],
        "cursors": {name: _cursor(topic, each) for name, each in topic.subscriptions.items()},
    }


def _state(topic: Topic) -> str:
    """In Pulsar's words."""
    if topic.terminated is not None:
        return "Terminated"
    ledgers = topic.log.ledgers()
    return "LedgerOpened" if ledgers and not ledgers[-1].closed else "ClosedLedger"


def _cursor(topic: Topic, subscription: Subscription) -> dict[str, Any]:
    cursor = subscription.cursor
    return {
        **OF_CURSORS,
        "markDeletePosition": str(cursor.mark_delete),
        "readPosition": str(subscription.dispatcher.read_position),
        "messagesConsumedCounter": topic.log.entries_added - subscription.backlog_entries(),
        "individuallyDeletedMessages": _runs(subscription),
        "numberOfEntriesSinceFirstNotAckedMessage": topic.log.count_entries(
            cursor.mark_delete, topic.log.last_confirmed
        ),
        "totalNonContiguousDeletedMessagesRange": cursor.deleted_runs(),
        "active": bool(subscription.consumers),
        "state": "Open",
    }


_RUNS_SHOWN_MAX = 1000
"""A cursor may have millions; more than this help nobody who reads."""


def _runs(subscription: Subscription) -> str:
    """What is acknowledged behind mark-delete, as Pulsar writes it: half-open ranges ``(5:2..5:4]``."""
    shown: list[str] = []
    for run in subscription.cursor.deleted.runs():
        if len(shown) == _RUNS_SHOWN_MAX:
            shown.append("...")
            break
        shown.append(f"({run.ledger}:{run.first - 1}..{run.ledger}:{run.last}]")
    return f"[{','.join(shown)}]"
