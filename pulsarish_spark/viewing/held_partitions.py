# SPDX-License-Identifier: Apache-2.0
"""Partitions whose readers have waited for a minute for the end of a transaction: no lag is seen, and no rows come.

Asked of the admin REST at intervals, with one request for all partitions, or where this client is no superuser of the
broker with one for each.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping
from typing import Final

from broker_core.base.clock import Clock
from broker_core.base.errors import PulsarishError
from broker_core.base.names import TopicName
from broker_core.client.held_readers import HeldBack, long_held_back
from pulsarish_spark.connecting.connection import Address, open_admin

logger = logging.getLogger(__name__)

LOOK_S: Final = 10.0
"""Seconds for which an answer is believed: a query without rows tells its lag about as often."""


class HeldPartitions:
    """Asks the broker at ``address``, and says once in the log why it is not known. Used by one thread at a time."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self._found: dict[str, tuple[float, HeldBack | None]] = {}
        self._told = False

    @property
    def can_be_asked(self) -> bool:
        """Whether it is known where the admin REST is."""
        return bool(self._address.admin_url) or self._address.embedded_here is not None

    def of_all(self, names: Collection[str]) -> dict[str, HeldBack]:
        """The ones of ``names``, full names on the broker, that are held back, as far as that is known."""
        now = self._clock.monotonic()
        if due := [name for name in names if now - self._found.get(name, (-math.inf, None))[0] > LOOK_S]:
            held = self._asked(list(map(TopicName.parse, due)))
            self._found |= {name: (now, held.get(TopicName.parse(name))) for name in due}
        found = ((name, self._found[name][1]) for name in names)
        return {name: held for name, held in found if held is not None}

    def _asked(self, topics: Collection[TopicName]) -> Mapping[TopicName, HeldBack]:
        try:
            admin = open_admin(self._address)
            if admin is None:
                return {}
            with admin:
                return long_held_back(admin, topics, self._clock.now_ms())
        except PulsarishError as error:
            if not self._told:
                logger.info("it is not known which transactions hold readers back reason=%s", error)
                self._told = True
            return {}
