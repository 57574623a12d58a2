# SPDX-License-Identifier: Apache-2.0
"""Rows that are written exactly once: a transaction for each task, and one decision for each micro-batch.

Steps, by the processes in which Spark calls them:

    begin     planner   append that a run begins, which fences every earlier one; carry out the last decision, unless
                        that was done, as its driver may have died amid it; abort what earlier runs have opened and
                        not decided
    write     task      skip a batch that is decided; else open a transaction, tell so in the control topic, write,
                        and hand the transaction over: no send of this task can follow
    decide    driver    append which transactions make up the batch; if that is valid, commit them, and append that
    give up   driver    append that the run is given up; abort its transactions, unless a decision stands before that:
                        Spark gives up too where the commit itself has failed

The messages of a batch may be acknowledged by its decision, too (``inputs``).

A task that is tried again, or speculated, has a transaction that no decision names; the next run aborts it. Readers see
the tasks of a batch within some milliseconds of each other, not in one instant. ``decisions`` has the verdict,
``endings`` commits and aborts, ``jobs`` has batch writes.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.base.clock import SystemClock
from broker_core.base.errors import PulsarishError
from broker_core.base.positions import Position
from broker_core.wire.heads import TxnId
from pulsarish_spark.options.guarantee import ExactlyOnce
from pulsarish_spark.sink.control_topic import FIRST, ControlTopic
from pulsarish_spark.sink.decisions import (
    JOB,
    Batch,
    Begun,
    CarriedOut,
    ControlLog,
    Decision,
    GivenUp,
    Input,
    Intent,
)
from pulsarish_spark.sink.endings import ExpiredTransactionError, abort_all, check_open, commit_all
from pulsarish_spark.sink.inputs import commit_inputs, still_open

if TYPE_CHECKING:
    from broker_core.client import Client, CursorHandle

logger = logging.getLogger(__name__)


class FencedError(PulsarishError):
    """Another driver of the same stream has begun a batch since this one did, or the control topic was deleted. Nothing
    of this one's was committed."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run that has begun, as its tasks know it. ``done``: the batch that is decided already, if there is one.
    ``inputs``: the transactions in which its messages are acknowledged, as far as they are to be decided with it."""

    name: str
    control: str
    begun_at: Position
    done: Batch | None
    inputs: tuple[Input, ...] = ()


@dataclass(frozen=True, slots=True)
class Share:
    """Rows that one task has written: a transaction that was handed over. ``run``: None for a job without a name."""

    run: Run | None
    batch: Batch
    txn_id: TxnId
    lasting_until_ms: int


def begin(client: Client, once: ExactlyOnce) -> Run:
    """Begin a run on the control topic, and settle what earlier ones have left."""
    topic = ControlTopic.made(client, once.control)
    with topic.cursor() as (start, cursor):
        name = uuid.uuid4().hex
        begun_at = topic.append(Begun(name))
        log = _log(topic, start, begun_at)
        if log.last is not None and not log.is_carried_out:
            carry_out(client, topic, log.last, once)
        abort_all(client, log.undecided)
        _let_go(log, cursor)
    return Run(name, topic.name, begun_at, None if log.last is None else log.last.batch, log.inputs)


def _log(topic: ControlTopic, start: Position, begun_at: Position) -> ControlLog:
    """The verdict at ``begun_at``. ``start``: the place of the cursor, which a sink moves only up to a decision.

    So where none is behind a cursor that was moved, a policy has moved it, as an expiry of messages does. Records
    before it are there until their ledger is deleted.
    """
    log = topic.read(start, begun_at)
    if log.last is not None or start.entry == 0:
        return log
    log = topic.read(FIRST, begun_at)
    if log.last is None:
        logger.warning(
            "decisions are gone from a control topic topic=%s effect=%r advice=%r",
            topic.name,
            "a batch that was decided, and that is run again now, is written again",
            "exempt the topic from messageTTL and from backlog quotas that evict, by policies of its own",
        )
    return log


def _let_go(log: ControlLog, cursor: CursorHandle | None) -> None:
    """Let records be deleted that no run needs any more."""
    keep = log.keep_from
    if cursor is not None and keep is not None and log.last is not None and keep.entry > 0:
        cursor.ack_through(Position(keep.ledger, keep.entry - 1))


def check_batch(run: Run, batch: Batch) -> bool:
    """Whether ``batch`` has to be written; PulsarishError for a checkpoint that was put back to an older state."""
    done = run.done
    if done is not None and (done == JOB) is not (batch == JOB):
        raise PulsarishError(
            f"{run.control} has the decisions of a {'batch write' if done == JOB else 'stream'}",
            hint="give another transactionalId",
        )
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


def decide(client: Client, run: Run, batch: Batch, shares: Sequence[Share], once: ExactlyOnce) -> None:
    """Decide that ``shares`` make up ``batch``, and commit them; FencedError if another driver has begun.

    ExpiredTransactionError if one of them is over already. A decision would hold the stream up for good then.
    """
    txn_ids = tuple(each.txn_id for each in shares)
    until_ms = min((each.lasting_until_ms for each in shares), default=0)
    topic = ControlTopic(client, run.control)
    if txn_ids and (batch == JOB or _may_be_over(until_ms, once)):
        try:
            check_open(client, batch, txn_ids)
        except ExpiredTransactionError:
            log = topic.read(run.begun_at, topic.append(GivenUp(run.name)))
            if log.run:
                raise _fenced(run, batch, log) from None
            raise
    decision = Decision(run.name, batch, txn_ids, until_ms, still_open(client, run.inputs))
    log = topic.read(run.begun_at, topic.append(decision))
    if log.last == decision:
        carry_out(client, topic, decision, once)
        return
    abort_all(client, txn_ids)
    raise _fenced(run, batch, log)


def _fenced(run: Run, batch: Batch, log: ControlLog) -> FencedError:
    if not log.has_begun(run.name):
        return FencedError(
            f"{batch} was not written by this driver: {run.control} has no record any more that it had begun",
            hint="was the topic deleted, or emptied? Leave it as it is while the query is in use",
        )
    return FencedError(
        f"{batch} was not written by this driver: another one has begun on {run.control}",
        hint="two drivers run the same query or job, or two share a transactionalId; stop one of them",
    )


def _may_be_over(until_ms: int, once: ExactlyOnce) -> bool:
    """Whether half the time limit has passed: clocks of tasks and drivers differ by less, and to ask takes a while."""
    return SystemClock().now_ms() >= until_ms - once.timeout_s * 1000 / 2


def carry_out(client: Client, topic: ControlTopic, decision: Decision, once: ExactlyOnce) -> None:
    """Commit the transactions of a valid decision, and note that. Harmless if that was done, in part or by others."""
    commit_all(
        client,
        decision.batch,
        decision.txn_ids,
        decision.lasting_until_ms,
        assumes_committed=once.assumes_committed,
    )
    commit_inputs(client, decision.inputs)
    topic.append(CarriedOut(decision.run))


def give_up(client: Client, run: Run, shares: Sequence[Share], once: ExactlyOnce) -> None:
    """End a run whose batch has failed: abort ``shares``, unless they are decided, for then the failure came later."""
    topic = ControlTopic(client, run.control)
    log = topic.read(run.begun_at, topic.append(GivenUp(run.name)))
    if log.last is not None and log.last.run == run.name:
        logger.warning("failed batch is committed batch=%r why=%r", str(log.last.batch), "it was decided before")
        carry_out(client, topic, log.last, once)
    else:
        abort_all(client, [each.txn_id for each in shares])
