# SPDX-License-Identifier: Apache-2.0
"""The servers of the client's tests, the behaviour suite's Java and Go client, and the codec as plain Python."""

from tests.behaviour.conftest import go_driver, java_driver  # noqa: F401 - fixtures
from tests.client.conftest import service  # noqa: F401 - a fixture
from tests.wire.conftest import plain_batch  # noqa: F401 - a fixture
