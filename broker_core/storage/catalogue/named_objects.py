# SPDX-License-Identifier: Apache-2.0
"""Tables that keep one JSON object under each name: tenants, namespaces, policies of topics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from broker_core.storage.catalogue.database import Database, Json


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
