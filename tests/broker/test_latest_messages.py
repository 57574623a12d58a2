# SPDX-License-Identifier: Apache-2.0
"""The last message of each key, held to a dict; and its memory."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.broker.compaction import latest_messages
from broker_core.broker.compaction.latest_messages import LatestMessages

KEYS = st.binary(max_size=2)


@given(st.lists(st.tuples(KEYS, st.booleans()), max_size=200))
def test_it_is_a_dict_of_hashes(steps: list[tuple[bytes, bool]]) -> None:
    """7.4.1: each change answers with the message before; removed keys may come again."""
    latest, model = LatestMessages(), dict[bytes, int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latest_messages, "_TABLES", 3)  # so that tables fill up and are made anew
        for index, (key, removes) in enumerate(steps):
            if removes:
                assert latest.remove(key) == model.pop(key, -1)
            else:
                assert latest.put(key, index) == model.get(key, -1)
                model[key] = index
    assert sorted(index for part in latest.parts() for index in part) == sorted(model.values())


def test_a_key_takes_some_fifty_bytes() -> None:
    """7.4.1: a million keys in some 45 MB; keys that are removed and come again take no more."""
    latest, keys = LatestMessages(), 100_000
    for round_number in range(3):
        for number in range(keys):
            latest.put(b"key-%d" % number, round_number * keys + number)
        for number in range(0, keys, 2):
            latest.remove(b"key-%d" % number)
    tables = [table for table in latest._tables if table is not None]
    taken = sum(sys.getsizeof(table.hashes) + sys.getsizeof(table.values) + sys.getsizeof(table) for table in tables)
    assert taken < 70 * keys
