# SPDX-License-Identifier: Apache-2.0
"""Health of the broker, and where topics are. Source: Pulsar docs, "Admin API - brokers", "Lookup"."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from broker_core import __version__
from broker_core.server.admin import dynamic_configuration
from broker_core.server.admin.answers import BadRequestError, Outcome, json_answer, text_answer
from broker_core.server.admin.namespace_object import BUNDLE
from broker_core.server.admin.requests import broker_id, existing_cluster, node_of, topic_name
from broker_core.server.admin.routes import Route

_DAMAGES_MAX: Final = 100
"""Lines of a health answer; the log and the doctor have all of it."""


async def health(request: Request) -> Response:
    """ok: the event loop runs, and the process would have ended if the disk had failed. If stored data is damaged the
    answer says which; its status stays 200, for starting the broker again would not help."""
    damages = node_of(request).broker.damages
    if not damages:
        return text_answer("ok")
    places = sum([each.places for each in damages[_DAMAGES_MAX:]])
    more = [f"and {places} more"] if places else []
    return text_answer("\n".join(["damaged", *map(str, damages[:_DAMAGES_MAX]), *more]))


async def ready(request: Request) -> Response:
    """ok: clients are served."""
    return text_answer("ok")


async def list_brokers(request: Request) -> Response:
    """Host and HTTP port of the one broker that there is."""
    return json_answer([broker_id(request)])


async def list_brokers_of_cluster(request: Request) -> Response:
    """Host and HTTP port of the one broker of the cluster."""
    existing_cluster(request)
    return json_answer([broker_id(request)])


async def leader_broker(request: Request) -> Response:
    """The one broker that there is."""
    return json_answer({"serviceUrl": node_of(request).http_url, "brokerId": broker_id(request)})


async def version(request: Request) -> Response:
    """The version of this broker, not one of Apache Pulsar's."""
    return text_answer(__version__)


async def lookup_topic(request: Request) -> Response:
    """This broker, for every name in a namespace that exists. The empty TLS fields must be there for the C++ client."""
    node, name = node_of(request), topic_name(request)
    node.broker.namespaces.require(name.namespace_name)
    listener = request.query_params.get("listenerName") or request.headers.get("X-Pulsar-ListenerName")
    if listener:
        raise BadRequestError(f"this broker has no listener {listener[:80]!r}; leave out listenerName")
    ready = Outcome()  # as LOOKUP waits
    node.broker.loader.when_ready(name, ready.on_done)
    await ready.done
    return json_answer({"brokerUrl": node.service_url, "brokerUrlTls": "", "httpUrl": node.http_url, "httpUrlTls": ""})


async def lookup_bundle(request: Request) -> Response:
    """The range of hashes that the topic's bundle has: there is one bundle, of all."""
    node_of(request).broker.namespaces.require(topic_name(request).namespace_name)
    return text_answer(BUNDLE)


ROUTES = [
    Route("/admin/v2/brokers", list_brokers),
    Route("/admin/v2/brokers/health", health),
    Route("/admin/v2/brokers/ready", ready),
    Route("/admin/v2/brokers/leaderBroker", leader_broker),
    Route("/admin/v2/brokers/version", version),
    *dynamic_configuration.ROUTES,
    Route("/admin/v2/brokers/{cluster}", list_brokers_of_cluster),
    Route("/lookup/v2/topic/persistent/{tenant}/{namespace}/{topic}", lookup_topic),
    Route("/lookup/v2/topic/persistent/{tenant}/{namespace}/{topic}/bundle", lookup_bundle),
    Route("/lookup/v2/topic/non-persistent/{tenant}/{namespace}/{topic}/bundle", lookup_bundle),
    Route("/lookup/v2/topic/non-persistent/{tenant}/{namespace}/{topic}", lookup_topic),
]
