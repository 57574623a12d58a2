# SPDX-License-Identifier: Apache-2.0
"""Random histories of a whole broker, without what its sisters add (I1 to I4, I7.1)."""

from __future__ import annotations

from hypothesis import settings

from tests.broker.whole.machine import WholeBrokerMachine

TestWholeBroker = WholeBrokerMachine.TestCase
TestWholeBroker.settings = settings(
    max_examples=50, stateful_step_count=100, deadline=None, derandomize=True, print_blob=True
)
