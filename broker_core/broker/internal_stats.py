# SPDX-License-Identifier: Apache-2.0
"""What lies behind a topic: its ledgers and the positions of its cursors, as plain values under Pulsar's field names.

Source: Pulsar docs, "Admin API - topics - get internal stats", "- internal info".
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from broker_core.base.positions import Position
from broker_core.broker.cursors.cursor import Cursor
from broker_core.broker.stats import iso_time
from broker_core.broker.subscription import Subscription
from broker_core.broker.topic import Topic
from broker_core.storage.ledger import LedgerInfo

_RUNS_SHOWN_MAX: Final = 1000
"""Acknowledged ranges of a cursor that are shown: a cursor may have millions, which no reader looks at."""


class LedgerStats(msgspec.Struct, frozen=True, rename="camel"):
    """One ledger."""

    ledger_id: int
    entries: int
    size: int
    offloaded: bool = False
    under_replicated: bool = False


class CursorStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cursor of one subscription. ``individually_deleted_messages`` are half-open ranges ``(5:2..5:4]``."""

    mark_delete_position: str
    read_position: str
    messages_consumed_counter: int
    individually_deleted_messages: str
    number_of_entries_since_first_not_acked_message: int
    total_non_contiguous_deleted_messages_range: int
    active: bool
    state: str = "Open"


class InternalStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One topic or partition."""

    entries_added_counter: int
    number_of_entries: int
    total_size: int
    current_ledger_entries: int
    current_ledger_size: int
    last_ledger_created_timestamp: str
    last_confirmed_entry: str
    state: str
    ledgers: list[LedgerStats]
    cursors: dict[str, CursorStats]


def internal_stats(topic: Topic) -> InternalStats:
    """Ledgers and cursors of one topic as they are now."""
    log = topic.log
    ledgers = log.ledgers()
    newest = ledgers[-1] if ledgers else None
    is_open = newest is not None and not newest.closed
    return InternalStats(
        entries_added_counter=log.entries_added,
        number_of_entries=log.entries_count,
        total_size=log.size_bytes,
        current_ledger_entries=newest.entries if newest and is_open else 0,
        current_ledger_size=newest.size_bytes if newest and is_open else 0,
        last_ledger_created_timestamp=iso_time(newest.created_ms if newest else 0),
        last_confirmed_entry=str(log.last_confirmed),
        state="Terminated" if topic.terminated is not None else "LedgerOpened" if is_open else "ClosedLedger",
        ledgers=[LedgerStats(info.id, info.entries, info.size_bytes) for info in ledgers],
        cursors={name: _cursor_stats(topic, each) for name, each in topic.subscriptions.items()},
    )


def _cursor_stats(topic: Topic, subscription: Subscription) -> CursorStats:
    cursor = subscription.cursor
    return CursorStats(
        mark_delete_position=str(cursor.mark_delete),
        read_position=str(subscription.dispatcher.read_position),
        messages_consumed_counter=topic.log.entries_added - subscription.backlog_entries(),
        individually_deleted_messages=_acked_ranges(cursor),
        number_of_entries_since_first_not_acked_message=topic.log.count_entries(
            cursor.mark_delete, topic.log.last_confirmed
        ),
        total_non_contiguous_deleted_messages_range=cursor.deleted_runs(),
        active=bool(subscription.consumers),
    )


def _acked_ranges(cursor: Cursor) -> str:
    """What is acknowledged behind the mark-delete position."""
    shown: list[str] = []
    for run in cursor.deleted.runs():
        if len(shown) == _RUNS_SHOWN_MAX:
            shown.append("...")
            break
        shown.append(f"({run.ledger}:{run.first - 1}..{run.ledger}:{run.last}]")
    return f"[{','.join(shown)}]"


class StoredState(NamedTuple):
    """What the catalogue and the cursor log keep of a topic: ``mark_deletes`` by the name of the subscription."""

    created_ms: int
    changed_ms: int
    ledgers: list[LedgerInfo]
    mark_deletes: dict[str, Position]


def stored_state(topic: Topic) -> StoredState:
    """What is stored of one topic, as the catalogue and the cursor log keep it."""
    ledgers = topic.log.ledgers()
    changed_ms = max([topic.created_ms, *(each.created_ms for each in ledgers)])
    mark_deletes = {name: each.cursor.mark_delete for name, each in topic.subscriptions.items()}
    return StoredState(topic.created_ms, changed_ms, ledgers, mark_deletes)
