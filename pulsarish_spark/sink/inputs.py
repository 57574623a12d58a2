# SPDX-License-Identifier: Apache-2.0
"""Messages of a queue that are acknowledged by the decision about the rows that were made of them.

The source locks a batch in a transaction of its own (``queue.locking``), whose id the control topic of the sink gets
when the batch is planned (``SourceInputs``), and so before its run begins: Spark makes the tasks that read before it
makes the writer. The run has it decided with the transactions of its tasks.

All that can go wrong with an input leaves it to its source, which ends it as it does without a sink, when Spark has
noted that the batch is done. So a decision is not held up by one whose time limit was over, and a batch without rows,
about which nothing is decided, is acknowledged all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from broker_core.base.clock import SystemClock
from broker_core.base.errors import InvalidTxnStatusError, TransactionNotFoundError
from broker_core.base.positions import Position
from broker_core.wire.heads import TxnId
from broker_core.wire.transactions import shown
from pulsarish_spark.sink.control_topic import ControlTopic
from pulsarish_spark.sink.decisions import Input, SourceBegun
from pulsarish_spark.sink.endings import abort_all

if TYPE_CHECKING:
    from broker_core.client import Client

logger = logging.getLogger(__name__)

_ASKED_MS: Final = 60_000
"""An input that may be over so soon is asked for before it is decided: clocks differ by less."""


def still_open(client: Client, inputs: Sequence[Input]) -> tuple[Input, ...]:
    """Inputs that can be committed with a decision that is made now."""
    asked = [each for each in inputs if SystemClock().now_ms() >= each.lasting_until_ms - _ASKED_MS]
    over = {
        each
        for each, failure in zip(asked, client.check_transactions([each.txn_id for each in asked]), strict=True)
        if failure is not None
    }
    for each in over:
        logger.warning("input of a batch is over before its decision transaction=%s", shown(each.txn_id))
    return tuple(each for each in inputs if each not in over)


def commit_inputs(client: Client, inputs: Sequence[Input]) -> None:
    """Commit the inputs of a valid decision. Harmless if that was done."""
    failures = client.end_transactions([each.txn_id for each in inputs], commit=True)
    for each, failure in zip(inputs, failures, strict=True):
        is_gone = isinstance(failure, TransactionNotFoundError)
        if failure is None or (is_gone and SystemClock().now_ms() < each.lasting_until_ms):
            continue  # Only who has the decision, or its source, ends it before.
        if not is_gone and not isinstance(failure, InvalidTxnStatusError):
            raise failure
        logger.warning(
            "input of a decided batch may have been over before its commit transaction=%s effect=%r",
            shown(each.txn_id),
            "its source acknowledges the messages one by one, and others may have processed them, too",
        )


class SourceInputs:
    """The inputs of one source, on the control topic of the sink of its query. For one thread."""

    def __init__(self, client: Client, control: str, source: str) -> None:
        """``source``: a name that the source has in each of its processes, and no other source of the query."""
        self._client = client
        self._control = control
        self._source = source
        self._topic: ControlTopic | None = None
        self._since = Position(0, 0)
        self._noted: TxnId | None = None
        self._is_sink_known = False  # whether there is one, or was told not to be

    def begin(self, own: TxnId | None) -> None:
        """First call of a process: end what earlier ones can do. ``own``: the transaction of the newest batch that
        Spark has noted, which may be run again.

        An input of an earlier process that is not of that batch, and that nobody has decided, is of a checkpoint that
        is gone: its messages come again.
        """
        if self._topic is not None:
            return
        topic = ControlTopic.made(self._client, self._control)
        with topic.cursor() as (start, _cursor):
            self._since = topic.append(SourceBegun(self._source))
            left = topic.read(start, self._since).left.get(self._source)
        if left is not None and left.txn_id != own:
            abort_all(self._client, [left.txn_id])
        self._topic = topic

    def note(self, own: TxnId, lasting_until_ms: int) -> None:
        """A batch is about to be planned whose messages are acknowledged in ``own``. A warning, once, if the one before
        was written by no sink that has its decisions here."""
        assert self._topic is not None
        if own == self._noted:
            return
        at = self._topic.append(Input(self._source, self._since, own, lasting_until_ms))
        if self._noted is not None and not self._is_sink_known:
            self._look_for_sink(self._topic, at)
        self._noted = own

    def _look_for_sink(self, topic: ControlTopic, through: Position) -> None:
        self._is_sink_known = True
        with topic.cursor() as (start, _cursor):
            if topic.read(start, through).keep_from is not None:
                return
        logger.warning(
            "no sink decides with the source control_topic=%s effect=%r advice=%r",
            topic.name,
            "messages are acknowledged when Spark has noted that their batch is done",
            "give the sink of the query the same transactionalId, with the same tenant/namespace/ before it if its "
            "topic is in another namespace; or give the source none",
        )
