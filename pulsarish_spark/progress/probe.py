# SPDX-License-Identifier: Apache-2.0
"""Asks the broker what a progress report does not say of lag: its age, its size, when it expires, and what holds it up.

Of each partition that is behind, the oldest message that was not read is fetched: its publish time tells the age, and
its entry's size, times the number of entries, about how many bytes are unread. One small read for
each such partition. How long the broker keeps unread messages, its admin REST tells, where that is known; and of every
partition, behind or not, whether its readers have waited for a minute for the end of a transaction.
Of a query in queue mode only the last is known: what is left is not in one piece.
"""

from __future__ import annotations

import os
from typing import Any

from broker_core.base.clock import Clock, SystemClock
from broker_core.client import Client
from broker_core.wire.entry import EntryRef, messages_of, published_ms
from pulsarish_spark.connecting.connection import connected
from pulsarish_spark.options import address_options, option_texts
from pulsarish_spark.progress.reports import Lag, PartitionLag, Unread, of_partitions, unread
from pulsarish_spark.viewing.expiry_policy import ExpiryPolicies
from pulsarish_spark.viewing.held_partitions import HeldPartitions
from pulsarish_spark.viewing.layout import names_there


class LagProbe:
    """``probe(progress)``: the lag of a query with bytes and seconds.

        probe = LagProbe(**{"service.url": "pulsar://host:6650"})

    ``options``: those that say which broker. A client is kept open. Raises what the client raises where the broker does
    not answer.
    """

    def __init__(self, *, clock: Clock | None = None, **options: object) -> None:
        self._address = address_options(option_texts(None, options), os.environ)
        self._clock = clock or SystemClock()
        self._policies = ExpiryPolicies(self._address)
        self._held = HeldPartitions(self._address, self._clock)

    def __call__(self, progress: Any) -> Lag:
        """The lag of every partition; ``progress`` as in ``lag``."""
        found = list(unread(progress))
        if behind := [each.key for each in found if each.at is not None and each.lag.is_behind]:
            self._policies.of_all({key.topic for key in behind})  # all at once
        asked = [each.key for each in found] if self._held.can_be_asked else behind
        if not asked:
            return of_partitions((each.key, each.lag) for each in found)
        with connected(self._address) as client:
            # Each time: a topic that is made anew may have partitions where the former had none.
            names = names_there(asked, client)
            held = self._held.of_all(names.values())
            lags = [(each.key, self._measured(client, each, names.get(each.key))) for each in found]
        return of_partitions((key, lag._replace(held_by=held.get(names.get(key, "")))) for key, lag in lags)

    def _measured(self, client: Client, unread: Unread, name: str | None) -> PartitionLag:
        """``name``: what the broker calls the partition, None where it is gone."""
        behind = unread.lag
        if unread.at is None or not behind.is_behind:
            return behind
        oldest = None if name is None else client.first_entry_at(name, unread.at.position)
        if oldest is None:  # The entry was deleted meanwhile; the query will tell.
            return behind
        expiry = self._policies.of_all([unread.key.topic])[unread.key.topic]
        now_ms = self._clock.now_ms()
        return behind._replace(
            bytes=_bytes_about(behind, oldest),
            seconds=max(0.0, (now_ms - published_ms(oldest.body)) / 1000),  # by two clocks, so never below 0
            expires_s=None if expiry is None else expiry.left_s(oldest, now_ms),
        )


def _bytes_about(behind: PartitionLag, entry: EntryRef) -> int | None:
    size = len(entry.body)
    if behind.entries is not None:
        return behind.entries * size
    if behind.messages is not None:
        return round(behind.messages * size / messages_of(entry.body))
    return None
