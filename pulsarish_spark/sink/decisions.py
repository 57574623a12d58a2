# SPDX-License-Identifier: Apache-2.0
"""Which transactions of a stream are committed: the records of its control topic, and their verdict. No I/O.

Each micro-batch is a *run* of one driver. A run writes that it begins (``Begun``), each of its tasks that it has opened
a transaction (``Intent``), and the run at its end which of them are to be committed (``Decision``), or that it gives
all of them up (``GivenUp``). The order of the records decides. A decision is *valid* if its run is the last that had
begun before it and has not given up, and if no valid decision about the same batch of the query, or a later one,
stands before it. Who has committed all that a decision names writes that it is *carried out* (``CarriedOut``), for
coordinators forget in time how transactions have ended.

A query that takes its messages from a queue may have them acknowledged by the same decision. Each of its sources writes
that a process of it begins (``SourceBegun``), and before the run of a batch begins, in which transaction the batch's
messages are acknowledged (``Input``). A run has the inputs that were written since the run before, by the sources'
newest processes, and since any process of a source has begun. Its decision names them, and is valid only while no newer
process of such a source has begun. An input that is in no decision is left to its source, which commits it when Spark
has noted that the batch is done, as it does without a sink: a batch may have no rows.

So a run that begins ends what drivers before it can do: their decisions come too late. What they have opened may then
be aborted, but for what a valid decision names. A record that is there twice, as after a lost receipt, counts once. A
batch write with a name is a stream of one batch (``JOB``).
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple, TypeAlias

from broker_core.base.errors import PulsarishError
from broker_core.base.positions import Position
from broker_core.wire.heads import TxnId

_FORMAT: Final = 1


class Batch(NamedTuple):
    """A micro-batch of a query."""

    query: str
    number: int

    def __str__(self) -> str:
        return "this write" if self == JOB else f"batch {self.number} of query {self.query}"


JOB: Final = Batch("", 0)
"""The rows of a batch write, all of them. No query has that id."""


class Begun(NamedTuple):
    """A run begins. Its name comes once."""

    run: str


class Intent(NamedTuple):
    """A task of a run has opened a transaction."""

    run: str
    txn_id: TxnId


class SourceBegun(NamedTuple):
    """A process of a source begins. ``source`` is the same in each process of one source of one query."""

    source: str


class Input(NamedTuple):
    """The transaction in which a source has acknowledged the messages of the next run's batch, and that is not aborted
    by its time limit before ``lasting_until_ms``. ``since``: where the process of the source has begun."""

    source: str
    since: Position
    txn_id: TxnId
    lasting_until_ms: int


class Decision(NamedTuple):
    """The transactions that make up a batch. ``lasting_until_ms``: none of them is aborted by its time limit before.
    ``inputs``: in which its messages are acknowledged, and which are committed with it."""

    run: str
    batch: Batch
    txn_ids: tuple[TxnId, ...]
    lasting_until_ms: int
    inputs: tuple[Input, ...] = ()


class GivenUp(NamedTuple):
    """A run ends without a decision, unless one stands before this."""

    run: str


class CarriedOut(NamedTuple):
    """All transactions of the decision of a run are committed."""

    run: str


Record: TypeAlias = Begun | Intent | Decision | GivenUp | CarriedOut | SourceBegun | Input


class ControlRecordError(PulsarishError):
    """A record of a control topic cannot be read: it is not ours, or of a newer version."""


def encoded(record: Record) -> bytes:
    """The message that carries ``record``."""
    return json.dumps({"v": _FORMAT} | _fields(record), separators=(",", ":")).encode()


def _fields(record: Record) -> dict[str, Any]:
    if isinstance(record, SourceBegun):
        return {"source": record.source}
    if isinstance(record, Input):
        return {"input": _input_fields(record)}
    fields: dict[str, Any] = {"run": record.run}
    if isinstance(record, Intent):
        fields["intent"] = list(record.txn_id)
    elif isinstance(record, Decision):
        fields |= {
            "query": record.batch.query,
            "batch": record.batch.number,
            "commit": [list(each) for each in record.txn_ids],
            "until": record.lasting_until_ms,
        }
        if record.inputs:
            fields["inputs"] = [_input_fields(each) for each in record.inputs]
    elif isinstance(record, GivenUp):
        fields["given_up"] = True
    elif isinstance(record, CarriedOut):
        fields["carried_out"] = True  # To versions that do not know it, a copy of the run's begin.
    return fields


def _input_fields(given: Input) -> list[Any]:
    return [given.source, given.since.ledger, given.since.entry, *given.txn_id, given.lasting_until_ms]


def decoded(value: bytes) -> Record:
    """The record that a message carries; ControlRecordError if it cannot be read."""
    try:
        fields = json.loads(value)
        if fields["v"] != _FORMAT:
            raise ControlRecordError(
                f"a record of the control topic has format {fields['v']!r}, and this version reads {_FORMAT}",
                hint="write with the version that began, or use another transactionalId",
            )
        return _record(fields)
    except (ValueError, TypeError, KeyError) as error:
        raise ControlRecordError(
            "a message of the control topic is no record of the sink", hint="nobody else may write to that topic"
        ) from error


def _record(fields: dict[str, Any]) -> Record:
    if "source" in fields:
        return SourceBegun(str(fields["source"]))
    if "input" in fields:
        return _input(fields["input"])
    run = str(fields["run"])
    if "commit" in fields:
        txn_ids = tuple(TxnId(int(most), int(least)) for most, least in fields["commit"])
        batch, inputs = Batch(str(fields["query"]), int(fields["batch"])), map(_input, fields.get("inputs", ()))
        return Decision(run, batch, txn_ids, int(fields["until"]), tuple(inputs))
    if "intent" in fields:
        most, least = fields["intent"]
        return Intent(run, TxnId(int(most), int(least)))
    if "carried_out" in fields:
        return CarriedOut(run)
    return GivenUp(run) if "given_up" in fields else Begun(run)


def _input(fields: list[Any]) -> Input:
    source, ledger, entry, most, least, until_ms = fields
    return Input(str(source), Position(int(ledger), int(entry)), TxnId(int(most), int(least)), int(until_ms))


class ControlLog:
    """The verdict over records that are given in their order, from a place on where ``keep_from`` has once been."""

    def __init__(self) -> None:
        self.run = ""
        """The run that began last, and may decide; "" if it has given up."""
        self.last: Decision | None = None
        """The last valid decision."""
        self.is_carried_out = False
        """Whether all transactions of the last valid decision are committed, as far as the records say."""
        self.keep_from: Position | None = None
        """Records from here on are needed by the next run: those of the last valid decision and of its run."""
        self.inputs: tuple[Input, ...] = ()
        """Inputs of the run that began last."""
        self.left: dict[str, Input] = {}
        """The last input of each source, if no valid decision names it."""
        self._begun_at: dict[str, Position] = {}
        self._undecided: dict[TxnId, str] = {}
        self._since: dict[str, Position] = {}
        """Where the newest process of each source has begun."""
        self._coming: dict[str, Input] = {}
        """The inputs of the next run."""

    def add(self, record: Record, position: Position) -> None:
        """The next record."""
        if isinstance(record, Begun):
            if record.run not in self._begun_at:
                self._begun_at[record.run] = position
                self.run = record.run
                self.inputs, self._coming = tuple(self._coming.values()), {}
            if self.keep_from is None:
                self.keep_from = position
        elif isinstance(record, Intent):
            if self.last is None or record.txn_id not in self.last.txn_ids:
                self._undecided[record.txn_id] = record.run
        elif isinstance(record, GivenUp):
            if record.run == self.run:
                self.run = ""
        elif isinstance(record, CarriedOut):
            self.is_carried_out |= self.last is not None and self.last.run == record.run
        elif isinstance(record, SourceBegun):
            self._since[record.source] = position
            self._coming.clear()
        elif isinstance(record, Input):
            self._add_input(record)
        else:
            self._add_decision(record)

    @property
    def undecided(self) -> tuple[TxnId, ...]:
        """Transactions of which no valid decision says that they are to be committed."""
        return tuple(self._undecided)

    def has_begun(self, run: str) -> bool:
        """Whether the records say that ``run`` has begun."""
        return run in self._begun_at

    def undecided_of(self, run: str) -> tuple[TxnId, ...]:
        """Undecided transactions that one run has opened."""
        return tuple(txn_id for txn_id, opener in self._undecided.items() if opener == run)

    def _add_decision(self, decision: Decision) -> None:
        if not self._is_valid(decision):
            return
        self.last, self.is_carried_out = decision, False
        self.keep_from = self._begun_at[decision.run]
        for each in decision.txn_ids:
            self._undecided.pop(each, None)
        self.left = {source: each for source, each in self.left.items() if each not in decision.inputs}

    def _add_input(self, given: Input) -> None:
        if not self._is_newest(given):
            return
        self._since[given.source] = given.since
        # A batch that is decided, and run again, has no other decision.
        if self.last is None or given.txn_id not in {each.txn_id for each in self.last.inputs}:
            self.left[given.source] = self._coming[given.source] = given

    def _is_newest(self, given: Input) -> bool:
        """Whether no newer process of its source has begun."""
        return self._since.get(given.source, given.since) <= given.since

    def _is_valid(self, decision: Decision) -> bool:
        if decision.run != self.run or not all(map(self._is_newest, decision.inputs)):
            return False
        last = self.last
        return last is None or last.batch.query != decision.batch.query or last.batch.number < decision.batch.number
