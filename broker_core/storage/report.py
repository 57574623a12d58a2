# SPDX-License-Identifier: Apache-2.0
"""What recovery found and did: values for logs, metrics and the doctor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Damage(NamedTuple):
    """Bytes that fail their checksum although they had been durable.

    Attributes:
        path: The file.
        offset: Where the damage begins.
        size: Bytes affected, as far as known.
        what: One line for a human: which entries or acknowledgements are hit.
    """

    path: str
    offset: int
    size: int
    what: str


@dataclass(slots=True)
class RecoveryReport:
    """Grows while a store is open: topics are recovered when they are first opened.

    Attributes:
        damages: Durable bytes that are damaged. They stay where they are, and a copy lies in quarantine.
        entries_damaged: Entries that cannot be read because of it.
        truncated_bytes: Bytes of unconfirmed groups that a crash had torn, and that were dropped.
        ledgers_recovered: Ledgers that had not been closed properly and were scanned.
        files_missing: Files that the catalogue knows but the directory lacks. Their topics are read-only.
        files_unknown: Files in the directory that the catalogue does not know. They are kept, and ignored.
    """

    damages: list[Damage] = field(default_factory=list)
    entries_damaged: int = 0
    truncated_bytes: int = 0
    ledgers_recovered: int = 0
    files_missing: list[str] = field(default_factory=list)
    files_unknown: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Nothing that an operator should look at. (Torn tails are normal after a crash.)"""
        return not (self.damages or self.files_missing or self.files_unknown)
