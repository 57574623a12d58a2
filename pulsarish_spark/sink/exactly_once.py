# SPDX-License-Identifier: Apache-2.0
"""Micro-batches that are written exactly once: a transaction for each task, and one decision for each batch.

Steps, by the processes in which Spark calls them:

    begin     planner   append that a run begins, which fences every earlier one; carry out the last decision, as its
                        driver may have died amid it; abort what earlier runs have opened and not decided
    write     task      skip a batch that is decided; else open a transaction, tell so in the control topic, write,
                        and hand the transaction over: no send of this task can follow
    decide    driver    append which transactions make up the batch; if that is valid, commit them
    give up   driver    abort them

A task that is tried again, or speculated, has a transaction that no decision names; the next run aborts it. Readers see
the tasks of a batch within some milliseconds of each other, not in one instant. ``decisions`` has the verdict.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.base.clock import SystemClock
from broker_core.base.errors import InvalidTxnStatusError, PulsarishError, TransactionNotFoundError
from broker_core.base.positions import Position
from broker_core.wire.heads import TxnId
from broker_core.wire.transactions import shown
from pulsarish_spark.connecting.side_by_side import side_by_side
from pulsarish_spark.sink.control_topic import ControlTopic
from pulsarish_spark.sink.decisions import Batch, Begun, ControlLog, Decision, Intent

if TYPE_CHECKING:
    from broker_core.client import Client, CursorHandle

logger = logging.getLogger(__name__)


class FencedError(PulsarishError):
    """Another driver of the same stream has begun a batch since this one did. Nothing of this one's was committed."""


class UnknownTransactionError(PulsarishError):
    """A decided transaction is over and may have been aborted by its time limit: its rows are there, or lost."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run that has begun, as its tasks know it. ``done``: the batch that is decided already, if there is one."""

    name: str
    control: str
    begun_at: Position
    done: Batch | None


@dataclass(frozen=True, slots=True)
class Share:
    """Rows that one task has written: a transaction that was handed over."""

    run: Run
    batch: Batch
    txn_id: TxnId
    lasting_until_ms: int


def begin(client: Client, control: str) -> Run:
    """Begin a run on the control topic, and settle what earlier ones have left."""
    topic = ControlTopic.made(client, control)
    with topic.cursor() as (start, cursor):
        name = uuid.uuid4().hex
        begun_at = topic.append(Begun(name))
        log = topic.read(start, begun_at)
        if log.last is not None:
            carry_out(client, log.last)
        give_up(client, log.undecided)
        _let_go(log, cursor)
    return Run(name, topic.name, begun_at, None if log.last is None else log.last.batch)


def _let_go(log: ControlLog, cursor: CursorHandle | None) -> None:
    """Let records be deleted that no run needs any more."""
    keep = log.keep_from
    if cursor is not None and keep is not None and log.last is not None and keep.entry > 0:
        cursor.ack_through(Position(keep.ledger, keep.entry - 1))


def check_batch(run: Run, batch: Batch) -> bool:
    """Whether ``batch`` has to be written; PulsarishError for a checkpoint that was put back to an older state."""
    done = run.done
    if done is None or done.query != batch.query or done.number < batch.number:
        return True
    if done.number == batch.number:
        return False
    raise PulsarishError(
        f"batch {batch.number} of query {batch.query} is to be written, and batch {done.number} was before",
        hint="the checkpoint is an older copy; with another transactionalId its batches are written again",
    )


def intend(client: Client, run: Run, txn_id: TxnId) -> None:
    """Tell the next run of a transaction that this one has opened, before anything is written in it."""
    ControlTopic(client, run.control).append(Intent(run.name, txn_id))


def decide(client: Client, shares: Sequence[Share]) -> None:
    """Decide that ``shares`` make up their batch, and commit them; FencedError if another driver has begun."""
    first, txn_ids = shares[0], tuple(each.txn_id for each in shares)
    decision = Decision(first.run.name, first.batch, txn_ids, min(each.lasting_until_ms for each in shares))
    topic = ControlTopic(client, first.run.control)
    log = topic.read(first.run.begun_at, topic.append(decision))
    if log.last == decision:
        carry_out(client, decision)
        return
    give_up(client, txn_ids)
    raise FencedError(
        f"batch {first.batch.number} of query {first.batch.query} was not written by this driver: another one has "
        f"begun on {topic.name}",
        hint="two drivers run the same query, or two queries share a transactionalId; stop one of them",
    )


def carry_out(client: Client, decision: Decision) -> None:
    """Commit the transactions of a valid decision. Harmless if that was done, in part or by others."""

    def commit(txn_id: TxnId) -> None:
        try:
            client.end_transaction(txn_id, commit=True)
        except TransactionNotFoundError as gone:
            # Nobody aborts a decided transaction, but its coordinator by the clock.
            if SystemClock().now_ms() >= decision.lasting_until_ms:
                raise _unknown(decision, txn_id) from gone
        except InvalidTxnStatusError as aborted:
            raise _unknown(decision, txn_id) from aborted

    side_by_side(commit, decision.txn_ids)


def give_up(client: Client, txn_ids: Iterable[TxnId]) -> None:
    """Abort transactions that no valid decision names. One that cannot be aborted now ends by its time limit."""

    def abort_one(txn_id: TxnId) -> None:
        try:
            client.end_transaction(txn_id, commit=False)
        except (TransactionNotFoundError, InvalidTxnStatusError):
            pass  # It is over.
        except PulsarishError as failure:
            logger.warning("transaction was not aborted id=%s reason=%s", shown(txn_id), failure)

    side_by_side(abort_one, list(txn_ids))


def _unknown(decision: Decision, txn_id: TxnId) -> UnknownTransactionError:
    return UnknownTransactionError(
        f"transaction {shown(txn_id)} of batch {decision.batch.number} of query "
        f"{decision.batch.query} was to be committed, and its time limit was over before its coordinator was asked",
        hint="look whether its rows are in the topic; then go on with another transactionalId, "
        "and a longer transactionTimeoutMs",
    )
