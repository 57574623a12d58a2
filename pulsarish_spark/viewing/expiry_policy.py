# SPDX-License-Identifier: Apache-2.0
"""Expiry of unread messages: the age at which a broker passes over messages that are not acknowledged.

Two policies do that: the time to live of messages, and a backlog quota in time that evicts. Both are asked of the admin
REST, as they are in force for the topic. Retention deletes only what every subscription has acknowledged. A quota in
bytes that evicts depends on what is written, so nothing is foretold of it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from broker_core.base.clock import BlockingClock, SystemClock
from broker_core.base.errors import PulsarishError
from broker_core.base.names import TopicName
from broker_core.client.admin import AdminApi
from broker_core.wire.entry import EntryRef, stored_ms
from pulsarish_spark.connecting.connection import Address, open_admin
from pulsarish_spark.connecting.side_by_side import side_by_side

logger = logging.getLogger(__name__)

POLICY_S: Final = 60.0
"""Seconds for which an answer is believed: brokers expire messages about as often."""

CONNECTIONS_MAX: Final = 4
"""Connections to the admin REST, each with one question at a time: a broker has few places for such clients."""

_EVICTS: Final = "consumer_backlog_eviction"


class ExpiryPolicy(NamedTuple):
    """``limit_s``: unread messages that are older are passed over; None: none are, however old. ``why``: by what."""

    limit_s: float | None
    why: str = ""

    def left_s(self, entry: EntryRef, now_ms: int) -> float | None:
        """Seconds for which ``entry`` is still kept, by this machine's clock and the time from which its broker counts;
        0: it may go any moment."""
        if self.limit_s is None:
            return None
        age_s = (now_ms - stored_ms(entry)) / 1000
        return max(0.0, self.limit_s - age_s)


class ExpiryPolicies:
    """Asks the broker at ``address``, and says once in the log why it is not known. Used by one thread at a time."""

    def __init__(self, address: Address, clock: BlockingClock | None = None) -> None:
        self._address = address
        self._clock = clock or SystemClock()
        self._found: dict[str, tuple[float, ExpiryPolicy | None]] = {}
        self._failed_at: float | None = None
        self._told = False

    def of_all(self, topics: Collection[str]) -> dict[str, ExpiryPolicy | None]:
        """The expiry of unread messages of each of ``topics``, full names without the partition; None: it is not known.
        A few connections each ask for a part of them."""
        now = self._clock.monotonic()
        due = [topic for topic in topics if now - self._found.get(topic, (-math.inf, None))[0] > POLICY_S]
        if due and not self._is_left_alone:
            parts = [due[number::CONNECTIONS_MAX] for number in range(min(CONNECTIONS_MAX, len(due)))]
            side_by_side(self._ask, parts)
        return {topic: self._found.get(topic, (now, None))[1] for topic in topics}

    @property
    def _is_left_alone(self) -> bool:
        """Whether to ask nothing for now: a broker that did not answer for one topic would hold up the query for each
        other topic."""
        return self._failed_at is not None and self._clock.monotonic() - self._failed_at <= POLICY_S

    def _ask(self, topics: Sequence[str]) -> None:
        topic = topics[0]
        try:
            admin = open_admin(self._address)
            if admin is None:
                self._tell(topic, "the option admin.url does not say where to ask")
                return
            with admin:
                for topic in topics:
                    if self._is_left_alone:
                        return
                    self._found[topic] = self._clock.monotonic(), expiry_policy_of(admin, TopicName.parse(topic))
        except PulsarishError as error:
            self._tell(topic, str(error))

    def _tell(self, topic: str, reason: str) -> None:
        self._failed_at = self._clock.monotonic()
        if not self._told:
            logger.info("it is not known when unread messages expire topic=%s reason=%s", topic, reason)
            self._told = True


def expiry_policy_of(admin: AdminApi, topic: TopicName) -> ExpiryPolicy:
    """The policy that is in force for ``topic``."""
    limits = [(float(admin.policy(topic, "messageTTL", applied=True) or 0), "the time to live")]
    quota = (admin.policy(topic, "backlogQuota", applied=True) or {}).get("message_age") or {}
    if quota.get("policy") == _EVICTS:
        limits.append((float(quota.get("limitTime") or 0), "the backlog quota in time"))
    set_ = [limit for limit in limits if limit[0] > 0]
    return ExpiryPolicy(*min(set_)) if set_ else ExpiryPolicy(None)
