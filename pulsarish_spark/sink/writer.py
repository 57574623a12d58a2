# SPDX-License-Identifier: Apache-2.0
"""The sink, batch and stream: rows of a task become entries, and the task ends when the broker has confirmed them all.

Exactly once where the brokers have transactions (``guarantees``): a task writes in one, and ``commit`` and ``abort``
end all of them; ``exactly_once`` and ``jobs`` have the steps. Else at least once: a task that is tried again, or a
micro-batch that is replayed after a failure, writes its rows again; what an unfinished attempt wrote stays in the
topic, and ``commit`` and ``abort`` have nothing to do on the broker.

Spark hands a task its rows in Arrow batches, and each is checked as a whole before one of its rows is sent; a row that
is refused later in the task, or in another task, comes when rows before it are stored.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from broker_core.base.clock import SystemClock
from broker_core.base.errors import (
    InvalidTxnStatusError,
    PulsarishError,
    RowsUnconfirmedError,
    TransactionHasOperationFailedError,
    TransactionNotFoundError,
)
from pulsarish_spark.connecting.connection import connected
from pulsarish_spark.losses.loss import running_batch
from pulsarish_spark.options import WriteOptions
from pulsarish_spark.plain_errors import plain_errors, through_pickling
from pulsarish_spark.sink import exactly_once
from pulsarish_spark.sink.columns import check_columns
from pulsarish_spark.sink.decisions import JOB, Batch
from pulsarish_spark.sink.endings import LONGER, ExpiredTransactionError
from pulsarish_spark.sink.exactly_once import Run, Share
from pulsarish_spark.sink.guarantees import tell_at_least_once, uses_transactions
from pulsarish_spark.sink.jobs import Job
from pulsarish_spark.workers.spark_worker import SentToWorkers, freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from broker_core.client import Client, Transaction
    from pulsarish_spark.sink.value_schemas import ValueSchemas

logger = logging.getLogger(__name__)


_OF_EXPIRED: Final = (
    InvalidTxnStatusError,
    RowsUnconfirmedError,
    TransactionHasOperationFailedError,
    TransactionNotFoundError,
)
"""Failures of a task whose transaction was aborted by its time limit."""


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """The rows that one task wrote, all of them confirmed, and their transaction if they are written exactly once."""

    rows: int
    share: Share | None = None


def stored_words(rows: int) -> str:
    """The rows that a task leaves behind which was refused in the middle: those before are not taken back."""
    if not rows:
        return "no row of this task is stored, those of other tasks may be"
    return f"{rows} rows of this task were sent before and are stored, those of other tasks may be"


@dataclass(frozen=True, slots=True)
class Within:
    """How the tasks of a micro-batch or job write in transactions. ``run``: of a control topic; None if there is none.
    ``batch``: None where Spark tells each task."""

    timeout_s: float
    run: Run | None
    batch: Batch | None = None

    def wants(self, batch: Batch) -> bool:
        """Whether ``batch`` is still to be written."""
        return self.run is None or exactly_once.check_batch(self.run, batch)


def schemas_of(options: WriteOptions, schema: StructType) -> ValueSchemas | None:
    """The schemas of rows of ``schema``, None if their values are bytes; ConfigError if they cannot be written."""
    check_columns(schema, options.topic, options.column_names, options.values)
    if not options.values.is_typed:
        return None
    from pulsarish_spark.sink.value_schemas import ValueSchemas  # A process that only plans needs no arrays.

    return ValueSchemas.of(options.values, schema, options.column_names)


def write_rows(
    batches: Iterator[pa.RecordBatch],
    options: WriteOptions,
    within: Within | None = None,
    schemas: ValueSchemas | None = None,
) -> Written:
    """Write all rows of a task; returns when they are confirmed. ``within``: in a transaction, which is handed over;
    None: at least once. ``schemas``: None if values are bytes."""
    batch = None if within is None else within.batch or batch_of_task()
    if within is not None and batch is not None and not within.wants(batch):
        for _ in batches:  # A worker that does not take its rows ends its upstream.
            pass
        return Written(0)
    first = next(batches, None)
    if first is None:
        return Written(0)
    rows = itertools.chain([first], batches)
    with connected(options.address) as client:
        if within is None or batch is None:
            written = Written(_send(client, rows, options, schemas=schemas))
        else:
            written = send_within(client, rows, options, within, batch, schemas)
    freeze_imports()
    return written


def _send(
    client: Client,
    batches: Iterable[pa.RecordBatch],
    options: WriteOptions,
    txn: Transaction | None = None,
    schemas: ValueSchemas | None = None,
) -> int:
    """Send all rows; returns how many there were, when they are confirmed."""
    from pulsarish_spark.sink.targets import Targets  # A process that only plans a write needs no arrays.

    written = 0
    targets = Targets(client, options, txn, schemas)
    try:
        for rows in batches:
            targets.write(rows)
            written += rows.num_rows
        targets.flush()
    except RowsUnconfirmedError:
        raise
    except PulsarishError as refused:
        targets.flush()
        if txn is None:
            refused.message += f"; {stored_words(targets.rows_confirmed)}"
        raise
    finally:
        targets.close()
    return written


def send_within(
    client: Client,
    batches: Iterable[pa.RecordBatch],
    options: WriteOptions,
    within: Within,
    batch: Batch,
    schemas: ValueSchemas | None = None,
) -> Written:
    """Send all rows in a transaction, which is left to the decision about the batch."""
    until_ms = SystemClock().now_ms() + round(within.timeout_s * 1000)
    try:
        with client.new_transaction(within.timeout_s) as txn:
            if within.run is not None:
                exactly_once.intend(client, within.run, txn.id)
            rows = _send(client, batches, options, txn, schemas)
            return Written(rows, Share(within.run, batch, txn.hand_over(), until_ms))
    except _OF_EXPIRED as failure:
        if SystemClock().now_ms() < until_ms:
            raise
        raise ExpiredTransactionError(
            f"the transaction of a task of {batch} was over after {within.timeout_s:g} s, before the task had written "
            f"all of its rows, and none of them is visible: {failure.message}",
            hint=LONGER,
        ) from failure


def batch_of_task() -> Batch:
    """The micro-batch that this task is of."""
    query, number = running_batch()
    if query is None or number is None:
        raise PulsarishError(
            "this task does not know its micro-batch, so its rows cannot be written exactly once",
            hint="Spark tells it to the tasks of a stream",
        )
    return Batch(query, number)


def _shares(messages: Sequence[WriterCommitMessage | None]) -> list[Share]:
    return [each.share for each in messages if isinstance(each, Written) and each.share is not None]


def _total(messages: Sequence[WriterCommitMessage | None]) -> int:
    return sum(message.rows for message in messages if isinstance(message, Written))


class _Writer(SentToWorkers):
    """The tasks of both sinks."""

    def __init__(self, options: WriteOptions, schemas: ValueSchemas | None = None) -> None:
        self._options = replace(options, address=options.address.for_executors())
        self._schemas = schemas
        self._within: Within | None = None

    def _find_schema(self, client: Client) -> None:
        """Have the schema of all rows, and the topic have it, if values have one and all rows go to one topic."""
        if self._schemas is not None:
            from pulsarish_spark.sink.value_schemas import with_schema

            self._schemas = with_schema(self._schemas, self._options.topic, client)

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(iterator, self._options, self._within, self._schemas)


class PulsarishBatchWriter(_Writer, DataSourceArrowWriter):
    """The batch sink. The process that plans the job makes it; it is sent to the tasks, and to the process that ends
    the job."""

    def __init__(self, options: WriteOptions, schemas: ValueSchemas | None = None) -> None:
        super().__init__(options, schemas)
        self._job: Job | None = None
        once = options.once
        if once is None and schemas is None:
            return
        with connected(self._options.address) as client:
            self._find_schema(client)
            if once is not None and uses_transactions(client, options):
                self._job = Job.begun(client, once)
                self._within = Within(once.timeout_s, self._job.run, JOB)

    @plain_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._job is not None:
            with connected(self._options.address) as client:
                self._job.commit(client, _shares(messages))
        logger.info("batch written topic=%s rows=%d", self._options.topic, _total(messages))

    @plain_errors
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._job is not None:
            with connected(self._options.address) as client:
                self._job.abort(client, _shares(messages))
            logger.warning("batch aborted topic=%s", self._options.topic)
            return
        logger.warning("batch aborted topic=%s rows_left_min=%d", self._options.topic, _total(messages))


class PulsarishStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The stream sink. Spark makes a new one for each micro-batch, and another one to commit it, which it tells only
    what the tasks have returned."""

    def __getstate__(self) -> dict[str, Any]:
        """The state that is sent to the tasks: with it the batch begins, as a writer that commits is never sent."""
        if self._within is None:
            with through_pickling(), connected(self._options.address) as client:
                self._find_schema(client)
                self._within = self._begun(client)
        return self.__dict__

    def _begun(self, client: Client) -> Within | None:
        once = self._options.once
        if once is None or not uses_transactions(client, self._options):
            return None
        if not once.control:
            tell_at_least_once(self._options.topic, "the stream has no name: its checkpoint is not known to the sink")
            return None
        return Within(once.timeout_s, exactly_once.begin(client, once))

    @plain_errors
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        shares, once = _shares(messages), self._options.once
        if shares and once is not None and (run := shares[0].run) is not None:
            with connected(self._options.address) as client:
                exactly_once.decide(client, run, shares[0].batch, shares, once)
        logger.info("batch written batch=%d topic=%s rows=%d", batchId, self._options.topic, _total(messages))

    @plain_errors
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        shares, once = _shares(messages), self._options.once
        if shares and once is not None and (run := shares[0].run) is not None:
            with connected(self._options.address) as client:
                exactly_once.give_up(client, run, shares, once)
            logger.warning("batch aborted batch=%d topic=%s", batchId, self._options.topic)
            return
        logger.warning(
            "batch aborted batch=%d topic=%s rows_left_min=%d", batchId, self._options.topic, _total(messages)
        )
