# SPDX-License-Identifier: Apache-2.0
"""The ends of transactions that tasks have left to their driver: all are committed, or all aborted, side by side.

Nobody aborts such a transaction but its driver, and its coordinator by the clock. So one that its coordinator does not
know any more was committed if that is asked before its time limit; later it may be either. Knows no control topic.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from broker_core.base.clock import SystemClock
from broker_core.base.errors import InvalidTxnStatusError, PulsarishError, TransactionNotFoundError
from broker_core.wire.heads import TxnId
from broker_core.wire.transactions import shown
from pulsarish_spark.sink.decisions import Batch

if TYPE_CHECKING:
    from broker_core.client import Client

logger = logging.getLogger(__name__)

LONGER: Final = 'give .option("transactionTimeoutMs", ...) more milliseconds than it takes'
"""The way out where a time limit was too short."""

_TOLD_MAX: Final = 10
"""Transactions that an error names."""


class ExpiredTransactionError(PulsarishError):
    """Transactions of tasks were over before their batch was complete. Nothing of the batch is visible."""


class UnknownTransactionError(PulsarishError):
    """A transaction that was to be committed is over and may have been aborted by its time limit: its rows are there,
    or lost."""


def check_open(client: Client, batch: Batch, txn_ids: Sequence[TxnId]) -> None:
    """ExpiredTransactionError unless all of ``txn_ids`` are open, before one of them is committed."""
    over = 0
    for failure in client.check_transactions(txn_ids):
        if isinstance(failure, (TransactionNotFoundError, InvalidTxnStatusError)):
            over += 1
        elif failure is not None:
            raise failure
    if over:
        raise ExpiredTransactionError(
            f"{over} of {len(txn_ids)} transactions of {batch} were aborted by their time limit before all tasks had "
            "ended; no row of it is visible",
            hint=LONGER,
        )


def commit_all(
    client: Client,
    batch: Batch,
    txn_ids: Sequence[TxnId],
    lasting_until_ms: int,
    *,
    assumes_committed: bool,
) -> None:
    """Commit the transactions of ``batch``. Harmless if that was done, in part or by others.

    UnknownTransactionError for those that are over, of which it is known or possible that they were aborted; of the
    latter only a warning with ``assumes_committed``.
    """
    failures = {
        txn_id: failure
        for txn_id, failure in zip(txn_ids, client.end_transactions(txn_ids, commit=True), strict=True)
        if failure is not None
    }
    aborted = [each for each, failure in failures.items() if isinstance(failure, InvalidTxnStatusError)]
    gone = [each for each, failure in failures.items() if isinstance(failure, TransactionNotFoundError)]
    if SystemClock().now_ms() < lasting_until_ms:
        gone = []
    unanswered = [
        failure
        for failure in failures.values()
        if not isinstance(failure, (InvalidTxnStatusError, TransactionNotFoundError))
    ]
    if not (unanswered or aborted or gone):
        return
    committed = len(txn_ids) - len(unanswered) - len(aborted) - len(gone)
    if unanswered:
        first = unanswered[0]
        first.message += f"; {_visible(batch, committed, len(txn_ids))}, of the others that is not known"
        raise first
    if gone and not aborted and assumes_committed:
        logger.warning("transactions are taken for committed batch=%r ids=%s", str(batch), _named(gone))
        return
    raise UnknownTransactionError(
        f"{_fate(aborted, gone)}; {_visible(batch, committed, len(txn_ids))}",
        hint="look which rows are in the topic; then go on with another transactionalId, and a longer "
        "transactionTimeoutMs",
    )


def abort_all(client: Client, txn_ids: Sequence[TxnId]) -> None:
    """Abort transactions that are not to be committed. One that cannot be aborted now ends by its time limit."""
    for txn_id, failure in zip(txn_ids, client.end_transactions(txn_ids, commit=False), strict=True):
        if failure is not None and not isinstance(failure, (TransactionNotFoundError, InvalidTxnStatusError)):
            logger.warning("transaction was not aborted id=%s reason=%s", shown(txn_id), failure)


def _visible(batch: Batch, committed: int, of: int) -> str:
    return f"of the {of} transactions of {batch} {committed} are committed, and their rows visible"


def _fate(aborted: Collection[TxnId], gone: Collection[TxnId]) -> str:
    told = []
    if aborted:
        told.append(f"{_named(aborted)} aborted by the time limit, and the rows lost")
    if gone:
        told.append(f"{_named(gone)} over, and perhaps aborted by the time limit")
    return "before the commit was asked for, its time limit was over: " + "; ".join(told)


def _named(txn_ids: Collection[TxnId]) -> str:
    names = [shown(each) for each in txn_ids]
    more = f" and {len(names) - _TOLD_MAX} more" if len(names) > _TOLD_MAX else ""
    were = "transaction" if len(names) == 1 else "transactions"
    return f"{were} {', '.join(names[:_TOLD_MAX])}{more}"
