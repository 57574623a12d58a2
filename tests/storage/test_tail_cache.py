# SPDX-License-Identifier: Apache-2.0
"""The newest entries in memory: what is found, what goes first, and what is left of ledgers that are gone."""

from __future__ import annotations

import tracemalloc

from broker_core.storage.tail_cache import TailCache

MIB = 1024 * 1024


def test_the_oldest_goes_first_and_deleted_ledgers_do_not_count() -> None:
    """Reliability row 13: the limit is for all ledgers together, whatever order they come in and go."""
    cache = TailCache(4 * MIB)
    for ledger in range(4):
        cache.add(ledger, 0, [bytes(MIB - 1000)], [1], MIB - 1000)
    cache.forget(1)
    assert [cache.find(ledger, 0) is not None for ledger in range(4)] == [True, False, True, True]
    for ledger in (4, 5):
        cache.add(ledger, 0, [bytes(MIB - 1000)], [1], MIB - 1000)
    assert [cache.find(ledger, 0) is not None for ledger in range(6)] == [False, False, True, True, True, True]
    for ledger in range(6):
        cache.forget(ledger)
    assert cache.size_bytes == 0


def test_ledgers_that_come_and_go_leave_nothing() -> None:
    """Topics that live for a moment must not fill the memory of a broker that never reaches the limit."""

    def come_and_go(ledgers: int) -> None:
        for ledger in range(ledgers):
            cache.add(ledger, 0, [b"entry"], [1], 60)
            cache.forget(ledger)

    cache = TailCache(MIB)
    come_and_go(10)
    tracemalloc.start()
    try:
        come_and_go(5_000)
        assert tracemalloc.get_traced_memory()[0] < 20_000
    finally:
        tracemalloc.stop()
