# SPDX-License-Identifier: Apache-2.0
"""The one rule of what is missing in a log, for every broker: is it a hole, or is it lost?

An entry that the broker knows and gives to nobody is a hole: a marker of a transaction or of a replicated
subscription, a message of an aborted transaction, what an entry filter drops. An entry that is not there is lost.
Brokers delete whole ledgers, the oldest first. So what does not come is holes as long as the ledger is there in which
reading should go on: what comes lies in it, or a reader that begins there stands right behind the entry before. Holes
have message indexes too: where no index is missing nothing is lost, and where some are the ledger decides.

On our broker holes are messages of aborted transactions, and damaged entries that were given up by a setting
(``autoSkipNonRecoverableData``): no reader can tell one from the other, there as on an Apache Pulsar. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from broker_core.base.positions import Position
from pulsarish_spark.places.offsets import Offset


def follows(at: Position, before: Position) -> bool:
    """Whether the ledger of ``at`` is there, and the log goes on at ``at`` right behind ``before``, which is where a
    reader stands that begins at ``at``."""
    return before == Position(at.ledger, at.entry - 1) or (at.entry == 0 and before.ledger < at.ledger)


def is_another(wanted: Offset, found: Offset) -> bool:
    """Whether the message indexes say that ``found`` is not of the topic in which ``wanted`` was the next to come."""
    if min(wanted.message_index, found.message_index) < 0:
        return False
    first = wanted.message_index - wanted.batch
    return found.message_index < first or (found.position == wanted.position and found.message_index > first)


def indexes_between(wanted: Offset, end: Offset) -> int:
    """Message indexes from ``wanted`` up to ``end``, holes among them; -1: not known."""
    if min(wanted.message_index, end.message_index) < 0:
        return -1
    return max(end.message_index - wanted.message_index, 0)


def lost_between(wanted: Offset, found: Offset, before: Callable[[], Position]) -> int:
    """Messages that are lost where ``found`` comes and not ``wanted``: 0 if none are, -1 if that is not known.

    ``before`` tells, where it is needed, behind what a reader stands that begins at ``wanted``.
    """
    if found.position == wanted.position:
        return 0
    if found.position.ledger == wanted.position.ledger:
        return 0
    missing = indexes_between(wanted, found)
    if missing > 0:
        missing = _without_holes(missing, found)
    return 0 if missing == 0 or follows(wanted.position, before()) else missing


def lost_of_topic(first: Offset) -> int:
    """Messages that a topic has lost of which ``first`` is the first to come; -1 if that is not known."""
    return _without_holes(first.message_index, first) if first.message_index >= 0 else -1


def _without_holes(indexes: int, found: Offset) -> int:
    """Missing indexes before ``found`` without those of the entries before it in its ledger. These
    are holes, and have one index each at least."""
    return max(indexes - found.position.entry, 0)
