# SPDX-License-Identifier: Apache-2.0
"""The verdict about transactions over the records of a control topic."""

from __future__ import annotations

import pytest

from broker_core.base.positions import Position
from broker_core.wire.heads import TxnId
from pulsarish_spark.sink.decisions import (
    Batch,
    Begun,
    CarriedOut,
    ControlLog,
    ControlRecordError,
    Decision,
    GivenUp,
    Input,
    Intent,
    Record,
    SourceBegun,
    decoded,
    encoded,
)

A, B, C, D = (TxnId(0, number) for number in range(4))
ONE, TWO = Batch("q", 1), Batch("q", 2)


def log_of(*records: Record) -> ControlLog:
    """The verdict over ``records``, whose positions are their numbers."""
    log = ControlLog()
    for number, record in enumerate(records):
        log.add(record, Position(7, number))
    return log


def decision(run: str, batch: Batch, *txn_ids: TxnId) -> Decision:
    return Decision(run, batch, txn_ids, 1000)


OF_S, OF_T = Input("s", Position(7, 0), A, 900), Input("t", Position(7, 1), B, 900)
"""Inputs of two sources whose processes have begun with the first two records."""


@pytest.mark.parametrize(
    "record",
    [SourceBegun("s"), OF_S, decision("x", ONE, A)._replace(inputs=(OF_S, OF_T)), GivenUp("x")],
)
def test_records_of_sources_are_read_as_they_were_written(record: Record) -> None:
    """By the sink, in another process."""
    assert decoded(encoded(record)) == record


def decided(run: str, batch: Batch, *inputs: Input) -> Decision:
    """About no rows, for short."""
    return Decision(run, batch, (), 1000, inputs)


def test_a_run_has_the_inputs_that_were_written_since_the_run_before() -> None:
    """Of all sources, each the last."""
    again = OF_S._replace(txn_id=C)
    log = log_of(SourceBegun("s"), SourceBegun("t"), OF_S, OF_T, again, Begun("x"))
    assert log.inputs == (again, OF_T)
    log.add(decided("x", ONE, *log.inputs), Position(7, 6))
    log.add(Begun("y"), Position(7, 7))
    assert not log.inputs
    assert not log.left


def test_an_input_that_is_not_decided_is_left() -> None:
    """For the next process of its source, until it has another one; no other run has it."""
    log = log_of(SourceBegun("s"), OF_S, Begun("x"), Begun("y"))
    assert not log.inputs
    assert log.left == {"s": OF_S}
    log.add(OF_S._replace(txn_id=C), Position(7, 4))
    assert log.left == {"s": OF_S._replace(txn_id=C)}


def test_a_batch_that_is_decided_and_run_again_has_no_other_input() -> None:
    """Its source writes the same one again."""
    log = log_of(SourceBegun("s"), OF_S, Begun("x"), decided("x", ONE, OF_S), SourceBegun("s"))
    log.add(OF_S._replace(since=Position(7, 4)), Position(7, 5))
    log.add(Begun("y"), Position(7, 6))
    assert not log.inputs
    assert not log.left
    assert log.last == decided("x", ONE, OF_S)


def test_a_source_that_begins_ends_decisions_about_earlier_inputs() -> None:
    """Transactions that the newest process of a source aborts are committed by none; other decisions stand."""
    log = log_of(SourceBegun("s"), OF_S, Begun("x"), SourceBegun("s"), decided("x", ONE, OF_S))
    assert (log.last, log.left) == (None, {"s": OF_S})
    log.add(decided("x", ONE), Position(7, 5))
    assert log.last == decided("x", ONE)
    log = log_of(SourceBegun("s"), OF_S, Begun("x"), SourceBegun("t"), decided("x", ONE, OF_S))
    assert log.last == decided("x", ONE, OF_S)


def test_inputs_before_any_process_that_begins_are_of_no_run() -> None:
    """Inputs may be of a query that is gone; if not, their sources end them themselves."""
    log = log_of(SourceBegun("s"), OF_S, SourceBegun("t"), Begun("x"))
    assert not log.inputs
    assert log.left == {"s": OF_S}


def test_an_earlier_process_of_a_source_has_no_inputs() -> None:
    """Known by records of the newer one that have been deleted, too: an input says since when its process is there."""
    newer = Input("s", Position(7, 2), C, 900)
    assert log_of(SourceBegun("s"), OF_T, SourceBegun("s"), OF_S, Begun("x")).inputs == ()
    assert log_of(newer, OF_S, Begun("x")).inputs == (newer,)
    assert log_of(OF_S, newer, Begun("x")).inputs == (newer,)


