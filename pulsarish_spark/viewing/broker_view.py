# SPDX-License-Identifier: Apache-2.0
"""Questions of the driver about positions: the ends of a partition, and where an index, an id or a time lies.

Everything goes over the client, so it works on any Pulsar broker. Where a broker does not expose message indexes,
offsets have none and counts are unknown; callers must live with that.

A partition that its topic names and that is not there is empty: Apache Pulsar makes one when it is first used. One that
was deleted looks the same, so who knows that it had messages says so.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from broker_core.base.errors import (
    ConfigError,
    ConsumerBusyError,
    PartitionUnmadeError,
    SubscriptionNotFoundError,
)
from broker_core.base.positions import POSITION_EARLIEST, POSITION_LATEST, Position
from broker_core.client import Client
from broker_core.client.columnar.index_search import IndexedEntry, IndexSearch
from broker_core.wire.entry import EntryRef, messages_of
from pulsarish_spark.connecting.side_by_side import side_by_side
from pulsarish_spark.losses.holes import lost_between
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.losses.lost import lost_start
from pulsarish_spark.places.entries import behind, behind_last, offset_of
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.start_spec import AtIndex, AtSubscription, LogPoint
from pulsarish_spark.viewing.counting import EntryCounts
from pulsarish_spark.viewing.view_then_log import Log

logger = logging.getLogger(__name__)

HOW_TO_GET_INDEXES: Final = (
    "a broker tells them of what it stores while it runs with "
    "brokerEntryMetadataInterceptors=org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor and "
    "exposingBrokerEntryMetadataToClientEnabled=true"
)

_SHOWN_MAX: Final = 10_000
"""Entries that are remembered: some of each partition where there are thousands, in a few MiB."""
_NO_FURTHER: Final = "give one up to the end; one that was good before is of a topic that was made anew"


class _Shown(NamedTuple):
    """An entry that the broker has shown, without its body."""

    at: Offset
    behind: Offset
    messages: int


class PartitionEdges(NamedTuple):
    """The first message of a partition that is still there, and the place behind its last one."""

    first: Offset
    end: Offset


class WantedIndex(NamedTuple):
    """Message ``message_index`` of one partition, which lies in [first, end); both have indexes."""

    name: str
    message_index: int
    first: Offset
    end: Offset


class BrokerView:
    """Questions about one partition, ``name`` being what the broker calls it.

    Remembers the entries it was shown last: a search for the next stop begins where the last one ended. Used by one
    thread, or by several of which each has partitions of its own.
    """

    def __init__(self, client: Client, log: Log | None = None) -> None:
        """``log``: answers in place of ``client`` about entries."""
        self._log = log or client
        self.counts = EntryCounts(self._log)
        """Counts of messages in ranges that have no indexes."""
        self._client = client
        self._shown: dict[tuple[str, Position], _Shown] = {}
        self._remembering = threading.Lock()

    def _first_at(self, name: str, position: Position) -> _Shown | None:
        """The first entry at or behind ``position``; None if there is none."""
        key = (name, position)
        if (known := self._shown.get(key)) is not None:
            return known
        entry = self._log.first_entry_at(name, position, unmade_ok=True)
        return None if entry is None else self._remembered(key, entry)

    def forget(self, name: str) -> None:
        """The log of partition ``name`` is another one: nothing holds that was seen of it."""
        with self._remembering:
            self._shown = {place: shown for place, shown in self._shown.items() if place[0] != name}
        self.counts.forget(name)

    def look_at(self, places: Iterable[tuple[str, Position]]) -> None:
        """Ask for the first entries at or behind ``places`` all at once, for questions about them that come next."""
        unknown = [place for place in places if place not in self._shown]
        if not unknown:
            return
        for place, entry in zip(unknown, self._log.first_entries_at(unknown, unmade_ok=True), strict=True):
            if entry is not None:
                self._remembered(place, entry)

    def _remembered(self, key: tuple[str, Position], entry: EntryRef) -> _Shown:
        shown = _Shown(offset_of(entry), behind(entry), messages_of(entry.body))
        with self._remembering:
            if len(self._shown) >= _SHOWN_MAX:
                del self._shown[next(iter(self._shown))]
            self._shown[key] = shown
        return shown

    def latest(self, name: str, *, had_messages: bool = False) -> Offset:
        """The place behind the last durable message. ``had_messages``: TopicNotFoundError if it is not there."""
        return self._ends(self.latest_of([name], had_messages=[name] if had_messages else ()))[name]

    def ends_of(self, names: Collection[str]) -> dict[str, Offset]:
        """``latest`` of several partitions, which are asked for all at once."""
        return self._ends(self.latest_of(names))

    def _ends(self, ends: dict[str, Offset]) -> dict[str, Offset]:
        # Apache Pulsar shows no last message where all are deleted, but knows which it was until it loads the topic. It
        # shows none either where there are only holes, and messages of open transactions, which are to come.
        unshown = [name for name, end in ends.items() if end.position.entry <= 0]

        def behind_all(name: str) -> Offset:
            # An entry that comes between the questions lies behind the earlier answer, and is not counted.
            unmade_ok = ends[name].position.ledger < 0
            edges = (POSITION_EARLIEST, POSITION_LATEST)
            last = min(self._log.bounds_at(name, edge, unmade_ok=unmade_ok).before for edge in edges)
            return Offset(Position(last.ledger, last.entry + 1))

        return ends | dict(zip(unshown, side_by_side(behind_all, unshown), strict=True))

    def latest_of(self, names: Collection[str], had_messages: Collection[str] = ()) -> dict[str, Offset]:
        """``ends_of`` without a second question; ledger -1 where no message is shown. Those that ``had_messages`` must
        be there, else TopicNotFoundError."""
        asked = list(names)
        found = self._log.last_entries(asked, unmade_ok=set(asked) - set(had_messages))
        return {name: behind_last(last) for name, last in zip(asked, found, strict=True)}

    def earliest(self, name: str) -> Offset:
        """The first message that is still there; of an empty partition its end."""
        return self.edges_of([name])[name].first

    def edges_of(self, names: Collection[str]) -> dict[str, PartitionEdges]:
        """Both ends of several partitions, which are asked all at once."""
        # Never from memory: the first message may have been deleted. But a read that begins there looks at it next.
        asked = list(names)
        found = dict(zip(asked, self._log.edges_of(asked, unmade_ok=True), strict=True))
        ends = self._ends({name: behind_last(both.last) for name, both in found.items()})
        edges = {}
        for name, (first, _) in found.items():
            key = None if first is None else (name, Position(first.ledger, first.entry))
            at = ends[name] if first is None or key is None else self._remembered(key, first).at
            edges[name] = PartitionEdges(at, ends[name])
        return edges

    def with_index(self, name: str, offset: Offset) -> Offset:
        """``offset`` with its message index, if there is a message at it and the broker tells."""
        if offset.message_index >= 0:
            return offset
        found = self._first_at(name, offset.position)
        if found is None or found.at.position != offset.position or found.at.message_index < 0:
            return offset
        return offset._replace(message_index=found.at.message_index + offset.batch)

    def offset_at(self, name: str, position: Position) -> Offset | None:
        """The first entry at or behind ``position``; None if there is none."""
        found = self._first_at(name, position)
        return None if found is None else found.at

    def behind_entry(self, name: str, position: Position) -> Offset | None:
        """The place behind the first entry at or behind ``position``; None if there is none."""
        found = self._first_at(name, position)
        return None if found is None else found.behind

    def find(self, name: str, point: LogPoint, what: str, policy: LossPolicy) -> Offset:
        """The offset of what a user said. ``what`` names option and partition in errors."""
        if point == "latest":
            return self.latest(name)
        if point == "earliest":
            return self.earliest(name)
        if isinstance(point, AtIndex):
            return self.at_index(name, point.message_index, what, policy)
        if isinstance(point, AtSubscription):
            return self.at_subscription(name, point.name, what)
        return self.at_id(name, point, what, policy)

    def at_subscription(self, name: str, subscription: str, what: str) -> Offset:
        """The first message that a subscription has not acknowledged, or the end; ConfigError if it is not there or
        its position cannot be asked for: that takes the place of its only consumer for a moment."""
        try:
            return self.unread_of(name, subscription)
        except SubscriptionNotFoundError as error:
            raise ConfigError(
                f'{what} is where subscription "{subscription}" stands, and there is no such subscription',
                hint="check the name, or begin at earliest, at latest or at a time",
            ) from error
        except PartitionUnmadeError:
            return self.earliest(name)
        except ConsumerBusyError as error:
            raise ConfigError(
                f'{what} is where subscription "{subscription}" stands, and a consumer is connected to it',
                hint="stop its consumers for the moment in which this query starts, or begin at an id or a time",
            ) from error

    def unread_of(self, name: str, subscription: str) -> Offset:
        """The first message that a subscription which is there has not acknowledged, or the end; errors as of
        ``open_cursor``."""
        with contextlib.closing(self._client.open_cursor(name, subscription, must_exist=True)) as cursor:
            return self.unread(name, cursor.mark_delete())

    def unread(self, name: str, mark_delete: Position | None) -> Offset:
        """The first message that a subscription which has acknowledged so far has not, or the end."""
        if mark_delete is None:
            return self.earliest(name)
        behind_it = Position(mark_delete.ledger, mark_delete.entry + 1)
        return self.offset_at(name, behind_it) or Offset(behind_it)

    def at_index(self, name: str, index: int, what: str, policy: LossPolicy) -> Offset:
        """The message with this index, or the end if it is the next to come."""
        first, end = self.earliest(name), self.latest(name)
        if first != end and min(first.message_index, end.message_index) < 0:
            which = (
                "message indexes"
                if end.message_index < 0
                else f"that of the first message still there, {first.text(0)}"
            )
            raise ConfigError(
                f"{what} is message index {index}, but the broker does not tell {which}",
                hint=f"give an id ledger:entry; {HOW_TO_GET_INDEXES}",
            )
        if index > max(end.message_index, 0):
            raise ConfigError(
                f"{what} is message index {index}, beyond the end {max(end.message_index, 0)}", hint=_NO_FURTHER
            )
        if index >= end.message_index:
            return end
        if index < first.message_index:
            missing = first.message_index - index
            policy.report(lost_start(name, what, str(index), str(first.message_index), missing))
            return first
        return self.inside(name, index, first, end)

    def inside(self, name: str, index: int, first: Offset, end: Offset) -> Offset:
        """Message ``index``, which lies in [first, end); both have indexes."""
        at = self.entries_of_indexes([WantedIndex(name, index, first, end)])[0]
        return at._replace(message_index=index, batch=index - at.message_index)

    def entries_of_indexes(self, wanted: Sequence[WantedIndex]) -> list[Offset]:
        """The first message of the entry with each wanted message.

        Each round asks for the next guess of all searches at once, so many partitions take as many round trips as one.
        """
        self.look_at((each.name, each.first.position) for each in wanted)
        answers: dict[int, Offset] = {}
        searches: dict[int, IndexSearch] = {}
        for number, each in enumerate(wanted):
            low = self._indexed(each.name, each.first.position)
            if low is None or each.message_index <= low.last:
                answers[number] = each.end if low is None else Offset(low.position, low.first)
            else:
                high = IndexedEntry(each.end.position, each.end.message_index, each.end.message_index)
                searches[number] = IndexSearch(each.message_index, low, high)
        while guesses := {number: guess for number, each in searches.items() if (guess := each.guess()) is not None}:
            self.look_at((wanted[number].name, guess) for number, guess in guesses.items())
            for number, guess in guesses.items():
                searches[number].found(guess, self._indexed(wanted[number].name, guess))
        found = {number: (wanted[number].name, search.answer) for number, search in searches.items()}
        inside = {number: place for number, place in found.items() if place[1] < wanted[number].end.position}
        self.look_at(inside.values())
        for number in found:
            at = self.offset_at(*inside[number]) if number in inside else None
            answers[number] = at or wanted[number].end
        return [answers[number] for number in range(len(wanted))]

    def _indexed(self, name: str, position: Position) -> IndexedEntry | None:
        found = self._first_at(name, position)
        if found is None:
            return None
        return IndexedEntry(found.at.position, found.at.message_index, found.behind.message_index - 1)

    def at_id(self, name: str, wanted: Offset, what: str, policy: LossPolicy) -> Offset:
        """The message that an id names; an id behind the end is an error, a deleted one is lost data."""
        at = self.offset_at(name, wanted.position)
        if at is not None and at.position == wanted.position:
            known = at.message_index >= 0
            return wanted._replace(message_index=at.message_index + wanted.batch if known else -1)

        def before() -> Position:
            return self._log.bounds_at(name, wanted.position).before

        if at is not None:
            if lost := lost_between(wanted, at, before):
                policy.report(lost_start(name, what, wanted.text(0), at.text(0), lost))
            return at
        end = self.latest(name)
        if wanted.key > end.key:
            entry_before = Position(wanted.position.ledger, wanted.position.entry - 1)
            if wanted.batch or before() != entry_before:
                raise ConfigError(f"{what} is {wanted.text(0)}, beyond the end {end.text(0)}", hint=_NO_FURTHER)
            return wanted  # An entry lies before it that is not shown: a hole, or one of an open transaction.
        if wanted.key < end.key:
            policy.report(lost_start(name, what, wanted.text(0), None, -1))
        return end

    def at_time(self, name: str, publish_time_ms: int) -> Offset | None:
        """The first message published at or after this time, as the broker finds it; None if there is none."""
        if self.latest_of([name])[name].position.ledger < 0:
            return None  # And a reader would make the partition.
        found = self._log.first_position_since(name, publish_time_ms)
        return None if found is None else self.offset_at(name, found)


class IndexNotice:
    """The line of the log that tells, once a query, whether the broker has message indexes.

    Brokers of this project always have. Apache Pulsar has when it is configured to, for the messages that come then.
    """

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
