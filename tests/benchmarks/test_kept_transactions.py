# SPDX-License-Identifier: Apache-2.0
"""The benchmark of what a broker keeps of transactions, for a moment, and that it notices what comes again."""

from __future__ import annotations

import pytest

from benchmarks.kept_transactions import Work, abort, leave_pending, measure
from broker_core.client import AsyncClient


@pytest.mark.parametrize("work", [abort, leave_pending])
def test_a_restart_keeps_them(work: Work) -> None:
    """The consumer of the restarted broker does not get messages that were aborted, or are acknowledged in one."""
    found = measure(work, 300)
    assert found.items == 300
    assert min(found.rate_s, found.restart_s) > 0


def test_a_message_that_comes_is_noticed() -> None:
    """One that nobody acknowledged."""

    async def send(client: AsyncClient, items: int) -> None:
        producer = await client.create_producer("kept")
        for _ in range(items):
            await producer.send(b"")

    with pytest.raises(AssertionError, match="came again"):
        measure(send, 1)
