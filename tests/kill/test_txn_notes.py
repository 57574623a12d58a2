# SPDX-License-Identifier: Apache-2.0
"""Notes of clients of the transaction rig become a history again."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.wire.heads import TxnId
from tests.kill.history import Slot
from tests.kill.txn_history import NEVER, Place, Transaction
from tests.kill.txn_notes import Notebook, history_of, unended

PLACE = Place("A", "s")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "client.0.notes"


def read(path: Path) -> Transaction:
    [transaction] = history_of([path]).transactions
    return transaction


def test_what_a_killed_client_had_begun_is_in_its_history(path: Path) -> None:
    """A transaction without an end was never asked to commit, and is to be ended by the next client."""
    Notebook(path).plan("t", TxnId(1, 2), {"B": ["v/0"]}, {PLACE: [Slot(7, 0, -1)]})
    found = read(path)
    assert (found.writes, found.acks) == ({"B": ["v/0"]}, {PLACE: [Slot(7, 0, -1)]})
    assert (found.asked, found.asked_at, found.outcome) == ("nothing", NEVER, "unknown")
    assert unended(path) == {"t": TxnId(1, 2)}


def test_the_first_request_to_commit_counts(path: Path) -> None:
    """Its values may be seen from then on; an answer ends what is to be done."""
    notes = Notebook(path)
    notes.plan("t", TxnId(1, 2), {})
    notes.asks("t", "commit")
    first = read(path).asked_at
    notes.asks("t", "commit")
    assert (read(path).asked_at, read(path).outcome) == (first, "unknown")
    notes.ended("t", "ok")
    assert read(path).is_committed
    assert read(path).answered_at > first
    assert unended(path) == {}


@pytest.mark.parametrize("committed", [True, False])
def test_a_coordinator_that_is_asked_later_tells_the_outcome(path: Path, committed: bool) -> None:
    """Of a commit without an answer."""
    notes = Notebook(path)
    notes.plan("t", TxnId(1, 2), {})
    notes.asks("t", "commit")
    notes.ended("t", "unknown")
    assert not read(path).is_never_committed
    notes.resolved("t", committed=committed)
    assert (read(path).is_committed, read(path).is_never_committed) == (committed, not committed)
    assert unended(path) == {}


def test_a_commit_that_nobody_asked_for_is_an_error(path: Path) -> None:
    """No kill explains it."""
    notes = Notebook(path)
    notes.plan("t", TxnId(1, 2), {})
    notes.resolved("t", committed=True)
    with pytest.raises(RuntimeError, match="nobody asked"):
        history_of([path])
