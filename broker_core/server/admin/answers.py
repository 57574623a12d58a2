# SPDX-License-Identifier: Apache-2.0
"""Answers of the admin REST: JSON, and errors as ``{"reason": ...}`` under Pulsar's status codes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from broker_core.base.errors import (
    ConsumerBusyError,
    InvalidTopicNameError,
    NotAllowedError,
    PulsarishError,
    ServerError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
    UsageError,
)
from broker_core.broker.directory.topic_registry import NamespaceFullError

R = TypeVar("R")

_USUAL_STATUSES: Final[Mapping[type, int]] = {
    InvalidTopicNameError: 412,
    TopicNotFoundError: 404,
    SubscriptionNotFoundError: 404,
    ConsumerBusyError: 412,
    NamespaceFullError: 409,
    NotAllowedError: 405,
    UsageError: 400,
}

_PARTS_AT_A_TIME: Final = 64
"""Parts of a long answer that are handed to the connection together, some 200 KB."""


class RefusedError(Exception):
    """A request that is answered with ``status`` and a reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


ConflictError = partial(RefusedError, 409)
"""Refusal to create a thing that exists already, or to begin one that is under way."""

MissingError = partial(RefusedError, 404)
"""Refusal because nothing has the name that was asked for."""

BadRequestError = partial(RefusedError, 400)
"""The body or a parameter cannot be read."""


def begun(begin: Callable[[Callable[[Any], None]], object]) -> asyncio.Future[Any]:
    """The result of a change, as something to wait for; a refusal is raised. ``begin`` begins it at once and is given
    what the broker is to call with its outcome."""
    result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def on_done(outcome: object) -> None:
        if result.done():
            return
        if isinstance(outcome, PulsarishError):
            result.set_exception(outcome)
            result.exception()  # looked at: the request may have failed before it waits
        else:
            result.set_result(outcome)

    begin(on_done)
    return result


async def results_of(changes: Iterable[asyncio.Future[R]]) -> list[R]:
    """The results of changes, the first refusal once all are done. All were begun before the first wait: between two
    waits any topic may be unloaded.

    The same commit, in one turn of the loop, may complete very many of them: ``gather`` would then run code for each.
    """
    results: list[R] = []
    refusals: list[ServerError] = []
    for change in list(changes):
        try:
            results.append(await change)
        except ServerError as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]
    return results


def json_answer(value: object, status: int = 200) -> Response:
    """``value`` as JSON; anything that msgspec can encode."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def json_field(name: str, value: object) -> bytes:
    """A name and its value as JSON: a part of an object."""
    return msgspec.json.encode(name) + b":" + msgspec.json.encode(value)


class LongJsonAnswer(Response):
    """The object ``about`` with one field more, ``under``: an object of ``parts``, each a ``json_field``.
    Of very many parts the answer is many MiB, which are never put together."""

    def __init__(self, about: dict[str, Any], parts: Sequence[bytes], *, under: str) -> None:
        self._begin, self._end = msgspec.json.encode({**about, under: {}})[:-2], b"}}"
        self._parts = parts
        size = len(self._begin) + sum(map(len, parts)) + max(0, len(parts) - 1) + len(self._end)
        super().__init__(headers={"content-length": str(size)}, media_type="application/json")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        before = self._begin
        for start in range(0, len(self._parts), _PARTS_AT_A_TIME):
            some = b",".join(self._parts[start : start + _PARTS_AT_A_TIME])
            await send({"type": "http.response.body", "body": before + some, "more_body": True})
            await asyncio.sleep(0)  # send() does not wait while the client reads fast: others have their turn here
            before = b","
        end = self._end if self._parts else self._begin + self._end
        await send({"type": "http.response.body", "body": end, "more_body": False})


def text_answer(text: str) -> Response:
    """Plain text."""
    return Response(text, media_type="text/plain")


def refusal(status: int, reason: str) -> Response:
    """An error with its reason."""
    return json_answer({"reason": reason}, status)


def status_of(error: PulsarishError, of_route: Mapping[type[PulsarishError], int]) -> int:
    """The HTTP status under which an error of the broker is answered: what is stated for its nearest class, by the
    route or for all routes."""
    for kind in type(error).__mro__:
        status = of_route.get(kind) or _USUAL_STATUSES.get(kind)
        if status is not None:
            return status
    return 503 if error.retriable else 500