@pytest.mark.parametrize(
    "record", [Begun("x"), Intent("x", TxnId(3, 2**62)), decision("x", ONE, A, B), GivenUp("x"), CarriedOut("x")]
)
def test_records_are_read_as_they_were_written(record: Record) -> None:
    """By another process, perhaps of a later version."""
    assert decoded(encoded(record)) == record
    assert type(decoded(encoded(record))) is type(record)


@pytest.mark.parametrize("value", [b"", b"x", b"[]", b"{}", b'{"v":1}', b'{"v":1,"run":"x","intent":[1]}', b"\xff"])
def test_other_messages_are_no_records(value: bytes) -> None:
    """Nobody else writes to a control topic."""
    with pytest.raises(ControlRecordError, match="is no record of the sink"):
        decoded(value)


def test_records_of_a_newer_version_are_told() -> None:
    """They may mean anything."""
    with pytest.raises(ControlRecordError, match="has format 2, and this version reads 1"):
        decoded(b'{"v":2,"run":"x"}')


def test_a_decision_of_the_last_run_is_valid() -> None:
    """Intents that it does not name are undecided: attempts that failed, or came late."""
    log = log_of(Begun("x"), Intent("x", A), Intent("x", B), Intent("x", C), decision("x", ONE, A, C), Intent("x", D))
    assert (log.run, log.last, log.undecided) == ("x", decision("x", ONE, A, C), (B, D))


def test_a_run_that_begins_fences_those_before_it() -> None:
    """Whatever they decide later is void, though nobody has decided about the batch."""
    log = log_of(Begun("x"), Intent("x", A), Begun("y"), decision("x", ONE, A))
    assert (log.run, log.last, log.undecided) == ("y", None, (A,))


def test_a_decision_before_the_next_run_stands() -> None:
    """The next run finds it, and may decide about later batches only."""
    log = log_of(Begun("x"), decision("x", ONE, A), Begun("y"), decision("y", ONE, B))
    assert log.last == decision("x", ONE, A)
    log.add(decision("y", TWO, C), Position(7, 4))
    assert log.last == decision("y", TWO, C)


def test_a_run_that_is_given_up_decides_no_more() -> None:
    """A decision before that stands; a run that has begun since goes on, for one that is fenced ends nobody's."""
    log = log_of(Begun("x"), Intent("x", A), GivenUp("x"), decision("x", ONE, A))
    assert (log.run, log.last, log.undecided) == ("", None, (A,))
    log = log_of(Begun("x"), Intent("x", A), decision("x", ONE, A), GivenUp("x"))
    assert (log.last, log.undecided) == (decision("x", ONE, A), ())
    log = log_of(Begun("x"), Begun("y"), GivenUp("x"), decision("y", ONE, A))
    assert (log.run, log.last) == ("y", decision("y", ONE, A))


def test_another_query_has_batches_of_its_own() -> None:
    """A checkpoint that was begun anew counts from 0."""
    log = log_of(Begun("x"), decision("x", TWO, A), Begun("y"), decision("y", Batch("other", 0), B))
    assert log.last == decision("y", Batch("other", 0), B)


@pytest.mark.parametrize("copied", [0, 1, 2])
def test_records_that_are_there_twice_count_once(copied: int) -> None:
    """A copy that a lost receipt has made comes behind records of others, and changes nothing."""
    records: list[Record] = [Begun("x"), Intent("x", A), decision("x", ONE, A)]
    log = log_of(*records, Begun("y"), Intent("y", B), records[copied])
    assert (log.run, log.last, log.undecided) == ("y", records[2], (B,))
    log.add(decision("y", TWO, B), Position(7, 9))
    assert log.last == decision("y", TWO, B)


def test_the_last_decision_is_carried_out_when_its_own_run_is_said_to_be() -> None:
    """A record that comes late is about an earlier decision."""
    log = log_of(Begun("x"), decision("x", ONE, A), Begun("y"))
    assert not log.is_carried_out
    log.add(CarriedOut("x"), Position(7, 3))
    assert log.is_carried_out
    log.add(decision("y", TWO, B), Position(7, 4))
    log.add(CarriedOut("x"), Position(7, 5))
    assert not log.is_carried_out


def test_what_the_next_run_needs_is_kept() -> None:
    """The last valid decision, and the beginning of its run, which makes it valid; all while there is none."""
    log = log_of(Begun("w"), Begun("x"), Intent("x", A))
    assert log.keep_from == Position(7, 0)
    log.add(decision("x", ONE, A), Position(7, 3))
    log.add(Begun("y"), Position(7, 4))
    assert log.keep_from == Position(7, 1)
    log.add(decision("y", TWO, B), Position(7, 5))
    assert log.keep_from == Position(7, 4)
