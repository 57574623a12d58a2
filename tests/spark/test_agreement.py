# SPDX-License-Identifier: Apache-2.0
"""The rule about lost messages, case by case. What brokers say in them is tested in ``test_agreement_of_brokers``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker_core.base.positions import Position
from pulsarish_spark.losses.agreement import AGREED, Facts, judge
from pulsarish_spark.losses.holes import follows, lost_of_topic
from pulsarish_spark.places.offsets import Offset


def at(ledger: int, entry: int, index: int = -1) -> Offset:
    return Offset(Position(ledger, entry), index)


def facts(next_: Offset | None, before: Position, **others: object) -> Facts:
    """Reading should go on at 5:20, everything before was acknowledged, and nothing was seen behind."""
    usual = Facts(
        at=at(5, 20),
        seen=at(5, 20),
        end=at(-1, 0),
        before=before,
        next=next_,
        subscription="s",
        mark_delete=Position(5, 19),
    )
    return replace(usual, **others)  # type: ignore[arg-type]


MOVED = {"mark_delete": Position(7, -1)}
"""What Apache Pulsar does itself, when ledger 5 was acknowledged whole and is deleted."""

READ_MS = 1_700_000_000_000

AGREEMENTS = {
    "the entry before it is the one that was read": facts(
        at(5, 20), Position(5, 19), mark_delete=Position(5, 11), read_ms=READ_MS, found_ms=READ_MS
    ),
    "the entry before it is deleted": facts(at(5, 20), Position(5, 19), read_ms=READ_MS),
    "an older version has noted no time": facts(at(5, 20), Position(5, 19), found_ms=READ_MS),
    "the message itself": facts(at(5, 20), Position(5, 19)),
    "the message itself, whatever the subscription says": facts(at(5, 20), Position(5, 19), is_subscribed=False),
    "another ledger, the old one is there and ended": facts(at(7, 0), Position(5, 19), is_subscribed=False),
    "another ledger by index": facts(at(7, 0, 40), Position(7, -1), at=at(5, 20, 40), is_subscribed=False),
    "another ledger, the old one was read and deleted": facts(at(7, 0), Position(7, -1), **MOVED),
    "another ledger, the old one was read, and is about to be deleted": facts(at(7, 0), Position(7, -1)),
    "nothing, the last entry is the one before": facts(None, Position(5, 19), is_subscribed=False),
    "nothing, everything was read and deleted": facts(None, Position(7, -1), **MOVED),
    "an empty ledger was replaced": facts(
        at(7, 0), Position(7, -1), at=at(5, 0), seen=at(5, 0), mark_delete=Position(5, -1)
    ),
    "a new topic has its first message": facts(at(1, 0, 0), Position(1, -1), at=at(-1, 0), seen=at(-1, 0)),
    "a topic that was empty, and loaded anew, has its first message, which somebody has skipped": facts(
        at(7, 0, 0), Position(7, -1), at=at(5, 0), seen=at(5, 0), mark_delete=Position(7, 0)
    ),
    "nothing has ever come": facts(None, Position(-1, -1), at=at(-1, 0), seen=at(-1, 0)),
    "the broker does not tell where the subscription stands": facts(at(7, 0), Position(7, -1), mark_delete=None),
    "the next ledger begins while the limit has cut before it": facts(
        at(7, 0), Position(5, 19), seen=at(7, 9), end=at(7, 9)
    ),
    "holes, and a message behind them": facts(at(5, 22), Position(5, 19), seen=at(5, 23)),
    "holes by index, and a message behind them": facts(at(5, 22, 43), Position(5, 19), at=at(5, 20, 40)),
    "holes at the end of a ledger that is there": facts(at(7, 0, 43), Position(5, 19), at=at(5, 20, 40)),
    "holes at the beginning of a ledger, the one before is deleted": facts(
        at(7, 2, 42), Position(7, -1), at=at(5, 20, 40), **MOVED
    ),
    "holes at the end of the topic": facts(None, Position(5, 19), last=Position(5, 23)),
    "holes at the end of the topic, which the query has passed over": facts(
        None, Position(5, 19), last=Position(5, 19), end=at(5, 18, 38)
    ),
    "holes at the beginning of a ledger, over which Pulsar has moved the subscription": facts(
        at(7, 4), Position(7, -1), mark_delete=Position(7, 3)
    ),
    "nothing but holes in the only ledger that is there": facts(
        None, Position(7, -1), last=Position(7, 3), mark_delete=Position(7, 3), seen=at(5, 20)
    ),
    "a topic that was empty has holes, and its first message behind them": facts(
        at(1, 3, 3), Position(1, -1), at=at(-1, 0), seen=at(-1, 0), mark_delete=Position(1, 2)
    ),
}

LOSSES = {
    "should go on at 5:20, but the next message is 7:0, and its end was 5:25 when this query saw it last: "
    "at least 5 entries lost": facts(at(7, 0), Position(7, -1), seen=at(5, 25), **MOVED),
    "should go on at 5:20, but there is nothing at or after it, and the broker had messages up to 5:23, which are "
    "deleted: at least 4 entries lost": facts(None, Position(7, -1), last=Position(5, 23), **MOVED),
    'should go on at 5:20, but the next message is 7:0, and its subscription "s", which kept the messages that were '
    "not read, was deleted: an unknown number of messages lost": facts(at(7, 0), Position(7, -1), is_subscribed=False),
    'should go on at -1:0, but there is nothing at or after it, and its subscription "s", which kept the messages '
    "that were not read, was deleted: an unknown number of messages lost": facts(
        None, Position(-1, -1), at=at(-1, 0), seen=at(-1, 0), is_subscribed=False
    ),
    'should go on at 5:20, but the next message is 7:0, and its subscription "s" stands after 7:3, where': facts(
        at(7, 0), Position(7, -1), mark_delete=Position(7, 3)
    ),
    'should go on at 5:20, but the next message is 7:0, and its subscription "s" stands after 5:3, where': facts(
        at(7, 0), Position(7, -1), mark_delete=Position(5, 3)
    ),
    'should go on at 5:20, but the next message is 7:0, and its subscription "s" stands after 8:-1, where': facts(
        at(7, 0), Position(7, -1), mark_delete=Position(8, -1)
    ),
    "should go on at -1:0, but the next message is 7:0@0, and its subscription": facts(
        at(7, 0, 0), Position(7, -1), at=at(-1, 0), seen=at(-1, 0), is_subscribed=False
    ),
    "should go on at 5:0@0, but the next message is 7:0@0, and its subscription": facts(
        at(7, 0, 0), Position(7, -1), at=at(5, 0, 0), seen=at(5, 0, 0), is_subscribed=False
    ),
    "should go on at 5:20@40, but the next message is 7:0@43: 3 messages lost": facts(
        at(7, 0, 43), Position(7, -1), at=at(5, 20, 40), **MOVED
    ),
}

REPLACEMENTS = {
    "that entry is not there any more, the log goes on at 7:0 and ends at 7:9, and its subscription": facts(
        at(7, 0), Position(7, -1), end=at(7, 9), mark_delete=Position(4, 7), read_ms=READ_MS, is_unkept=True
    ),
    "that entry is not there any more, the log ends at 4:8, and its subscription": facts(
        None, Position(4, 7), end=at(4, 8), mark_delete=Position(4, 7), read_ms=READ_MS, is_unkept=True
    ),
    "should go on at 5:20, behind an entry that was published at 2023-11-14T22:13:20.000Z, but the entry there was "
    "published at 2023-11-14T22:13:21.000Z, the log goes on at 5:20 and ends at 5:31, and its subscription "
    '"s" stands after 5:11: the broker was restored': facts(
        at(5, 20),
        Position(5, 19),
        end=at(5, 31),
        mark_delete=Position(5, 11),
        read_ms=READ_MS,
        found_ms=READ_MS + 1000,
    ),
    "ends at 5:8, before 5:20 where reading should go on": facts(None, Position(5, 7), end=at(5, 8)),
    "ends at 5:20@7, before 5:20@40 where reading should go on": facts(
        None, Position(5, 19), at=at(5, 20, 40), end=at(5, 20, 7)
    ),
    "should go on at 5:20@40, but 7:0@0 comes next": facts(
        at(7, 0, 0), Position(7, -1), at=at(5, 20, 40), end=at(7, 50, 50)
    ),
}


@pytest.mark.parametrize("name", AGREEMENTS)
def test_nothing_is_lost(name: str) -> None:
    """False alarms end queries: what brokers do by themselves, and what follows without a gap, is no loss."""
    assert judge("t[3]", 3, AGREEMENTS[name]) == AGREED


@pytest.mark.parametrize("words", LOSSES)
def test_something_is_lost(words: str) -> None:
    """The ids, the reason and what is known of the number."""
    verdict = judge("t[3]", 3, LOSSES[words])
    assert verdict.loss is not None
    assert words in verdict.loss.what
    assert not verdict.anew


@pytest.mark.parametrize("words", REPLACEMENTS)
def test_another_topic_is_recognised(words: str) -> None:
    """It is read from its beginning by whoever goes on."""
    verdict = judge("t[3]", 3, REPLACEMENTS[words])
    assert verdict.loss is not None
    assert words in verdict.loss.what
    assert verdict.anew


def test_the_entries_before_the_first_message_of_a_topic_are_no_loss() -> None:
    """They have one index each at least, in the only ledger that the topic has had."""
    assert [lost_of_topic(at(3, 0, 0)), lost_of_topic(at(3, 4, 4)), lost_of_topic(at(3, 4))] == [0, 0, -1]
    assert lost_of_topic(at(3, 4, 6)) == 2


def test_a_log_goes_on_behind_the_entry_before() -> None:
    """Entry 0 comes behind whatever ledger was before."""
    assert follows(Position(5, 3), Position(5, 2))
    assert follows(Position(5, 0), Position(4, 9))
    assert not follows(Position(5, 3), Position(5, 1))
    assert not follows(Position(5, 3), Position(7, -1))
    assert not follows(Position(5, 0), Position(7, -1))
