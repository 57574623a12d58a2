# SPDX-License-Identifier: Apache-2.0
"""The settings of the broker over HTTP, and changing those that may change while it runs.

``broker.policies.dynamic_settings`` says which they are. Source: Pulsar docs, "Admin API - brokers - dynamic
configuration".
"""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from broker_core.base.errors import NotAllowedError
from broker_core.base.settings import Settings
from broker_core.broker.policies.dynamic_settings import DYNAMIC
from broker_core.server.admin.answers import RefusedError, json_answer
from broker_core.server.admin.requests import broker_of, in_turns, part
from broker_core.server.admin.routes import Route

_STORES: Final = (
    *("zookeeperServers", "configurationStoreServers", "metadataStoreUrl", "configurationMetadataStoreUrl"),
    "ledgersRootPath",
)


async def list_dynamic(request: Request) -> Response:
    """The names of the settings that may be changed while the broker runs."""
    return json_answer(DYNAMIC)


async def get_dynamic(request: Request) -> Response:
    """The settings that were changed while the broker runs, and their values."""
    return json_answer(broker_of(request).policies.dynamic)


async def get_runtime(request: Request) -> Response:
    """All settings as they are now, as text."""
    settings = broker_of(request).policies.settings
    return json_answer(
        {field.encode_name: _text(getattr(settings, field.name)) for field in msgspec.structs.fields(Settings)}
    )


def _text(value: object) -> str:
    """A value as it is written in a file of settings."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


async def set_dynamic(request: Request) -> Response:
    """Change a setting. It holds at once, and over restarts, until it is taken back."""
    return await _changed(request, part(request, "value"))


async def remove_dynamic(request: Request) -> Response:
    """Take the change back: what the broker was started with holds again."""
    return await _changed(request, None)


async def _changed(request: Request, value: str | None) -> Response:
    name = part(request, "name")
    if name not in DYNAMIC:
        raise RefusedError(412, f"{name[:80]!r} cannot be changed while the broker runs; set it where it is started")
    await in_turns(request, broker_of(request).set_dynamic(name, value))
    return Response(status_code=200)


async def internal_configuration(request: Request) -> Response:
    """Where an Apache Pulsar keeps its metadata: empty, as nothing lies outside this broker."""
    return json_answer(dict.fromkeys(_STORES, ""))


_C = "/admin/v2/brokers/configuration"

ROUTES = [
    Route(_C, list_dynamic),
    Route(f"{_C}/values", get_dynamic),
    Route(f"{_C}/runtime", get_runtime),
    Route(f"{_C}/{{name}}", remove_dynamic, methods=["DELETE"], statuses={NotAllowedError: 412}),
    Route(f"{_C}/{{name}}/{{value:path}}", set_dynamic, methods=["POST"], statuses={NotAllowedError: 412}),
    Route("/admin/v2/brokers/internal-configuration", internal_configuration),
]
