# SPDX-License-Identifier: Apache-2.0
"""Some random histories of a query and its administrator on every kind of broker; ``make soak`` plays thousands."""

from __future__ import annotations

from hypothesis.stateful import run_state_machine_as_test

from tests.spark.brokers import Broker
from tests.spark.cell_machine import CELL_MACHINES


def test_what_was_sent_is_read_or_what_is_missing_is_named(cell: Broker) -> None:
    """Whatever is unloaded, deleted, made anew, trimmed, skipped, expired, reset or grown; nothing else is an error."""
    machine = CELL_MACHINES[cell.kind]
    with machine.on(cell):
        run_state_machine_as_test(machine, settings=machine.TestCase.settings)
