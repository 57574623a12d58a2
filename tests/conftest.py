# SPDX-License-Identifier: Apache-2.0
"""What tests of several folders share: how they are spread over worker processes, and a real Apache Pulsar."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.apache_pulsar.start import ApachePulsar, UnavailableError, running

# How long an example takes says more about the machine's other work than about the code.
settings.register_profile("without_deadline", deadline=None)
settings.load_profile("without_deadline")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together what shares something expensive, for ``pytest -n 2 --dist loadgroup``.

    Everything with Spark runs in one worker on one session, everything with a real Pulsar on one Pulsar; other tests
    stay with their file, whose fixtures then start once.
    """
    for item in items:
        shared = next((name for name in ("spark", "pulsar") if item.get_closest_marker(name)), None)
        item.add_marker(pytest.mark.xdist_group(shared or item.nodeid.partition("::")[0]))


@pytest.fixture(scope="session")
def apache_pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApachePulsar]:
    """A real Apache Pulsar; tests that use it have the marker ``pulsar``. Skips where there is no Java or Maven."""
    try:
        with running(tmp_path_factory.mktemp("apache-pulsar")) as pulsar:
            yield pulsar
    except UnavailableError as missing:
        pytest.skip(str(missing))
