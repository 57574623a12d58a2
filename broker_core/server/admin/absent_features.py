# SPDX-License-Identifier: Apache-2.0
"""What statistics show of features that this broker does not have, under Pulsar's names: that there is nothing.

Tools read these fields without asking whether they are there. ``tests/server/test_admin_oracle_fields.py`` compares all
fields with those of Apache Pulsar and says which are left out, and why.
"""

from __future__ import annotations

from typing import Any, Final

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
"""No replication, transactions, offloading, limits of rates, compaction, and no topics of the broker's own."""

NO_LEDGER: Final = -1

OF_LEDGERS: Final[dict[str, Any]] = {
    "schemaLedgers": [],
    "compactedLedger": {
        **dict.fromkeys(("ledgerId", "entries", "size"), NO_LEDGER),
        **dict.fromkeys(("offloaded", "underReplicated"), False),
    },
    "properties": {},
}

OF_CURSORS: Final[dict[str, Any]] = {
    "cursorLedger": NO_LEDGER,
    "cursorLedgerLastEntry": NO_LEDGER,
    "pendingReadOps": 0,
    "properties": {},
}
"""All cursors are in one log, and what is read is there at once."""
