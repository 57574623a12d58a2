# SPDX-License-Identifier: Apache-2.0
"""The one rule about lost messages between two batches: do the checkpoint, the subscription and the broker agree?

The checkpoint says where reading should go on, and which end was seen there. The broker says what is there now, and
which entry it knows to be the last one before that place. The subscription, which keeps the broker from deleting what
is not read, must be there and stand where this query, or the broker by itself, can have put it.

As long as the ledger of the checkpoint is there, what does not come is holes (``holes``), and where the indexes of
messages follow each other without a gap nothing is lost, whatever the subscription says. Only where that ledger is gone
the subscription decides: as long as it stands where the query has left it, the broker deletes nothing but what was
read. Pulsar moves it by itself, over holes, and to the beginning of the ledger that comes next, once all before was
read and is deleted. Pure: ``resuming`` gathers the facts.

Before all that: the entry right before the place is the last one that was read, so it must still be that one. In a
broker that was restored from an older copy of its data it is not there, though the subscription, which stands further
back, has kept it; or another entry has its id, where a broker gives ids once more. Its publish time never changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from broker_core.base.positions import Position
from pulsarish_spark.losses.holes import follows, is_another, lost_between, lost_of_topic
from pulsarish_spark.losses.lost import (
    LogPlaces,
    Loss,
    Where,
    lost_before,
    lost_end,
    lost_gap,
    lost_identity,
    lost_topic,
)
from pulsarish_spark.places.offsets import Offset


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about the place of one partition where reading should go on."""

    at: Offset
    """The place: the next message to read."""
    seen: Offset
    """The end of the partition when the query last saw it; ``at`` if it had read everything."""
    end: Offset
    """The end of the partition now. Entry 0 of ledger -1: the broker has no message to show."""
    before: Position
    """The entry before ``at`` in the broker's log; entry -1: nothing before that ledger, which is a later one if that
    of ``at`` is deleted."""
    next: Offset | None
    """The first message of the first entry at or behind ``at``; None: there is none."""
    subscription: str
    is_subscribed: bool = True
    """Whether the durable subscription was there; where it was made anew, it was not."""
    mark_delete: Position | None = None
    """The mark-delete position of the subscription; None: the broker does not tell."""
    read_ms: int | None = None
    """The publish time of the entry right before ``at``, as it was read; None: the checkpoint does not tell."""
    found_ms: int | None = None
    """The publish time of the entry that is there now; None: there is none, or it cannot be read."""
    is_unkept: bool = False
    """Whether there is none though the subscription, which stands before it, has kept it."""
    last: Position | None = None
    """The last entry that the broker knows, though it may be deleted, where nothing comes."""


class Verdict(NamedTuple):
    """``loss``: what is lost; None if nothing is. ``anew``: it is another topic, to be read whole."""

    loss: Loss | None = None
    anew: bool = False


AGREED = Verdict()


def judge(partition: Where, number: int, facts: Facts) -> Verdict:
    """Whether reading can go on. ``number`` is that of ``partition``."""
    at, found = facts.at, facts.next
    wanted = at.text(number)
    if facts.read_ms is not None and (facts.is_unkept or facts.found_ms not in (None, facts.read_ms)):
        stands = f"stands after {facts.mark_delete}" if facts.mark_delete is not None else "tells no position"
        stands = stands if facts.is_subscribed else "is not there any more"
        log = LogPlaces("" if found is None else found.text(number), facts.end.text(number))
        told = lost_identity(partition, wanted, facts.read_ms, facts.found_ms, log, facts.subscription, stands)
        return Verdict(told, anew=True)
    if facts.end.position.entry > 0 and not _is_possible_end(facts):
        return Verdict(lost_end(partition, wanted, facts.end.text(number)), anew=True)
    if found is not None and is_another(at, found):
        return Verdict(lost_topic(partition, wanted, found.text(number)), anew=True)
    if found is not None and found.position.ledger == at.position.ledger:
        return AGREED
    if found is not None and facts.is_subscribed and at.position.entry == 0 == lost_of_topic(found):
        return AGREED  # Nothing came before this message.
    if found is not None and min(found.message_index, at.message_index) >= 0:
        missing = lost_between(at, found, lambda: facts.before)  # the tasks look at each entry
        if missing:
            return Verdict(lost_gap(partition, wanted, found.text(number), missing))
        if facts.is_subscribed or at.message_index > at.batch:
            return AGREED
        # Another topic begins at index 0, too.
    why = _disagreement(facts)
    if why is None:
        return AGREED
    shown = None if found is None else found.text(number)
    return Verdict(lost_before(partition, wanted, shown, why, _known_lost(facts)))


def _is_possible_end(facts: Facts) -> bool:
    """Whether the end of the partition can be that of the topic that was read. The place may lie behind it, where
    the query has passed over holes."""
    if facts.end.key < facts.at.key:
        return follows(facts.at.position, facts.before)
    return facts.at.is_possible_before(facts.end)


def _disagreement(facts: Facts) -> str | None:
    """Why something must be missing where the next message, if there is any, is of another ledger than the place."""
    at = facts.at.position
    if _has_seen_more(facts):
        return f"its end was {facts.seen.position} when this query saw it last"
    if follows(at, facts.before) and (at.ledger >= 0 or (facts.next is None and facts.is_subscribed)):
        return None
    if facts.last is not None and at <= facts.last < facts.before:
        return f"the broker had messages up to {facts.last}, which are deleted"
    if not facts.is_subscribed:
        return f'its subscription "{facts.subscription}", which kept the messages that were not read, was deleted'
    if facts.mark_delete is None or _is_own(facts.mark_delete, facts):
        return None
    return (
        f'its subscription "{facts.subscription}" stands after {facts.mark_delete}, where this query has not put it: '
        "somebody has skipped or reset it, or messages have expired"
    )


def _has_seen_more(facts: Facts) -> bool:
    """Whether the query knows of messages between the place and what comes next, in another ledger."""
    at, seen, found = facts.at, facts.seen, facts.next
    known_gone = seen.position.ledger == at.position.ledger or found is None or found.key >= seen.key
    return seen.key > at.key and known_gone


def _is_own(mark_delete: Position, facts: Facts) -> bool:
    """Whether the subscription stands where the query has left it, or where Pulsar has moved it from there: to the
    beginning of a ledger that is there, and over holes to before what comes next."""
    at = facts.at.position
    if mark_delete == Position(at.ledger, at.entry - 1):
        return True
    if facts.next is not None and mark_delete >= facts.next.position:
        return False
    is_there = mark_delete.entry < 0 or facts.before.ledger <= mark_delete.ledger
    return at.ledger < mark_delete.ledger and is_there


def _known_lost(facts: Facts) -> int:
    """Entries that are known to be lost; there may be more."""
    at = facts.at.position
    ends = [facts.seen.position.entry if facts.seen.position.ledger == at.ledger else 0]
    if facts.last is not None and facts.last.ledger == at.ledger:
        ends.append(facts.last.entry + 1)
    return max(0, max(ends) - at.entry)
