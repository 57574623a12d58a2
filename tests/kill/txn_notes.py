# SPDX-License-Identifier: Apache-2.0
"""Notes that a client of the transaction rig makes of what it does, a line of JSON each, on disk before it does it.

A line is handed to the kernel in one write, so that a client that is killed leaves all lines of what it began. Knows
the forms of the lines and makes a history of them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from broker_core.client import Message
from broker_core.wire.heads import TxnId
from tests.kill.history import Slot
from tests.kill.txn_history import Asked, Delivery, History, Outcome, Place, Session, Transaction
from tests.kill.txn_topics import text_of

NOTES: Final = "notes"
"""The end of the names of files with notes."""


class Notebook:
    """Writes the notes of one life of one client."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def session(self, name: str, place: Place) -> None:
        """A consumer or reader is about to subscribe."""
        self._write("session", name, place)

    def got(self, session: str, messages: Sequence[Message]) -> None:
        """The application has got messages."""
        self._write("got", session, [[Slot.of(each.message_id), text_of(each)] for each in messages])

    def plan(
        self,
        name: str,
        txn_id: TxnId,
        writes: Mapping[str, Sequence[str]],
        acks: Mapping[Place, Sequence[Slot]] = MappingProxyType({}),
    ) -> None:
        """All that a transaction is about to write and to acknowledge."""
        self._write("plan", name, txn_id, writes, list(acks.items()))

    def asks(self, name: str, asked: Asked) -> None:
        """A request for the end of a transaction is about to leave."""
        self._write("asks", name, asked)

    def ended(self, name: str, outcome: Outcome) -> None:
        """The last request for the end was answered, or given up."""
        self._write("ended", name, outcome)

    def resolved(self, name: str, *, committed: bool) -> None:
        """The coordinator told later how a transaction had ended."""
        self._write("resolved", name, committed)

    def _write(self, kind: str, *values: Any) -> None:
        line = json.dumps([kind, time.monotonic(), *values]) + "\n"
        written = os.write(self._file, line.encode())
        assert written == len(line), "a note was written in part: is the disk full?"


def history_of(paths: Iterable[Path]) -> History:
    """The history in the notes of all clients."""
    reading = _Reading()
    for path in paths:
        for kind, at, *values in lines_of(path):
            getattr(reading, f"read_{kind}")(at, *values)
    reading.history.transactions = list(reading.transactions.values())
    return reading.history


def lines_of(path: Path) -> Iterable[list[Any]]:
    """The notes in one file."""
    with path.open() as file:
        for line in file:
            yield json.loads(line)


def unended(path: Path) -> dict[str, TxnId]:
    """Transactions in one file whose end was not told, by name."""
    found: dict[str, TxnId] = {}
    for kind, _, name, *values in lines_of(path):
        if kind == "plan":
            found[name] = TxnId(*values[0])
        elif (kind == "ended" and values[0] == "ok") or kind == "resolved":
            found.pop(name, None)
    return found


class _Reading:
    """A history, as far as it is read. One method for each kind of line."""

    def __init__(self) -> None:
        self.history = History()
        self.transactions: dict[str, Transaction] = {}

    def read_session(self, at: float, name: str, place: list[str]) -> None:
        self.history.sessions[name] = Session(Place(*place), at)

    def read_got(self, at: float, session: str, messages: list[tuple[list[int], str]]) -> None:
        self.history.deliveries += [Delivery(session, Slot(*slot), value, at) for slot, value in messages]

    def read_plan(
        self, _at: float, name: str, _id: list[int], writes: dict[str, list[str]], acks: list[tuple[list[str], Any]]
    ) -> None:
        found = {Place(*place): [Slot(*slot) for slot in slots] for place, slots in acks}
        self.transactions[name] = Transaction(name, writes, found)

    def read_asks(self, at: float, name: str, asked: Asked) -> None:
        txn = self.transactions[name]
        txn.asked = asked
        if asked == "commit":
            txn.asked_at = min(txn.asked_at, at)

    def read_ended(self, at: float, name: str, outcome: Outcome) -> None:
        self.transactions[name].outcome, self.transactions[name].answered_at = outcome, at

    def read_resolved(self, at: float, name: str, committed: bool) -> None:
        txn = self.transactions[name]
        if txn.asked == "commit":
            self.read_ended(at, name, "ok" if committed else "fail")
        elif committed:
            raise RuntimeError(f"{txn} was committed, and nobody asked for that")
