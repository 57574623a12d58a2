# SPDX-License-Identifier: Apache-2.0
"""Bugs of the exactly-once sink for the rig to find: each breaks one rule, in all processes of a query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker_core.client import Client
from pulsarish_spark.options.guarantee import ExactlyOnce
from pulsarish_spark.sink import exactly_once, writer
from pulsarish_spark.sink.decisions import ControlLog
from pulsarish_spark.sink.endings import abort_all
from pulsarish_spark.sink.exactly_once import Run
from pulsarish_spark.sink.inputs import SourceInputs


def lie(name: str) -> None:
    """The bug of that name is there from now on; "" for none."""
    if name:
        LIES[name][0]()


def _replace(owner: Any, name: str, value: object) -> None:
    setattr(owner, name, value)


def _write_again() -> None:
    """A batch that is decided is written again."""
    _replace(exactly_once, "check_batch", lambda _run, _batch: True)
    _replace(ControlLog, "_is_valid", lambda self, decision: decision.run == self.run)


def _keep_undecided() -> None:
    """Transactions that earlier drivers have opened and not decided stay open."""
    _replace(exactly_once, "abort_all", lambda _client, _txn_ids: None)


def _forget_decision() -> None:
    """A driver that begins does not commit what the last decision names, and aborts it."""
    carry_out, begin = exactly_once.carry_out, exactly_once.begin

    def begun(client: Client, once: ExactlyOnce) -> Run:
        _replace(exactly_once, "carry_out", lambda client, _topic, last, _once: abort_all(client, last.txn_ids))
        try:
            return begin(client, once)
        finally:
            _replace(exactly_once, "carry_out", carry_out)

    _replace(exactly_once, "begin", begun)


def _ignore_fence() -> None:
    """A driver decides though another one has begun, and about a batch that is decided."""
    _replace(ControlLog, "_is_valid", lambda _self, _decision: True)
    _replace(exactly_once, "abort_all", lambda _client, _txn_ids: None)


def _intend_nothing() -> None:
    """Tasks do not tell of their transactions."""
    _replace(exactly_once, "intend", lambda _client, _run, _txn_id: None)


def _commit_at_once() -> None:
    """Tasks commit their transactions when they have written."""
    send_within = writer.send_within

    def sent(client: Client, *about: Any) -> writer.Written:
        written = send_within(client, *about)
        assert written.share is not None
        client.end_transaction(written.share.txn_id, commit=True)
        return written

    _replace(writer, "send_within", sent)


def _give_locks_back() -> None:
    """A driver that begins gives the messages of the batch that it runs again back to the broker."""
    begin = SourceInputs.begin
    _replace(SourceInputs, "begin", lambda self, _own: begin(self, None))


LIES: Final[dict[str, tuple[Callable[[], None], str]]] = {
    "written-again": (_write_again, "duplicated"),
    "undecided-kept": (_keep_undecided, "hanging"),
    "decision-forgotten": (_forget_decision, "lost"),
    "fence-ignored": (_ignore_fence, "hanging"),
    "nothing-intended": (_intend_nothing, "hanging"),
    "committed-at-once": (_commit_at_once, "duplicated"),
    "locks-given-back": (_give_locks_back, "duplicated"),
}
"""Name -> the bug, and what comes of it."""
