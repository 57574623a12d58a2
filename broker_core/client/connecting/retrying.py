# SPDX-License-Identifier: Apache-2.0
"""Trying again: how long to wait between attempts, and when to stop.

Owns the backoff and the rule which failures are worth another attempt. Knows nothing of what is attempted.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from broker_core.base.errors import (
    AuthorizationError,
    ConnectionLostError,
    ConsumerBusyError,
    OperationTimeoutError,
    ProducerBlockedQuotaException,
    ProducerBusyError,
    PulsarishError,
    ServerError,
)
from broker_core.client.connecting.chance import CHANCE

T = TypeVar("T")

_PASSES_BY: Final = (ConsumerBusyError, ProducerBusyError, ProducerBlockedQuotaException)
"""Errors that pass: until the broker has noticed that our former connection is dead, we stand in our own way; and a
backlog that exceeds its quota is consumed in the end."""


class Backoff:
    """Waiting times that double from ``first_s`` to ``max_s``, each up to a tenth shorter by chance.

    The chance keeps a thousand clients of a restarted broker from coming back in the same instant.
    """

    __slots__ = ("_first_s", "_max_s", "_next_s")

    def __init__(self, first_s: float, max_s: float) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._next_s = first_s

    def next_s(self) -> float:
        """The next waiting time, in seconds."""
        wait = self._next_s
        self._next_s = min(2 * wait, self._max_s)
        return wait * CHANCE.uniform(0.9, 1.0)

    def reset(self) -> None:
        """Begin again with the shortest."""
        self._next_s = self._first_s


def worth_retrying(failure: PulsarishError, *, attached_before: bool) -> bool:
    """Whether the same request may succeed later; ``attached_before``: it has succeeded once."""
    # A bare ServerError is the protocol's UnknownError: nothing says that it lasts.
    return failure.retriable or type(failure) is ServerError or (
        attached_before and isinstance(failure, _PASSES_BY)
    )  # fmt: skip


def explained(failure: PulsarishError, task: str) -> PulsarishError:
    """``failure`` for people: a broker that does not allow something does not say what was tried, nor what to do."""
    if not isinstance(failure, AuthorizationError):
        return failure
    return AuthorizationError(
        f"this client is not allowed to {task}: {failure.message}",
        hint="who administers the namespace can grant the right to this role: pulsar-admin namespaces grant-permission",
    )


async def retrying(attempt: Callable[[], Awaitable[T]], task: str, timeout_s: float, backoff: Backoff) -> T:
    """The result of ``attempt``, repeated while its failure is worth it, for ``timeout_s`` (math.inf: for ever).

    ``task``: what the attempt is to do, as its errors say it behind "cannot": a verb and its object.

    Raises the last failure, its text telling how long was tried; OperationTimeoutError if no attempt ever ended.
    """
    last: PulsarishError | None = None
    try:
        async with asyncio.timeout(None if timeout_s == math.inf else timeout_s):
            while True:
                try:
                    return await attempt()
                except PulsarishError as failure:
                    if not worth_retrying(failure, attached_before=False):
                        raise explained(failure, task) from failure
                    last = failure
                await asyncio.sleep(backoff.next_s())
    except TimeoutError:
        raise _given_up(task, timeout_s, last) from last


def _given_up(task: str, timeout_s: float, last: PulsarishError | None) -> PulsarishError:
    if last is None:
        return OperationTimeoutError(f"cannot {task}: no answer came in {timeout_s:g} s")
    if isinstance(last, ConnectionLostError | OperationTimeoutError):
        return type(last)(f"cannot {task}: {last.message} (tried for {timeout_s:g} s)", hint=last.hint)
    return OperationTimeoutError(
        f"cannot {task}: no attempt succeeded in {timeout_s:g} s, the last answer was: {last.message}"
    )
