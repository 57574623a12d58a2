# SPDX-License-Identifier: Apache-2.0
"""Health of the broker, and where topics are. Source: Pulsar docs, "Admin API - brokers", "Lookup"."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker_core.server.admin.answers import json_answer, text_answer
from broker_core.server.admin.requests import node_of, topic_name


async def health(request: Request) -> Response:
    """ok: the event loop runs, and the process would have ended if the disk had failed."""
    return text_answer("ok")


async def lookup_topic(request: Request) -> Response:
    """This broker, for every valid name. The empty TLS fields must be there for the C++ client."""
    topic_name(request)
    node = node_of(request)
    return json_answer({"brokerUrl": node.service_url, "brokerUrlTls": "", "httpUrl": node.http_url, "httpUrlTls": ""})


ROUTES = [
    Route("/admin/v2/brokers/health", health),
    Route("/lookup/v2/topic/persistent/{tenant}/{namespace}/{topic}", lookup_topic),
    Route("/lookup/v2/topic/non-persistent/{tenant}/{namespace}/{topic}", lookup_topic),
]
