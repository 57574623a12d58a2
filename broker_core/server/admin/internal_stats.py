# SPDX-License-Identifier: Apache-2.0
"""What lies behind a topic: its ledgers and the positions of its cursors, under Pulsar's field names.

Source: Pulsar docs, "Admin API - topics - get internal stats".
"""

from __future__ import annotations

from typing import Any

from broker_core.broker.topic import Topic


def internal_stats(topic: Topic) -> dict[str, Any]:
    """Ledgers and cursors of one topic, as JSON."""
    log = topic.log
    ledgers = log.ledgers()
    return {
        "entriesAddedCounter": topic.traffic_in.messages,
        "numberOfEntries": log.entries_count,
        "totalSize": log.size_bytes,
        "lastConfirmedEntry": str(log.last_confirmed),
        "state": "LedgerOpened",
        "ledgers": [
            {"ledgerId": info.id, "entries": info.entries, "size": info.size_bytes, "offloaded": False}
            for info in ledgers
        ],
        "cursors": {
            name: {
                "markDeletePosition": str(subscription.cursor.mark_delete),
                "readPosition": str(
                    subscription.dispatcher.read_position
                    if subscription.dispatcher is not None
                    else subscription.cursor.first_unacked()
                ),
                "numberOfEntriesSinceFirstNotAckedMessage": log.count_entries(
                    subscription.cursor.mark_delete, log.last_confirmed
                ),
                "totalNonContiguousDeletedMessagesRange": subscription.cursor.deleted_runs(),
                "state": "Open",
            }
            for name, subscription in topic.subscriptions.items()
            if subscription.durable
        },
    }
