# SPDX-License-Identifier: Apache-2.0
"""Compares the catalogue with the folder of ledgers when a store is opened, and finishes what a crash interrupted.

Owns what becomes of ledgers that were half made or half deleted. A file is removed only if the catalogue, which is made
durable first, knows it as one of these and nothing else shows that it is needed: neither a commit mark in it nor the
copy of one, nor a header that names another ledger. What is not a regular file is left alone. Must not know of topics
that are in use.
"""

from __future__ import annotations

from contextlib import closing

from broker_core.base.errors import DataFormatError
from broker_core.storage import layout
from broker_core.storage.catalogue import (
    LEDGER_COUNTER,
    LEDGER_CREATING,
    LEDGER_DELETING,
    LedgerRow,
)
from broker_core.storage.context import StoreContext
from broker_core.storage.disk import disk_failed, fail_stop, no_file
from broker_core.storage.ledger import Removal, forget_removed, unlink_ledger
from broker_core.storage.records import FILE_HEADER_BYTES, TAG_MARK
from broker_core.storage.scan import Gap, walk


def clean_up_ledgers(context: StoreContext) -> None:
    """DataFormatError: the catalogue is older than the ledgers. DiskFailedError: the disk refused."""
    folder = layout.ledgers_dir(context.directory)
    with fail_stop():
        names, files = context.disk.list_dir(folder), context.disk.list_files(folder)
    there, whole = _numbers(names), _numbers(files)
    rows = context.catalogue.ledgers.all()
    unknown = there - {row.id for row in rows}
    _refuse_old_catalogue(context, unknown)
    context.catalogue.begin()  # before anything is removed by its word, which may be in the system's memory only
    made = _made(context, [row for row in rows if row.state == LEDGER_CREATING])
    for ledger in made:
        context.catalogue.ledgers.mark_open(ledger)
    gone = [row for row in rows if row.state in (LEDGER_CREATING, LEDGER_DELETING) and row.id not in made]
    removals = _unlink_ledgers(context, [row for row in gone if row.id in there])
    if gone:
        forget_removed(context, {row.id: row for row in gone}, removals)
    for row in context.catalogue.ledgers.all():
        _note_lost(context, row, is_file=row.id in whole)
    for ledger in sorted(unknown):
        context.quarantine.note_unknown(layout.ledger_path(context.directory, ledger))


def _numbers(names: list[str]) -> set[int]:
    return {number for number in map(layout.parse_number, names) if number is not None}


def _refuse_old_catalogue(context: StoreContext, unknown: set[int]) -> None:
    """Ledgers that the catalogue has yet to give out: it was restored or lost its newest changes."""
    newer = sorted(ledger for ledger in unknown if ledger >= context.catalogue.numbers.get(LEDGER_COUNTER, 1))
    if newer:
        path = layout.ledger_path(context.directory, newer[-1])
        raise DataFormatError(
            f"{layout.catalogue_path(context.directory)} is older than the data: it knows nothing of {path}",
            hint="restore the newest catalogue and catalogue.copy; without them, move the newer ledger files away",
        )


def _made(context: StoreContext, rows: list[LedgerRow]) -> set[int]:
    """The ids of the ledgers that the catalogue knows as being made and that were synced.

    A commit mark is written when everything of its group, and of all before, is synced. So it shows that
    the ledgers of the topic before its own were synced as well: one that its first group filled and closed has no mark.
    """
    newest: dict[int, int] = {}
    for row in sorted(rows, key=lambda row: row.id):
        if _was_synced(context, row):
            newest[row.topic_id] = row.id
    return {row.id for row in rows if row.id <= newest.get(row.topic_id, -1)}


def _was_synced(context: StoreContext, row: LedgerRow) -> bool:
    """Whether a commit mark, or its copy, says that the first group of a ledger that is being made was synced.

    Then only the catalogue does not know it yet, or it has lost that change.
    """
    if context.marks.find(row.id, row.header.seed) is not None:
        return True
    try:
        with closing(context.disk.open_read_only(layout.ledger_path(context.directory, row.id))) as file:
            found = walk(file, row.header.seed, FILE_HEADER_BYTES, file.size())
            return any(not isinstance(each, Gap) and each[1].tag == TAG_MARK for each in found)
    except OSError as e:
        if no_file(e):
            return False
        raise disk_failed(e) from e


def _note_lost(context: StoreContext, row: LedgerRow, *, is_file: bool) -> None:
    """Register what is known to be lost of a ledger that has, or should have, entries."""
    path = layout.ledger_path(context.directory, row.id)
    if not is_file:
        try:
            context.disk.open_read_only(path).close()
        except OSError as e:
            if context.lost_without_file(row, e) is None:
                raise disk_failed(e) from e
    elif row.lost:
        what = f"{row.lost} of its {row.entries} entries were lost before it was closed"
        context.quarantine.note_found(path, what, row.topic_id)


def _unlink_ledgers(context: StoreContext, rows: list[LedgerRow]) -> dict[int, Removal]:
    """Ledgers being made (nothing in them was ever confirmed) or being deleted."""
    if not rows:
        return {}
    with fail_stop():
        removals = {row.id: unlink_ledger(context, row) for row in rows}
        context.disk.sync_dir(layout.ledgers_dir(context.directory))
    return removals
