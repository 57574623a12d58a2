# SPDX-License-Identifier: Apache-2.0
"""The catalogue of a data directory: what exists in it, as SQL tables in memory that a file and its copy keep.

``Catalogue`` owns the database and has each table as an attribute. Each table, or small family of tables, has a file of
its own with its rows and its statements. ``database`` is the memory, ``file`` keeps it, ``schema`` has the form of the
tables. A new table is a file of its own, one line in ``Catalogue`` and its form in ``schema``.
"""

from broker_core.storage.catalogue.catalogue import Catalogue
from broker_core.storage.catalogue.database import Json
from broker_core.storage.catalogue.ledger_ids import COUNTER as LEDGER_COUNTER
from broker_core.storage.catalogue.ledger_ids import INCARNATION_BITS
from broker_core.storage.catalogue.ledgers import (
    LEDGER_CLOSED,
    LEDGER_CREATING,
    LEDGER_DELETING,
    LEDGER_OPEN,
    LedgerRow,
)
from broker_core.storage.catalogue.pending_acks import PendingAckRow, PendingAckRows
from broker_core.storage.catalogue.subscriptions import SubscriptionRow
from broker_core.storage.catalogue.topics import INTERNAL_PREFIX, TopicRow
from broker_core.storage.catalogue.transactions import TransactionRow

__all__ = [
    "Catalogue",
    "TopicRow",
    "SubscriptionRow",
    "PendingAckRow",
    "PendingAckRows",
    "LedgerRow",
    "TransactionRow",
    "INCARNATION_BITS",
    "LEDGER_COUNTER",
    "LEDGER_CREATING",
    "LEDGER_OPEN",
    "LEDGER_CLOSED",
    "LEDGER_DELETING",
    "INTERNAL_PREFIX",
    "Json",
]
