# SPDX-License-Identifier: Apache-2.0
"""The tables of the catalogue in memory: every question is answered here, and every change is made here at once.

Changes are also recorded, statement by statement, until ``take`` hands them over to the file. SQLite never sees a file:
``snapshot`` is what it holds as bytes. Knows no table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from broker_core.base.errors import ConfigError, DataFormatError
from broker_core.base.invariants import invariant

Json = dict[str, Any]
"""A JSON object. The catalogue stores it and does not know what it means."""


class Change(NamedTuple):
    """One statement that was run in memory, and how many rows it touched there. It does the same whenever it is run."""

    sql: str
    values: tuple[Any, ...]
    rows: int


class Database:
    """The memory of one catalogue.

    Attributes:
        on_change: Called after each change that is not part of an open transaction, and after each transaction that
            changed something; ``take`` returns the change then.
    """

    def __init__(self) -> None:
        self.on_change: Callable[[], None] | None = None
        self._memory = _memory()
        self._depth = 0
        self._changes: list[Change] = []

    def restore(self, snapshot: bytes, groups: Iterable[list[Change]]) -> None:
        """Take over a snapshot, and make the changes that came after it. DataFormatError, closed: they do not fit."""
        try:
            with closing(_memory()) as kept:
                kept.deserialize(snapshot)
                kept.backup(self._memory)
            self._memory.execute("BEGIN")
            for sql, values, rows in (change for group in groups for change in group):
                touched = self._memory.execute(sql, values).rowcount
                if touched != rows:
                    raise sqlite3.DataError(f"{touched} rows instead of {rows} are touched by {sql!r}")
            self._memory.execute("COMMIT")
        except sqlite3.Error as e:
            self._memory.close()
            raise DataFormatError(
                f"the catalogue cannot be used, although its checksums hold: {e}",
                hint="restore catalogue and catalogue.copy from a backup, or use the version that wrote them",
            ) from e

    def snapshot(self) -> bytes:
        """All tables, for ``restore``."""
        return self._memory.serialize()

    @property
    def changed(self) -> bool:
        """Whether ``take`` has something to return."""
        return bool(self._changes)

    def take(self) -> list[Change]:
        """The changes since the last call, in their order. The file must keep them all, or none."""
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
        rows = self._memory.execute(sql, values).rowcount
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
        found: tuple[Any, ...] | None = self._memory.execute(sql, values).fetchone()
        return found

    def rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows that a query finds."""
        return self._memory.execute(sql, values).fetchall()


def _memory() -> sqlite3.Connection:
    if sqlite3.sqlite_version_info < (3, 37):
        raise ConfigError(
            f"the SQLite of this Python is of version {sqlite3.sqlite_version}, and 3.37 is needed",
            hint="use a Python with a newer SQLite",
        )
    # The thread that closes a store may be another one than that of its loop, which is over by then.
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
