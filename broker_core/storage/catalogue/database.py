# SPDX-License-Identifier: Apache-2.0
"""The tables of the catalogue in memory: every question is answered here, and every change is made here at once.

Changes are also recorded, statement by statement, until ``take`` hands them over to the file. Knows no table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import apsw

from broker_core.base.invariants import invariant

Json = dict[str, Any]
"""A JSON object. The catalogue stores it and does not know what it means."""


class Change(NamedTuple):
    """One statement that was run in memory, and how many rows it touched there."""

    sql: str
    values: tuple[Any, ...]
    rows: int


class Database:
    """The memory of one catalogue.

    Attributes:
        on_change: Called after each change that is not part of an open transaction, and after each transaction that
            changed something; ``take`` returns the change then.
    """

    def __init__(self, memory: apsw.Connection) -> None:
        self.on_change: Callable[[], None] | None = None
        self._memory = memory
        self._depth = 0
        self._changes: list[Change] = []

    @property
    def changed(self) -> bool:
        """Whether ``take`` has something to return."""
        return bool(self._changes)

    def take(self) -> list[Change]:
        """The changes since the last call, in their order. The file must repeat them all, or none."""
        invariant(self._depth == 0, "changes are taken inside of a transaction")
        changes, self._changes = self._changes, []
        return changes

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all changes inside one: all of them or none. May be nested; only the outermost commits."""
        made = len(self._changes)
        if self._depth == 0:
            self._memory.execute("BEGIN")
        self._depth += 1
        try:
            yield
        except BaseException:
            self._depth -= 1
            if self._depth == 0:
                self._memory.execute("ROLLBACK")
                del self._changes[made:]
            raise
        self._depth -= 1
        if self._depth == 0:
            self._memory.execute("COMMIT")
            if len(self._changes) > made:
                self._report_change()

    def change(self, sql: str, values: tuple[Any, ...] = ()) -> int:
        """Run a statement that changes rows; how many rows it touched."""
        self._memory.execute(sql, values)
        rows = self._memory.changes()
        if rows:
            self._changes.append(Change(sql, values, rows))
            if self._depth == 0:
                self._report_change()
        return rows

    def _report_change(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def value(self, sql: str, values: tuple[Any, ...] = ()) -> Any:
        """The first column of the first row that a query finds; None if it finds none."""
        row = self.row(sql, values)
        return None if row is None else row[0]

    def row(self, sql: str, values: tuple[Any, ...] = ()) -> tuple[Any, ...] | None:
        """The first row that a query finds."""
        return self._memory.execute(sql, values).fetchone()

    def rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows that a query finds."""
        return self._memory.execute(sql, values).fetchall()

    def close(self) -> None:
        """Free the memory."""
        self._memory.close()
