# SPDX-License-Identifier: Apache-2.0
"""``Route``: a path of the admin REST, with the statuses under which it answers errors of the broker.

Pulsar answers the same kind of error with different statuses on different paths, so a route may state its own; all
other errors have the usual status of their kind (``answers``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from starlette import routing
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from broker_core.base.errors import PulsarishError

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
"""What answers a request."""

Statuses: TypeAlias = Mapping[type[PulsarishError], int]

_USUAL: Final[Statuses] = MappingProxyType({})
_IN_SCOPE: Final = "pulsarish.statuses"


class Route(routing.Route):
    """``statuses``: of errors that the broker raises while ``endpoint`` works."""

    def __init__(
        self, path: str, endpoint: Handler, *, methods: Sequence[str] | None = None, statuses: Statuses = _USUAL
    ) -> None:
        super().__init__(path, endpoint, methods=methods)
        self.statuses = statuses

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[_IN_SCOPE] = self.statuses
        await super().handle(scope, receive, send)


def statuses_of(request: Request) -> Statuses:
    """The statuses of the route that answers ``request``."""
    statuses: Statuses = request.scope.get(_IN_SCOPE, _USUAL)
    return statuses
