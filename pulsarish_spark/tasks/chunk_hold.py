# SPDX-License-Identifier: Apache-2.0
"""Keeping the first chunks of a message that ends behind a batch: a durable subscription, the *chunk hold*.

A query by positions acknowledges each batch, and the driver, which does that, sees no entries. So only a task knows
that a batch ends between two chunks, and it makes the chunk hold before the batch is done, hence before the driver
acknowledges it. From then on the driver moves the hold (``positions.chunk_holds``). A topic whose batches never end
between two chunks has none.

Knows nothing of when chunks are not needed any more. Invariant: a hold that is there is never moved here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.base.clock import SystemClock
from broker_core.base.errors import ConsumerBusyError, PulsarishError
from broker_core.base.positions import Position

if TYPE_CHECKING:
    from broker_core.client import Client

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChunkHold:
    """The chunk hold of one query on one partition. It travels to the executors.

    ``batch_start``: where the batch begins in the partition. Several tasks may share the batch, and the one that makes
    the hold does not know what the others need; all that they need lies behind this, or is held already.
    """

    name: str
    batch_start: Position

    def keep_from(self, client: Client, topic: str, first: Position) -> None:
        """Keep what lies at ``first`` and behind it, unless something is kept already.

        That it cannot be kept is no failure of the batch, which is read: it is logged, and a loss that comes of it is
        told by the batch that needs the chunks.
        """
        try:
            if not client.has_subscription(topic, self.name):
                self._make(client, topic, min(first, self.batch_start))
        except ConsumerBusyError:
            return  # Another task of the batch makes it.
        except PulsarishError as error:
            logger.warning(
                "chunks of an unfinished message are not kept topic=%s from=%s error=%s", topic, first, error
            )

    def _make(self, client: Client, topic: str, start: Position) -> None:
        from broker_core.client.spark_marks import SparkMark

        mark = SparkMark.of_this_process("chunks", SystemClock().now_ms()).properties()
        client.open_cursor(topic, self.name, _placed(client, topic, start), subscription_properties=mark).close()


def _placed(client: Client, topic: str, start: Position) -> Position:
    """``start`` as a subscription can begin there: behind an entry, which the first one of a ledger is not."""
    if start.entry > 0:
        return start
    before = client.bounds_at(topic, start).before
    return Position(before.ledger, before.entry + 1)
