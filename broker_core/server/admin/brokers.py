# SPDX-License-Identifier: Apache-2.0
"""Health of the broker, and where topics are. Source: Pulsar docs, "Admin API - brokers", "Lookup"."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Final

from starlette.responses import Response

from broker_core import __version__
from broker_core.base.errors import NotAllowedError
from broker_core.base.settings import shown
from broker_core.broker.cluster_settings import OF_CLUSTERS
from broker_core.broker.policy_book import DYNAMIC
from broker_core.server.admin.answers import BadRequestError, RefusedError, begun, text_answer
from broker_core.server.admin.namespace_object import BUNDLE
from broker_core.server.admin.requests import AdminRequest, Route
from broker_core.server.security import needs
from broker_core.server.security.rights import Right
from broker_core.storage.report import Damage

_DAMAGES_MAX: Final = 100
"""Lines of a health answer; the log and the doctor have all of it."""

_HOLDING_MAX: Final = 20
"""Likewise of transactions; `pulsarish txn list` has all."""

_STORES: Final = (
    *("zookeeperServers", "configurationStoreServers", "metadataStoreUrl", "configurationMetadataStoreUrl"),
    "ledgersRootPath",
)


async def health(request: AdminRequest) -> object:
    """ok: the event loop runs, and the process would have ended if the disk had failed. If stored data is damaged the
    answer says which; its status stays 200, for starting the broker again would not help. Lines behind the first also
    tell of transactions that have been open for a minute and hold the readers of topics back."""
    broker = request.node.broker
    return text_answer("\n".join([*_condition(broker.damages), *map(str, islice(broker.held_topics, _HOLDING_MAX))]))


def _condition(damages: Sequence[Damage]) -> list[str]:
    if not damages:
        return ["ok"]
    places = sum([each.places for each in damages[_DAMAGES_MAX:]])
    more = [f"and {places} more"] if places else []
    return ["damaged", *map(str, damages[:_DAMAGES_MAX]), *more]


async def ready(request: AdminRequest) -> object:
    """ok: clients are served."""
    return text_answer("ok")


async def list_brokers(request: AdminRequest) -> object:
    """Host and HTTP port of the one broker that there is."""
    return [request.broker_id]


async def list_brokers_of_cluster(request: AdminRequest) -> object:
    """Host and HTTP port of the one broker of the cluster."""
    request.existing_cluster()
    return [request.broker_id]


async def leader_broker(request: AdminRequest) -> object:
    """The one broker that there is."""
    return {"serviceUrl": request.node.http_url or request.node.http_url_tls, "brokerId": request.broker_id}


async def version(request: AdminRequest) -> object:
    """The version of this broker, not one of Apache Pulsar's."""
    return text_answer(__version__)


async def lookup_topic(request: AdminRequest) -> object:
    """This broker, for every name in a namespace that exists. All fields must be there for the C++ client; the URL of a
    port that there is not is empty."""
    node, name = request.node, request.topic_name
    node.broker.namespaces.require(name.namespace_name)
    listener = request.query_params.get("listenerName") or request.headers.get("X-Pulsar-ListenerName")
    if listener:
        raise BadRequestError(f"this broker has no listener {listener[:80]!r}; leave out listenerName")
    await begun(partial(node.broker.loader.when_ready, name))  # as LOOKUP waits
    return {
        "brokerUrl": node.service_url,
        "brokerUrlTls": node.service_url_tls,
        "httpUrl": node.http_url,
        "httpUrlTls": node.http_url_tls,
    }


async def lookup_bundle(request: AdminRequest) -> object:
    """The range of hashes that the topic's bundle has: there is one bundle, of all."""
    request.node.broker.namespaces.require(request.topic_name.namespace_name)
    return text_answer(BUNDLE)


# -- settings, and changing those that may change while the broker runs (``broker.policies.dynamic_settings``)


async def list_dynamic(request: AdminRequest) -> object:
    """The names of the settings that may be changed while the broker runs, and of those that only a cluster uses: they
    are kept and shown, without effect."""
    return sorted({*DYNAMIC, *OF_CLUSTERS})


async def get_dynamic(request: AdminRequest) -> object:
    """The settings that were changed while the broker runs, and their values."""
    return request.broker.policies.dynamic


