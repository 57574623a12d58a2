# SPDX-License-Identifier: Apache-2.0
"""Clients take no chance from the program's own generator."""

from __future__ import annotations

import random

from broker_core.client.connecting.retrying import Backoff


def test_waiting_takes_nothing_from_the_generator_of_the_program() -> None:
    """A client that looks for its broker in another thread would change what a seeded program gets."""
    backoff = Backoff(1.0, 60.0)
    before = random.getstate()
    waits = [backoff.next_s() for _ in range(6)]
    assert random.getstate() == before
    assert all(0.9 * 2**each <= wait <= 2**each for each, wait in enumerate(waits))
