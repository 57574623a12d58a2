# SPDX-License-Identifier: Apache-2.0
"""The guarantee that is in force: the one that was asked for, else exactly once where the brokers have transactions.

Only an answer of a broker counts: that it has no transactions, or that this role may not use them. A broker that cannot
be reached, or is not ready, fails the batch. Spark makes a writer for each micro-batch in a process that it keeps while
batches come at least once a minute; that process tells once for each topic that rows are written at least once.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from broker_core.base.errors import AuthorizationError, NotAllowedError
from pulsarish_spark.options import WriteOptions
from pulsarish_spark.options.guarantee import AT_LEAST_ONCE

if TYPE_CHECKING:
    from broker_core.client import Client

logger = logging.getLogger(__name__)


def uses_transactions(client: Client, options: WriteOptions) -> bool:
    """Whether rows are written exactly once; an error if that was asked for, and cannot be."""
    once = options.once
    if once is None:
        return False
    try:
        if client.has_transactions():
            return True
        why, hint = "the brokers have none", "set transactionCoordinatorEnabled=true there"
    except AuthorizationError as refused:
        why, hint = refused.message, "grant this role the right to use the namespace pulsar/system"
    if once.is_asked_for:
        raise NotAllowedError(
            f"rows cannot be written exactly once without transactions: {why}", hint=f"{hint}, or use {AT_LEAST_ONCE}"
        )
    tell_at_least_once(options.topic, f"no transactions: {why}")
    return False


@functools.cache
def tell_at_least_once(topic: str, why: str) -> None:
    """Warn of the weaker guarantee; only the first call in a process does something."""
    logger.warning(
        "rows are written at least once topic=%s why=%r effect=%r",
        topic,
        why,
        f"what is run again is written again; {AT_LEAST_ONCE} says that this is meant",
    )
