# SPDX-License-Identifier: Apache-2.0
"""Schemas of topics, version by version, by the id that a topic and all its partitions share.

A deletion is a row without a type, a *tombstone*: versions before it are live no more, and are kept for messages that
were written with them. Numbers rise until all rows of an id are deleted. Knows types as numbers, and no rules.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from broker_core.storage.catalogue.database import Database, Json
from broker_core.storage.catalogue.named_values import Numbers

_COLUMNS: Final = "version, type, data, properties, role, added_ms"
_OF_TOMBSTONES: Final = b""
"""The fingerprint of tombstones, which no schema has."""

_ALIKE: Final = "schemas INDEXED BY schemas_alike WHERE id = ? AND fingerprint = ?"
"""Rows of an id with a fingerprint. Without a plus before ``version`` SQLite looks through all rows of the id."""

_LOST_BELOW: Final = "schema versions lost below"
"""Name of the number below which versions may be lost, of any id."""

_SKIPPED: Final = 1_000_000
"""More than an id has versions: numbers go on behind the next multiple of this when changes are lost."""

_ROW_BYTES: Final = 512
"""Bytes of a row beside its schema, with its part of two indexes."""

_WEIGHT: Final = f"SELECT count(*) * {_ROW_BYTES} + coalesce(sum(length(data) + length(properties)), 0) FROM schemas"  # noqa: S608


class SchemaRow(NamedTuple):
    """One version. ``type`` None: a tombstone. ``role``: of the client that added it."""

    version: int
    type: int | None
    data: bytes
    properties: Json
    role: str
    added_ms: int


class Schemas:
    """The table ``schemas``.

    Attributes:
        deletions: How often all versions of an id, or of several, were deleted.
        stored_bytes: The size of all rows in memory and in a snapshot, about.
    """

    def __init__(self, database: Database, numbers: Numbers) -> None:
        self._database = database
        self._numbers = numbers
        self.deletions = 0
        self.stored_bytes: int = database.value(_WEIGHT, ())
        self._sizes: dict[str, tuple[int, int]] = {}

    @property
    def lost_below(self) -> int:
        """The number below which versions may be lost by damage of the catalogue; 0: none is."""
        return self._numbers.get(_LOST_BELOW)

    def changes_are_lost(self) -> None:
        """Some changes of the catalogue are lost by damage: no number below the next free one is given out again, of
        any id, as messages may have been written with it."""
        newest: int = self._database.value("SELECT coalesce(max(version), 0) FROM schemas", ())
        self._numbers.set(_LOST_BELOW, (max(newest, self.lost_below) // _SKIPPED + 1) * _SKIPPED)

    def next_version(self, schema_id: str) -> int:
        """The number of the version that is added next."""
        return max(self.last_version(schema_id) + 1, self.lost_below)

    def last_version(self, schema_id: str) -> int:
        """The newest version, a tombstone perhaps; -1 if there is none."""
        version = self._database.value("SELECT max(version) FROM schemas WHERE id = ?", (schema_id,))
        return -1 if version is None else int(version)

    def live_from(self, schema_id: str) -> int:
        """The version from which on schemas are live: that behind the last tombstone."""
        sql = f"SELECT max(+version) FROM {_ALIKE}"  # noqa: S608 - words of this code alone
        version = self._database.value(sql, (schema_id, _OF_TOMBSTONES))
        return 0 if version is None else int(version) + 1

    def get(self, schema_id: str, version: int) -> SchemaRow | None:
        """A version, live or not, or a tombstone; None if there is none of that number."""
        sql = f"SELECT {_COLUMNS} FROM schemas WHERE id = ? AND version = ?"  # noqa: S608 - words of this code alone
        row = self._database.row(sql, (schema_id, version))
        return None if row is None else _row(row)

    def find(self, schema_id: str, fingerprint: bytes) -> int | None:
        """The version of the live schema with a fingerprint; None if there is none."""
        sql = f"SELECT min(+version) FROM {_ALIKE} AND +version >= ?"  # noqa: S608 - words of this code alone
        version: int | None = self._database.value(sql, (schema_id, fingerprint, self.live_from(schema_id)))
        return version

    def some(self, schema_id: str, first: int, rows_max: int, bytes_max: int) -> list[SchemaRow]:
        """Rows from version ``first`` on: as many as both limits allow, and one at least, if there is one."""
        sql = "SELECT version, length(data) FROM schemas WHERE id = ? AND version >= ? ORDER BY version LIMIT ?"
        last, size = -1, 0
        for version, data in self._database.rows(sql, (schema_id, first, rows_max)):
            size += data
            if last >= 0 and size > bytes_max:
                break
            last = version
        sql = f"SELECT {_COLUMNS} FROM schemas WHERE id = ? AND version BETWEEN ? AND ? ORDER BY version"  # noqa: S608
        return [_row(row) for row in self._database.rows(sql, (schema_id, first, last))]

    def size(self, schema_id: str) -> tuple[int, int]:
        """How many rows an id has, and how many bytes their data has together. Counted once: of very many rows that
        takes longer than to add one."""
        if schema_id not in self._sizes:
            sql = "SELECT count(*), coalesce(sum(length(data)), 0) FROM schemas WHERE id = ?"
            self._sizes[schema_id] = self._database.rows(sql, (schema_id,))[0]
        return self._sizes[schema_id]

    def add(self, schema_id: str, row: SchemaRow, fingerprint: bytes) -> None:
        """Add a version, the next one."""
        self._put(schema_id, row, fingerprint)

    def add_tombstone(self, schema_id: str, version: int, role: str, added_ms: int) -> None:
        """Add a tombstone, as the next version."""
        self._put(schema_id, SchemaRow(version, None, b"", {}, role, added_ms), _OF_TOMBSTONES)

    def _put(self, schema_id: str, row: SchemaRow, fingerprint: bytes) -> None:
        values = (schema_id, row.version, row.type, row.data, json.dumps(row.properties), row.role, row.added_ms)
        self._database.change(
            f"INSERT INTO schemas (id, {_COLUMNS}, fingerprint) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            (*values, fingerprint),
        )
        self.stored_bytes += _ROW_BYTES + len(row.data) + len(values[4])
        if schema_id in self._sizes:
            rows, size_bytes = self._sizes[schema_id]
            self._sizes[schema_id] = rows + 1, size_bytes + len(row.data)

    def delete(self, schema_id: str) -> None:
        """Delete all versions of an id: its numbers begin anew."""
        self._delete("id = ?", (schema_id,))

    def delete_below(self, prefix: str) -> None:
        """Delete all versions of ids that begin so; ``prefix`` ends with a slash."""
        self._delete("id > ? AND id < ?", (prefix, prefix[:-1] + chr(ord("/") + 1)))

    def _delete(self, where: str, values: tuple[str, ...]) -> None:
        self.stored_bytes -= self._database.value(f"{_WEIGHT} WHERE {where}", values)
        self._database.change(f"DELETE FROM schemas WHERE {where}", values)  # noqa: S608 - words of this code alone
        self.deletions += 1
        self._sizes.clear()


def _row(row: tuple[Any, ...]) -> SchemaRow:
    version, kind, data, properties, role, added_ms = row
    return SchemaRow(version, kind, data, json.loads(properties), role, added_ms)