async def get_runtime(request: AdminRequest) -> object:
    """All settings as they are now, as text; those that may be secret as ***."""
    return {name: _text(value) for name, value in shown(request.broker.policies.settings).items()}


def _text(value: object) -> str:
    """A value as it is written in a file of settings."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


async def set_dynamic(request: AdminRequest) -> object:
    """Change a setting. It holds at once, and over restarts, until it is taken back."""
    return await _changed(request, request.part("value"))


async def remove_dynamic(request: AdminRequest) -> object:
    """Take the change back: what the broker was started with holds again."""
    return await _changed(request, None)


async def _changed(request: AdminRequest, value: str | None) -> object:
    name = request.part("name")
    if hint := _OF_THE_WHOLE_BROKER.get(name):
        raise RefusedError(412, f"{name!r} is a rate of the whole broker, which has none; {hint}")
    if name not in DYNAMIC and name not in OF_CLUSTERS:
        raise RefusedError(412, f"{name[:80]!r} cannot be changed while the broker runs; set it where it is started")
    await request.in_turns(request.broker.set_dynamic(name, value))
    return Response(status_code=200)


_OF_THE_WHOLE_BROKER: Final = {
    **dict.fromkeys(
        ("brokerPublisherThrottlingMaxMessageRate", "brokerPublisherThrottlingMaxByteRate"),
        "set maxPublishRatePerTopicInMessages or maxPublishRatePerTopicInBytes",
    ),
    **dict.fromkeys(
        ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"),
        "set dispatchThrottlingRatePerTopicInMsg or dispatchThrottlingRatePerTopicInByte",
    ),
    "dispatchThrottlingRateRelativeToPublishRate": "set rates as numbers",
}
"""Settings of Apache Pulsar that are refused -> those to use instead."""


async def internal_configuration(request: AdminRequest) -> object:
    """Metadata stores of an Apache Pulsar: empty, as nothing lies outside this broker."""
    return dict.fromkeys(_STORES, "")


_C = "/admin/v2/brokers/configuration"
_L = "/lookup/v2/topic"
_T = "{tenant}/{namespace}/{topic}"
_LOOKUP = needs.of_topic("LOOKUP", Right.LOOKUP)
_BUNDLE = needs.of_namespace("GET_BUNDLE", Right.USE_NAMESPACE)

ROUTES = [
    Route("/admin/v2/brokers", list_brokers, needs.of_brokers("LIST_BROKERS")),
    Route("/admin/v2/brokers/health", health, needs.of_brokers("HEALTH_CHECK")),
    Route("/admin/v2/brokers/ready", ready, needs.FREE),
    Route("/admin/v2/brokers/leaderBroker", leader_broker, needs.of_brokers("GET_LEADER_BROKER")),
    Route("/admin/v2/brokers/version", version, needs.FREE),
    Route(_C, list_dynamic, needs.of_brokers("LIST_DYNAMIC_CONFIGURATIONS")),
    Route(f"{_C}/values", get_dynamic, needs.of_brokers("LIST_DYNAMIC_CONFIGURATIONS")),
    Route(f"{_C}/runtime", get_runtime, needs.of_brokers("LIST_RUNTIME_CONFIGURATIONS")),
    Route(
        f"{_C}/{{name}}",
        remove_dynamic,
        needs.of_brokers("DELETE_DYNAMIC_CONFIGURATION"),
        methods=["DELETE"],
        statuses={NotAllowedError: 412},
    ),
    Route(
        f"{_C}/{{name}}/{{value:path}}",
        set_dynamic,
        needs.of_brokers("UPDATE_DYNAMIC_CONFIGURATION"),
        methods=["POST"],
        statuses={NotAllowedError: 412},
    ),
    Route(
        "/admin/v2/brokers/internal-configuration",
        internal_configuration,
        needs.of_brokers("GET_INTERNAL_CONFIGURATION_DATA"),
    ),
    Route("/admin/v2/brokers/{cluster}", list_brokers_of_cluster, needs.of_brokers("LIST_BROKERS")),
    Route(f"{_L}/persistent/{_T}", lookup_topic, _LOOKUP),
    Route(f"{_L}/persistent/{_T}/bundle", lookup_bundle, _BUNDLE),
    Route(f"{_L}/non-persistent/{_T}/bundle", lookup_bundle, _BUNDLE),
    Route(f"{_L}/non-persistent/{_T}", lookup_topic, _LOOKUP),
]
