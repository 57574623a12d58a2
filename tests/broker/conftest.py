# SPDX-License-Identifier: Apache-2.0
"""Nothing that a test started outlives it."""

from collections.abc import Iterator

import pytest

from tests.broker.world import World


@pytest.fixture(autouse=True)
def _no_world_is_left_running() -> Iterator[None]:
    yield
    while World.running:
        World.running.pop().abandon()
