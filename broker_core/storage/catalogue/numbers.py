# SPDX-License-Identifier: Apache-2.0
"""Durable numbers by name. Some are counters that give out ids."""

from __future__ import annotations

from typing import Final

from broker_core.storage.catalogue.database import Database

_RESERVED_AT_ONCE: Final = 100


class Numbers:
    """The table ``values_by_name``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, name: str, default: int = 0) -> int:
        """The number kept under ``name``."""
        value = self._database.value("SELECT value FROM values_by_name WHERE name = ?", (name,))
        return default if value is None else int(value)

    def set(self, name: str, value: int) -> None:
        """Create or replace."""
        self._database.change("INSERT OR REPLACE INTO values_by_name (name, value) VALUES (?, ?)", (name, value))

    def delete(self, name: str) -> None:
        """Keep no number under ``name`` any more."""
        self._database.change("DELETE FROM values_by_name WHERE name = ?", (name,))

    def reserve(self, name: str, count: int = _RESERVED_AT_ONCE) -> range:
        """``count`` numbers of the counter ``name`` that are given out only once. They begin with 1.

        After a crash a number that was not yet durable may be given out again; it is in no file then, and no client was
        told of it.
        """
        with self._database.transaction():
            first = self.get(name, 1)
            self.set(name, first + count)
        return range(first, first + count)

    def stay_above(self, name: str, known: int) -> None:
        """The counter ``name`` gives out nothing up to ``known`` any more."""
        if known >= self.get(name, 1):
            self.set(name, known + 1)

    def next(self, name: str) -> int:
        """One number of the counter ``name``, as ``reserve``."""
        return self.reserve(name, 1)[0]
