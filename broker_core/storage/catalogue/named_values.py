# SPDX-License-Identifier: Apache-2.0
"""Tables that keep one value under each name: numbers, and the JSON objects of tenants, namespaces and policies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from broker_core.storage.catalogue.database import Database, Json


class Numbers:
    """Durable numbers by name, the table ``values_by_name``. Some are counters that give out ids."""

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

    def stay_above(self, name: str, known: int) -> None:
        """The counter ``name`` gives out nothing up to ``known`` any more."""
        if known >= self.get(name, 1):
            self.set(name, known + 1)

    def next(self, name: str, least: int = 1) -> int:
        """A number of the counter ``name``, ``least`` or greater, that is given out only once.

        After a crash a number that was not yet durable may be given out again; it is in no file then, and no client was
        told of it.
        """
        number = max(self.get(name, 1), least)
        self.set(name, number + 1)
        return number


class NamedObjects:
    """One table whose columns are ``name`` and the object, ``column``."""

    def __init__(self, database: Database, table: str, column: str) -> None:
        self._database = database
        self._select = f"SELECT name, {column} FROM {table} ORDER BY name"  # noqa: S608 - both are words of this code
        self._put = f"INSERT OR REPLACE INTO {table} (name, {column}) VALUES (?, ?)"  # noqa: S608 - as above
        self._delete = f"DELETE FROM {table} WHERE name = ?"  # noqa: S608 - as above

    def all(self) -> dict[str, Json]:
        """All objects by name, in the order of the names."""
        return {name: json.loads(text) for name, text in self._database.rows(self._select)}

    def put(self, name: str, value: Mapping[str, Any]) -> None:
        """Create or replace."""
        self._database.change(self._put, (name, json.dumps(value)))

    def delete(self, name: str) -> bool:
        """Whether it existed. The caller has made sure that nothing needs it any more."""
        return self._database.change(self._delete, (name,)) > 0
