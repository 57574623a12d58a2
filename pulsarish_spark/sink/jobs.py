# SPDX-License-Identifier: Apache-2.0
"""Batch writes that are written exactly once: a transaction for each task, all committed by the driver, or none.

Without a ``transactionalId`` nothing is decided in a control topic. The driver asks whether all transactions are open,
and then commits all of them side by side; one that is killed within these milliseconds leaves the rows of some tasks.
Tasks tell of their transactions in a topic that all such jobs of a namespace share: Spark kills the worker of an
attempt that has failed, and the driver then aborts what is in no message, or it would hold readers up until its time
limit. That is all that the topic is for, so a job goes on without it if its role may not use it, if it is missing and
brokers make no topics by themselves, or if the job loses it.

With one, a job is a stream of one batch (``exactly_once``): a later job of that name finds its decision, completes its
commits, and writes nothing; one that was killed before it had decided is aborted by the next.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker_core.base.clock import SystemClock
from broker_core.base.errors import AuthorizationError, PulsarishError, TopicNotFoundError
from broker_core.base.positions import Position
from pulsarish_spark.options.guarantee import ExactlyOnce
from pulsarish_spark.sink import exactly_once
from pulsarish_spark.sink.control_topic import ControlTopic
from pulsarish_spark.sink.decisions import JOB, Begun, GivenUp
from pulsarish_spark.sink.endings import abort_all, check_open, commit_all
from pulsarish_spark.sink.exactly_once import Run, Share

if TYPE_CHECKING:
    from broker_core.client import Client
    from broker_core.wire.heads import TxnId

logger = logging.getLogger(__name__)

ENDING_S: Final = 5.0
"""Time in which Spark ends the other tasks of a job that has failed: until then they may begin transactions."""


@dataclass(frozen=True, slots=True)
class Job:
    """A batch write that has begun. ``run``: on its control topic; without a name on the topic of intents, or None."""

    once: ExactlyOnce
    run: Run | None = None
    is_done: bool = False

    @classmethod
    def begun(cls, client: Client, once: ExactlyOnce) -> Job:
        """Begin one. With a name that was written before there is nothing left to do."""
        if not once.control:
            return cls(once, _unnamed_run(client, once.intents))
        run = exactly_once.begin(client, once)
        is_done = not exactly_once.check_batch(run, JOB)
        if is_done:
            logger.warning(
                "nothing is written why=%s control_topic=%s",
                "'a batch write of this transactionalId was committed before'",
                run.control,
            )
        return cls(once, run, is_done)

    def commit(self, client: Client, shares: Sequence[Share]) -> None:
        """Have the rows of all tasks read, or fail and have none of them read."""
        if self.is_done:
            return
        if self.run is not None and self.once.control:
            exactly_once.decide(client, self.run, JOB, shares, self.once)
            return
        txn_ids = [each.txn_id for each in shares]
        if txn_ids:
            check_open(client, JOB, txn_ids)
            until_ms = min(each.lasting_until_ms for each in shares)
            commit_all(client, JOB, txn_ids, until_ms, assumes_committed=self.once.assumes_committed)
        self._abort_others(client, txn_ids)

    def abort(self, client: Client, shares: Sequence[Share]) -> None:
        """Have the rows of no task read, but where the job was decided, or committed in part, before it failed."""
        if self.is_done:
            return
        if self.run is not None and self.once.control:
            exactly_once.give_up(client, self.run, shares, self.once)
            return
        txn_ids = [each.txn_id for each in shares]
        abort_all(client, txn_ids)
        if self.run is not None:
            SystemClock().sleep(ENDING_S)
        self._abort_others(client, txn_ids)

    def _abort_others(self, client: Client, txn_ids: Sequence[TxnId]) -> None:
        """Abort what attempts have opened that the driver was not told of; what cannot be found out ends by itself."""
        if self.run is None:
            return
        topic = ControlTopic(client, self.run.control)
        try:
            log = topic.read(self.run.begun_at, topic.append(GivenUp(self.run.name)))
        except PulsarishError as failure:
            logger.warning("transactions of failed attempts may stay open for a while reason=%s", failure)
            return
        abort_all(client, [each for each in log.undecided_of(self.run.name) if each not in txn_ids])


def _unnamed_run(client: Client, intents: str) -> Run | None:
    """A run on the topic of intents, which keeps the records from here on; None where it cannot be used.

    Earlier records go first: a backlog quota would stop producers for their age.
    """
    try:
        topic = ControlTopic.made(client, intents)
        name = uuid.uuid4().hex
        with topic.cursor() as (_, cursor):
            last = client.last_entry(topic.name).position
            if cursor is not None and last.entry >= 0:
                cursor.ack_through(Position(last.ledger, last.entry))
        begun_at = topic.append(Begun(name))
    except (AuthorizationError, TopicNotFoundError) as refused:
        logger.info("transactions of failed attempts end by their time limit reason=%s", refused)
        return None
    return Run(name, topic.name, begun_at, None)
