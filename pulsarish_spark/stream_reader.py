# SPDX-License-Identifier: Apache-2.0
"""The stream source as Spark calls it: JSON becomes offsets, read limits numbers, and tasks input partitions.

Spark makes one of these in a process of its own on the driver, and pickles another, unused one to the executors for
``read`` alone. The constructor cannot fail, because Spark would hide the reason; what is wrong with the options is said
by the first call.

A ``StreamDriver`` chooses the messages of a batch and owns the meaning of an offset: ``PositionDriver``
takes ranges between positions, ``QueueDriver`` the entries that the broker gives it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from broker_core.base.clock import SystemClock
from broker_core.base.errors import AlreadyClosedError
from broker_core.base.moments import LONG_MAX
from pulsarish_spark.batch_reader import input_partitions, read_partition
from pulsarish_spark.connecting.connection import connected
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.options import ReadOptions, Side, read_options
from pulsarish_spark.places.offsets import SCHEMA_CHANGES
from pulsarish_spark.plain_errors import plain_errors
from pulsarish_spark.rows.schema import check_user_schema
from pulsarish_spark.rows.typed_values import TypedValues
from pulsarish_spark.tasks.task import ReadTask
from pulsarish_spark.typed.target_schema import with_typed_values
from pulsarish_spark.workers.spark_worker import SentToWorkers

if TYPE_CHECKING:
    import pyarrow as pa

    from broker_core.client import Client
    from pulsarish_spark.typed.schema_changes import SchemaWatch


class StreamOffset(Protocol):
    """One offset of a query. Offsets that are equal have the same JSON."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, in the one order: Spark compares offsets as text."""
        ...


O = TypeVar("O", bound=StreamOffset)  # noqa: E741 - as usual for a type variable, one letter


class StreamDriver(Protocol[O]):
    """State of one running query on the driver. Used by one thread."""

    def offset(self, document: Mapping[str, Any]) -> O:
        """Read ``to_json()`` of an offset back; UsageError for one that this driver has not made."""
        ...

    def bound_to_now(self) -> None:
        """AvailableNow: read no further than what is there at the first ``latest``."""
        ...

    def initial(self) -> O:
        """The start of a query without a checkpoint; the same answer each time."""
        ...

    def latest(self, start: O, limit: int | None) -> O:
        """The end of the next batch from ``start``, in at most ``limit`` messages; ``start`` if there is none.

        ``limit`` None: the trigger takes all that there is, whatever the options say.
        """
        ...

    def newest(self) -> StreamOffset | None:
        """The newest offset of the progress report: the ends as last seen, or how much is left."""
        ...

    def tasks(self, start: O, end: O) -> list[ReadTask]:
        """The tasks of the batch between two offsets. A batch that is replayed has the same messages."""
        ...

    def commit(self, end: O) -> None:
        """Spark will never ask for anything before ``end`` again."""
        ...

    def close(self) -> None:
        """Leave the subscription; it stays on the broker."""
        ...


def _new_driver(options: ReadOptions, client: Client, closing: contextlib.ExitStack) -> StreamDriver[Any]:
    LossPolicy.of(options).prepare()
    if options.queue is not None:
        from pulsarish_spark.queue.queue_driver import open_queue

        return open_queue(options, options.queue, client)
    from pulsarish_spark.positions.position_driver import PositionDriver

    views = replace(options.address, compacted=True)
    return PositionDriver(
        options, client, view_client=closing.enter_context(connected(views)) if options.compacted else None
    )


class _LastDocument:
    """The last offset that was read or made, and its JSON: ten times a second an idle query is asked the same."""

    def __init__(self) -> None:
        self._offset: StreamOffset | None = None
        self._document: dict[str, Any] = {}

    def read(self, document: Mapping[str, Any], driver: StreamDriver[Any]) -> StreamOffset:
        if self._offset is None or document != self._document:
            self._offset, self._document = driver.offset(document), dict(document)
        return self._offset

    def made(self, offset: StreamOffset) -> dict[str, Any]:
        if offset != self._offset:
            self._offset, self._document = offset, offset.to_json()
        return self._document


class PulsarishStreamReader(SentToWorkers, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream source."""

    def __init__(self, raw: Mapping[str, str], schema: StructType, typed: TypedValues | None = None) -> None:
        """``typed``: the target schema, where it was found before."""
        self._raw = dict(raw)
        self._typed = typed
        self._schema = schema
        self._bounded = False
        self._checked_options: ReadOptions | None = None
        self._closing: contextlib.ExitStack | None = None
        self._driver_state: StreamDriver[Any] | None = None
        self._last = _LastDocument()
        self._last_report = _LastDocument()
        self._watch: SchemaWatch | None = None

    # -- on the driver

    @plain_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._bounded = True
        if self._driver_state is not None:
            self._driver_state.bound_to_now()

    @plain_errors
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        # Spark knows no limit of several kinds, so it is told of one on rows, and gives it back unless the trigger is
        # Once. What the options say besides, the driver knows.
        options = self._options()
        is_told = options.amounts.is_limited or options.queue is not None
        return ReadMaxRows(options.amounts.messages_max or LONG_MAX) if is_told else ReadAllAvailable()

    @plain_errors
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        initial: dict[str, Any] = self._driver().initial().to_json()
        return initial

    @plain_errors
    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        driver = self._driver()
        if self._watch is not None:
            self._watch.look()
        return self._last.made(driver.latest(self._last.read(start, driver), most))

    @plain_errors
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        newest = self._driver().newest()
        if newest is None:
            return None
        report = self._last_report.made(newest)
        changes = [] if self._watch is None else self._watch.changes
        return report | {SCHEMA_CHANGES: [each.to_json() for each in changes]} if changes else report

    @plain_errors
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        driver = self._driver()
        return input_partitions(driver.tasks(driver.offset(start), driver.offset(end)))

    @plain_errors
    def commit(self, end: Mapping[str, Any]) -> None:
        driver = self._driver()
        driver.commit(driver.offset(end))

    def stop(self) -> None:
        """Not called when a query is stopped in the usual way: Spark kills the process, the broker sees it go."""
        if self._closing is not None:
            self._closing.close()
            self._closing = None

    def _options(self) -> ReadOptions:
        if self._checked_options is None:  # Spark asks for the read limit several times a second.
            options = replace(read_options(self._raw, Side.STREAM_READ, os.environ), typed=self._typed)
            options = with_typed_values(options)
            check_user_schema(self._schema, options.columns, options.typed)
            self._checked_options = options
        return self._checked_options

    def _driver(self) -> StreamDriver[Any]:
        if self._driver_state is None:
            options = self._options()
            closing = contextlib.ExitStack()
            client = closing.enter_context(connected(options.address))
            self._driver_state = _new_driver(options, client, closing)
            closing.callback(self._driver_state.close)
            if options.typed is not None:
                from pulsarish_spark.typed.schema_changes import SchemaWatch

                self._watch = SchemaWatch(client, options, options.typed, SystemClock())
            self._closing = closing
            if self._bounded:
                self._driver_state.bound_to_now()
        elif self._closing is None:
            raise AlreadyClosedError("the stream reader was stopped")
        return self._driver_state

    # -- on an executor

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition)
