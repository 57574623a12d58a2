# SPDX-License-Identifier: Apache-2.0
"""The border of the admin REST: a request whose client lacks the right never reaches its handler.

The role is the one that the client proved (``scope["identity"]``). A proxy names the role that it speaks for in
X-Original-Principal; from anybody else that header must be absent, or name the role itself. Every refusal, and every
change with the status of its answer, is told to the audit log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from broker_core.server.admin.answers import refusal
from broker_core.server.security.authorization import Caller
from broker_core.server.security.gate import Asking, Gate
from broker_core.server.security.identity import Identity
from broker_core.server.security.rights import Need, Resource, Right

R = TypeVar("R", bound=Request)

_ORIGINAL: Final = "x-original-principal"

_READING: Final = ("GET", "HEAD")

_UNAUTHORIZED: Final = 401
_FAILED: Final = 500


async def let_pass(
    gate: Gate,
    need: Need,
    resource: Resource,
    request: R,
    answered: Callable[[R], Awaitable[Response]],
    *,
    owner: str | None = None,
) -> Response:
    """The answer of the handler, or the refusal for a lack of rights. ``owner``: the role whose transaction the path
    names; all other roles must be superusers, whether it exists or not."""
    asking = _asking(request)
    caller: Caller | None = None
    identity: Identity | None = request.scope.get("identity")
    if identity is not None and need.right is not Right.NONE:
        original = request.headers.get(_ORIGINAL, "")
        caller = gate.authorization.caller(identity, original)
        if caller is None:
            gate.refused(Caller(identity.role, original), need, resource, asking)
            return refusal(_UNAUTHORIZED, "Invalid roles.")
    if need.right is Right.OWNER and (caller is None or (caller.original or caller.role) != owner):
        need = replace(need, right=Right.SUPERUSER)
    if reason := gate.refusal(caller, need, resource, asking):
        return refusal(need.status or _UNAUTHORIZED, reason)
    if request.method in _READING:
        return await answered(request)
    status = _FAILED
    try:
        answer = await answered(request)
        status = answer.status_code
    finally:
        gate.changed(caller, need, resource, asking, status)
    return answer


def _asking(request: Request) -> Asking:
    client = request.client
    address = f"{client.host}:{client.port}" if client else ""
    return Asking(address, request.method, str(request.scope["path"]))
