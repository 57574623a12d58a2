# SPDX-License-Identifier: Apache-2.0
"""Keeps new ids above every id that anything in the data directory knows.

A directory may have been put together from copies of different age. Where the catalogue is the older one, cursors have
acknowledged, and buckets of delayed messages have looked at, entries of ledgers that it has yet to give out: a new
ledger of the same id would have entries that count as acknowledged. The counters of the catalogue are raised before
anything is made. Must not know what is wrong with such a directory; opening a topic reports what it has lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker_core.storage import layout
from broker_core.storage.context import StoreContext
from broker_core.storage.disk import disk_failed

_IDS_MAX: Final = 1 << 62
"""What is above is no id: positions such as "latest" have numbers that no ledger gets."""


def stay_above(context: StoreContext, ledgers: Iterable[int], cursors: Iterable[int]) -> None:
    """Give out no ledger id and no cursor id that is known to cursors and buckets (``ledgers``, ``cursors``), to the
    copies of marks, or to the names of what was laid aside. DiskFailedError: the disk refused."""
    known = [*ledgers, *context.marks.ledgers(), *_laid_aside(context)]
    _raise(context, "ledgers", known)
    _raise(context, "subscriptions", cursors)


def _raise(context: StoreContext, counter: str, known: Iterable[int]) -> None:
    newest = max((each for each in known if each < _IDS_MAX), default=0)
    context.catalogue.numbers.stay_above(counter, newest)


def _laid_aside(context: StoreContext) -> list[int]:
    folder = layout.quarantine_dir(context.directory)
    if not context.disk.exists(folder):
        return []
    try:
        names = context.disk.list_dir(folder)
    except OSError as e:
        raise disk_failed(e) from e
    return [ledger for ledger in map(layout.parse_quarantined_ledger, names) if ledger is not None]
