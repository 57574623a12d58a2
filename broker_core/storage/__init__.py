# SPDX-License-Identifier: Apache-2.0
"""Durable storage: topic logs, cursors and the catalogue of one data directory, with one group commit for all.

Pure but for ``disk``: files are reached through the ``Disk`` seam, time through ``base.clock``.
"""

from broker_core.storage.buckets import BucketStore
from broker_core.storage.catalogue import Catalogue, LedgerRow, SubscriptionRow, TopicRow
from broker_core.storage.commit import CommitJob, GroupCommit, OnDurable
from broker_core.storage.cursor_state import (
    AlsoAcked,
    CursorChange,
    CursorState,
    Deleted,
    MarkDelete,
    Partial,
    Reset,
)
from broker_core.storage.cursors import CursorStore
from broker_core.storage.disk import Disk, File, RealDisk
from broker_core.storage.ledger import LedgerInfo, StoredEntry, UnreadableEntryError
from broker_core.storage.report import Damage, RecoveryReport
from broker_core.storage.store import Store
from broker_core.storage.topic_log import TopicLog

__all__ = [
    "Store",
    "TopicLog",
    "StoredEntry",
    "LedgerInfo",
    "UnreadableEntryError",
    "GroupCommit",
    "CommitJob",
    "OnDurable",
    "BucketStore",
    "CursorStore",
    "CursorState",
    "AlsoAcked",
    "CursorChange",
    "MarkDelete",
    "Deleted",
    "Partial",
    "Reset",
    "Catalogue",
    "TopicRow",
    "LedgerRow",
    "SubscriptionRow",
    "RecoveryReport",
    "Damage",
    "Disk",
    "File",
    "RealDisk",
]
