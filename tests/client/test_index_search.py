# SPDX-License-Identifier: Apache-2.0
"""Finding the entry of a message index."""

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.positions import Position
from broker_core.client.columnar.index_search import IndexedEntry, IndexSearch


def log_of(ledgers: list[list[int]]) -> list[IndexedEntry]:
    """A log whose ledgers hold entries with these numbers of messages."""
    log, index = [], 0
    for ledger, sizes in enumerate(ledgers):
        for entry, size in enumerate(sizes):
            log.append(IndexedEntry(Position(10 * ledger, entry), index, index + size - 1))
            index += size
    return log


def search(log: list[IndexedEntry], index: int) -> tuple[Position, int]:
    """The answer, and how many entries were asked for."""
    positions = [entry.position for entry in log]
    looking = IndexSearch(index, log[0], log[-1])
    probes = 0
    while (guess := looking.guess()) is not None:
        at = bisect_left(positions, guess)
        looking.found(guess, log[at] if at < len(log) else None)
        probes += 1
    return looking.answer, probes


sizes = st.lists(st.lists(st.integers(1, 1000), min_size=1, max_size=60), min_size=1, max_size=5)


@given(sizes, st.data())
def test_every_index_is_found(ledgers: list[list[int]], data: st.DataObject) -> None:
    """The entry found holds the index, over any ledgers and entry sizes."""
    log = log_of(ledgers)
    inner = log[1:-1]
    if inner:
        wanted = data.draw(st.sampled_from(inner))
        index = data.draw(st.integers(wanted.first, wanted.last))
        assert search(log, index)[0] == wanted.position


def test_even_logs_take_few_probes() -> None:
    """A hundred thousand entries of the same size in one ledger: the first interpolation finds it."""
    log = log_of([[1000] * 100_000])
    assert search(log, 55_555_555)[1] <= 2


def test_uneven_logs_take_a_logarithm_of_probes() -> None:
    """Sizes that interpolation is bad at: it is given up for halving."""
    log = log_of([[1] * 50_000 + [1000] * 50, [1] * 30_000])
    assert max(search(log, index)[1] for index in (1, 49_999, 60_000, 99_000, 120_000)) <= 30
