# SPDX-License-Identifier: Apache-2.0
"""Whether a broker tells message indexes, and what a user hears of it: once a query, and in the error that needs them.

Brokers of this project always do. Apache Pulsar does when it is configured to, for the messages that come then.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from pulsarish_spark.places.offsets import Offset

logger = logging.getLogger(__name__)

HOW_TO_GET_INDEXES: Final = (
    "a broker tells them of what it stores while it runs with "
    "brokerEntryMetadataInterceptors=org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor and "
    "exposingBrokerEntryMetadataToClientEnabled=true"
)


class IndexNotice:
    """Tells once, in the log, which kind of broker a query reads from."""

    def __init__(self) -> None:
        self._told = False

    def see(self, ends: Mapping[str, Offset]) -> None:
        """Look at the ends of partitions; an empty one says nothing."""
        known = {name: end.message_index >= 0 for name, end in ends.items() if end.position.entry > 0}
        if self._told or not known:
            return
        self._told = True
        without = sorted(name for name, tells in known.items() if not tells)
        if without:
            logger.warning(
                "broker tells no message indexes partition=%s others=%d effect=%s advice=%s",
                without[0],
                len(without) - 1,
                "the column offset is null, offsets by number are refused, and to keep limits the driver reads entries "
                "to count their messages",
                HOW_TO_GET_INDEXES,
            )
        else:
            logger.info("broker tells message indexes")
