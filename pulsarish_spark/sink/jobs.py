# SPDX-License-Identifier: Apache-2.0
"""Batch writes that are written exactly once: a transaction for each task, all committed by the driver, or none.

Without a ``transactionalId`` a job has no control topic. Its driver asks whether all transactions are open, and then
commits all of them side by side; one that is killed within these milliseconds leaves the rows of some tasks. What its
tasks have opened, and nobody has ended, ends by its time limit.

With one, a job is a stream of one batch (``exactly_once``): a later job of that name finds its decision, completes its
commits, and writes nothing; one that was killed before it had decided is aborted by the next.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsarish_spark.options.guarantee import ExactlyOnce
from pulsarish_spark.sink import exactly_once
from pulsarish_spark.sink.decisions import JOB
from pulsarish_spark.sink.endings import abort_all, check_open, commit_all
from pulsarish_spark.sink.exactly_once import Run, Share

if TYPE_CHECKING:
    from broker_core.client import Client

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """A batch write that has begun; ``run``: on its control topic, None if it has no name."""

    once: ExactlyOnce
    run: Run | None = None
    is_done: bool = False

    @classmethod
    def begun(cls, client: Client, once: ExactlyOnce) -> Job:
        """Begin one. With a name that was written before there is nothing left to do."""
        if not once.control:
            return cls(once)
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
        if self.run is not None:
            exactly_once.decide(client, self.run, JOB, shares, self.once)
        elif shares:
            txn_ids = [each.txn_id for each in shares]
            check_open(client, JOB, txn_ids)
            until_ms = min(each.lasting_until_ms for each in shares)
            commit_all(client, JOB, txn_ids, until_ms, assumes_committed=self.once.assumes_committed)

    def abort(self, client: Client, shares: Sequence[Share]) -> None:
        """Have the rows of no task read, but where the job was decided, or committed in part, before it failed."""
        if self.run is not None and not self.is_done:
            exactly_once.give_up(client, self.run, shares, self.once)
        else:
            abort_all(client, [each.txn_id for each in shares])
