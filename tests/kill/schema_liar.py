# SPDX-License-Identifier: Apache-2.0
"""Bugs of a registry, one by one, to prove that the schema rig finds each.

The environment variable ``SCHEMA_LIE`` names the one of this process.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any, Final

from broker_core.storage.catalogue import catalogue
from broker_core.storage.catalogue.database import Database
from broker_core.storage.catalogue.file import CatalogueFile, Recorded, read_catalogue
from broker_core.storage.catalogue.schemas import SchemaRow, Schemas
from broker_core.storage.commit import GroupCommit

VARIABLE: Final = "SCHEMA_LIE"
_EVERY: Final = 20
"""A bug strikes one time out of so many."""
_GROUPS_LOST: Final = 3


def lie() -> None:
    """From now on, in children too."""
    LIES[os.environ[VARIABLE]][0]()


def _replace(owner: Any, name: str, value: object) -> None:
    setattr(owner, name, value)


def _strikes() -> bool:
    return random.Random(os.urandom(8)).randrange(_EVERY) == 0


def _lose_changes() -> None:
    """The last groups of changes are confirmed, and a start does not find them."""

    def found(*about: Any, **more: Any) -> Recorded | None:
        recorded = read_catalogue(*about, **more)
        return None if recorded is None else recorded._replace(changes=recorded.changes[:-_GROUPS_LOST])

    _replace(catalogue, "read_catalogue", found)


def _answer_early() -> None:
    """The broker does not wait until changes are durable, and these take their time."""
    _replace(GroupCommit, "recorded", property(lambda _self: True))
    _replace(GroupCommit, "when_recorded", lambda _self, on_durable: on_durable(None))
    _replace(CatalogueFile, "append", lambda _self, _changes: None)


def _find_nothing() -> None:
    """A schema that is there is now and then not found, and stored again."""
    find = Schemas.find
    _replace(Schemas, "find", lambda self, *about: None if _strikes() else find(self, *about))


def _begin_anew() -> None:
    """A deletion takes all versions along, and numbers begin anew."""
    put = Schemas.add_tombstone

    def added(self: Schemas, schema_id: str, version: int, *about: Any) -> None:
        put(self, schema_id, version, *about)
        self.delete(schema_id)

    _replace(Schemas, "add_tombstone", added)


def _tidy() -> None:
    """Schemas are stored without the white space around them."""
    put = Schemas.add

    def added(self: Schemas, schema_id: str, row: SchemaRow, fingerprint: bytes) -> None:
        put(self, schema_id, row._replace(data=b" ".join(row.data.split())), fingerprint)

    _replace(Schemas, "add", added)


def _forget_the_newest() -> None:
    """A start forgets the last version of each topic."""
    restore = Database.restore

    def restored(self: Database, *about: Any) -> None:
        restore(self, *about)
        last = "(SELECT id, max(version) FROM schemas GROUP BY id)"
        self._memory.execute(f"DELETE FROM schemas WHERE (id, version) IN {last}")

    _replace(Database, "restore", restored)


LIES: Final[dict[str, tuple[Callable[[], None], str]]] = {
    "changes-lost": (_lose_changes, "G2"),
    "answered-early": (_answer_early, "G2"),
    "found-never": (_find_nothing, "G4"),
    "begun-anew": (_begin_anew, "G1"),
    "tidied": (_tidy, "G3"),
    "newest-forgotten": (_forget_the_newest, "G2"),
}
"""Name -> the bug, and a rule that it breaks."""
