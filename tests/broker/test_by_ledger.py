# SPDX-License-Identifier: Apache-2.0
"""How deliveries are told apart by their ledgers, which what is booked of each entry rests on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.positions import Position
from broker_core.broker.dispatch.entry_source import by_ledger
from broker_core.broker.sinks import Delivery
from broker_core.storage.ledger import StoredEntry


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9))))
def test_each_entry_is_booked_under_its_own_ledger(places: list[tuple[int, int]]) -> None:
    """Whatever their order is: those of a replay, of due entries and of a new read need not follow one another."""
    deliveries = [Delivery(StoredEntry(Position(*place), b"", 1, 0, 0), 0, None) for place in places]
    runs = list(by_ledger(deliveries))
    assert [(ledger, delivery.entry.position.entry) for ledger, run in runs for delivery in run] == places
    assert [delivery for _, run in runs for delivery in run] == deliveries
