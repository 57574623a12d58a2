# SPDX-License-Identifier: Apache-2.0
"""What tests of several folders share: how they are spread over worker processes."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together what shares something expensive, for ``pytest -n 2 --dist loadgroup``.

    Everything with Spark runs in one worker on one session, everything with a real Pulsar on one Pulsar; other tests stay
    with their file, whose fixtures then start once.
    """
    for item in items:
        shared = next((name for name in ("spark", "pulsar") if item.get_closest_marker(name)), None)
        item.add_marker(pytest.mark.xdist_group(shared or item.nodeid.partition("::")[0]))
