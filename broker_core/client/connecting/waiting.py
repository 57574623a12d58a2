# SPDX-License-Identifier: Apache-2.0
"""Waiting for something that goes on when the wait is cut off, and telling those who wait."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from broker_core.base.errors import PulsarishError

T = TypeVar("T")


async def outcome_of(future: asyncio.Future[T]) -> T:
    """What becomes of ``future``, which goes on if this wait is cut off: others may wait for it too.

    As ``asyncio.shield``, which since Python 3.14 has a failure logged that comes after a wait was cut off, even if
    somebody else looks at it.
    """
    await asyncio.wait([future])
    return future.result()


def looked_at(future: asyncio.Future[T]) -> None:
    """Keep asyncio from logging the failure of a future that may end when no task waits for it any more. To be given to
    ``add_done_callback``; tasks that wait are told of the failure all the same."""
    if not future.cancelled():
        future.exception()


def settle(future: asyncio.Future[None], failure: PulsarishError | None) -> None:
    """Complete ``future``, unless who waited has given it up."""
    if future.done():
        return
    if failure is None:
        future.set_result(None)
    else:
        future.set_exception(failure)
