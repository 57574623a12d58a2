# SPDX-License-Identifier: Apache-2.0
"""Topics whose readers have waited long for the end of a transaction, as the admin REST of any Pulsar tells them.

A superuser is told by one request. To others an Apache Pulsar names no transactions; our broker names the one that
holds a topic back to whoever may see the topic's statistics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from operator import itemgetter
from typing import Any, Final, NamedTuple

from broker_core.base.errors import AuthorizationError, TopicNotFoundError
from broker_core.base.limits import LONG_TRANSACTION_S
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.client.admin import AdminApi, AdminRefusedError

_Metadata = Mapping[str, Any]
"""A transaction as Pulsar tells of it: ``txnId``, ``openTimestamp``, and more."""

_MS: Final = 1000


class HeldBack(NamedTuple):
    """An open transaction for whose end readers of ``topic`` wait, a plain topic or a partition."""

    topic: str
    transaction: str
    open_s: float

    @property
    def command(self) -> str:
        """The command that tells more of the transaction."""
        return f"pulsarish txn show {self.transaction.strip('()')}"

    def __str__(self) -> str:
        return (
            f"readers of {self.topic} wait for the end of transaction {self.transaction},"
            f" open for {self.open_s:,.0f} s; see: {self.command}"
        )


def long_held_back(admin: AdminApi, topics: Collection[TopicName], now_ms: int) -> dict[TopicName, HeldBack]:
    """The ``topics``, plain ones or partitions, that a transaction holds back which is open for a minute at ``now_ms``.

    Empty also where the broker has no transactions, and where it does not tell them to this client.
    """
    found: dict[TopicName, HeldBack] = {}
    for topic, each in _holders(admin, topics):
        held = HeldBack(str(topic), str(each["txnId"]), (now_ms - int(each["openTimestamp"])) / _MS)
        if held.open_s >= LONG_TRANSACTION_S:
            found[topic] = held
    return found


def _holders(admin: AdminApi, topics: Collection[TopicName]) -> Iterator[tuple[TopicName, _Metadata]]:
    """Topics that are held back, each with the transaction that does it."""
    try:
        # A transaction with a shorter timeout is aborted before it is that old.
        transactions = admin.open_transactions(LONG_TRANSACTION_S * _MS - 1)
    except AuthorizationError:
        yield from _told_of_topics(admin, topics)
    except TopicNotFoundError:  # The path is not there: a Pulsar before 2.10.
        return
    except AdminRefusedError as error:
        if error.status != HTTPStatus.SERVICE_UNAVAILABLE:  # else transactions are switched off
            raise
    else:
        for topic in topics:
            if first := _first_in(str(topic), transactions.values()):
                yield topic, first


def _first_in(topic: str, transactions: Iterable[_Metadata]) -> _Metadata | None:
    """The transaction whose first entry in the topic lies before those of all others; None if none has sent to it. Our
    broker says of each whether it ``holdsBack``."""
    starts: list[tuple[Position, _Metadata]] = []
    for each in transactions:
        part = (each.get("producedPartitions") or {}).get(topic) or {}
        if (start := part.get("startPosition")) and part.get("holdsBack", True):
            ledger, entry = map(int, start.split(":"))
            starts.append((Position(ledger, entry), each))
    return min(starts, key=itemgetter(0))[1] if starts else None


def _told_of_topics(admin: AdminApi, topics: Iterable[TopicName]) -> Iterator[tuple[TopicName, _Metadata]]:
    for topic in topics:
        if topic.persistent:
            with suppress(AuthorizationError, TopicNotFoundError):
                if holder := admin.transaction_buffer(topic).get("holder"):
                    yield topic, holder
