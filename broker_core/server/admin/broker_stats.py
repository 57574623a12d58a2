# SPDX-License-Identifier: Apache-2.0
"""``broker-stats``: figures of the broker, of each namespace and of each loaded topic, as older tools ask for them.

They are those of ``/metrics`` and of the statistics of topics, under the names that Pulsar has for them here; what its
Java, Netty and bookies would tell is empty, for there are none. Answers about very many topics are made in steps and
sent in pieces. Source: Pulsar docs, "Admin API - broker stats"; ``NamespaceStats`` and ``LocalBrokerData``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from typing import Any, Final, TypeAlias

import msgspec

from broker_core import __version__
from broker_core.base.names import NamespaceName
from broker_core.broker.metrics import TopicFigures, observe_passing_topic, observe_subscription, observe_topic
from broker_core.broker.non_persistent.topic import NonPersistentTopic
from broker_core.broker.stats import non_persistent_topic_stats, topic_stats_in_steps
from broker_core.broker.topic import Topic
from broker_core.server.admin.answers import RefusedError
from broker_core.server.admin.metrics import in_pieces, observe_broker
from broker_core.server.admin.namespace_object import BUNDLE
from broker_core.server.admin.requests import AdminRequest, Route
from broker_core.server.admin.statistics import OF_TOPICS
from broker_core.server.security import needs
from broker_core.server.session import Node

_JSON: Final = "application/json"

_TOPICS_A_STEP: Final = 500
"""To sort one takes some microseconds."""

_ALLOCATORS: Final = ("default", "ml-cache")

Json: TypeAlias = dict[str, Any]
AnyTopic: TypeAlias = Topic | NonPersistentTopic


# -- all loaded topics, by namespace


def _loaded(node: Node) -> Iterator[AnyTopic]:
    """Every loaded topic, stored or not."""
    return chain(node.broker.registry.loaded_topics(), list(node.broker.non_persistent.all()))


def _by_namespace(node: Node) -> Generator[None, None, dict[NamespaceName, list[AnyTopic]]]:
    found: dict[NamespaceName, list[AnyTopic]] = {}
    for number, topic in enumerate(_loaded(node)):
        found.setdefault(topic.name.namespace_name, []).append(topic)
        if not number % _TOPICS_A_STEP:
            yield
    return found


def _figures_in_steps(node: Node, topics: Iterable[AnyTopic]) -> Generator[None, None, list[TopicFigures]]:
    """The figures of those of ``topics`` that are still loaded."""
    figures = []
    for topic in topics:
        if isinstance(topic, NonPersistentTopic):
            figures.append(observe_passing_topic(topic))
        elif not topic.closed:
            subscriptions = [observe_subscription(each) for each in list(topic.subscriptions.values())]
            figures.append(observe_topic(topic, subscriptions, node.figures.backlog_ages))
        yield
    return figures


def _sum(figures: Iterable[TopicFigures], field: str) -> Any:
    return sum([getattr(each, field) for each in figures])


# -- metrics


_OF_NAMESPACES: Final = {
    "brk_in_rate": "rate_in",
    "brk_in_tp_rate": "throughput_in",
    "brk_out_rate": "rate_out",
    "brk_out_tp_rate": "throughput_out",
    "brk_storage_size": "storage_size",
    "brk_no_of_producers": "producers_count",
    "brk_no_of_subscriptions": "subscriptions_count",
    "brk_no_of_consumers": "consumers_count",
    "brk_msg_backlog": "msg_backlog",
}
"""Pulsar's metric of a namespace -> figure of a topic that is added up."""


async def get_metrics(request: AdminRequest) -> object:
    """Figures of the broker, and of the loaded topics of each namespace added up."""
    return await request.in_turns(_metrics(request.node))


def _metrics(node: Node) -> Generator[None, None, list[Json]]:
    of_broker = observe_broker(node)
    cluster = node.settings.cluster_name
    numbers = {f"pulsarish_{name}": value for name, value in of_broker._asdict().items() if _is_number(value)}
    found: list[Json] = [{"metrics": numbers, "dimensions": {"cluster": cluster, "metric": "broker"}}]
    for namespace, topics in (yield from _by_namespace(node)).items():
        figures = yield from _figures_in_steps(node, topics)
        sums = {name: _sum(figures, field) for name, field in _OF_NAMESPACES.items()}
        about = {"cluster": cluster, "namespace": str(namespace)}
        found.append({"metrics": {**sums, "brk_no_of_topics": len(figures)}, "dimensions": about})
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


async def get_mbeans(request: AdminRequest) -> object:
    """None: this broker does not run in a Java."""
    return []


# -- topics


async def get_topics(request: AdminRequest) -> object:
    """The statistics of every loaded topic, by namespace, bundle and kind."""
    return await in_pieces(request, _topics(request.node, request.broker_id), _JSON)


def _topics(node: Node, owner: str) -> Generator[None, None, list[bytes]]:
    pieces: list[bytes] = []
    for namespace, topics in (yield from _by_namespace(node)).items():
        head = b"," if pieces else b""
        pieces.append(head + msgspec.json.encode(str(namespace)) + b":{" + msgspec.json.encode(BUNDLE) + b":{")
        kinds = []
        for kind in ("persistent", "non-persistent"):
            of_kind = [topic for topic in topics if topic.name.persistent == (kind == "persistent")]
            kinds.append((kind, (yield from _statistics(of_kind, owner))))
        pieces += _joined([_object(kind, parts) for kind, parts in kinds if parts])
        pieces.append(b"}}")
    return [b"{", *pieces, b"}"]


_COUNTS: Final = {
    "msgInCount": "msgInCounter",
    "bytesInCount": "bytesInCounter",
    "msgOutCount": "msgOutCounter",
    "bytesOutCount": "bytesOutCounter",
}
"""Names of counters here -> those of the statistics of a topic, which are there too."""


def _statistics(topics: list[AnyTopic], owner: str) -> Generator[None, None, list[bytes]]:
    """The fields of an object: each topic with its statistics."""
    fields = []
    for topic in topics:
        if isinstance(topic, NonPersistentTopic):
            stats: Any = non_persistent_topic_stats(topic)
        elif topic.closed:
            continue
        else:
            stats = yield from topic_stats_in_steps(topic)
        shown = {**OF_TOPICS, "ownerBroker": owner, **msgspec.to_builtins(stats)}
        shown["producerCount"] = len(shown["publishers"])
        shown |= {name: shown[counter] for name, counter in _COUNTS.items()}
        fields.append(msgspec.json.encode(str(topic.name)) + b":" + msgspec.json.encode(shown))
        yield
    return fields


def _object(name: str, fields: list[bytes]) -> list[bytes]:
    return [msgspec.json.encode(name) + b":{", *_joined([[field] for field in fields]), b"}"]


def _joined(parts: list[list[bytes]]) -> list[bytes]:
    """All pieces of ``parts``, with a comma between two parts."""
    pieces: list[bytes] = []
    for part in parts:
        pieces += [b"," + part[0], *part[1:]] if pieces else part
    return pieces


# -- load


async def get_load(request: AdminRequest) -> object:
    """The load of this broker: its addresses, rates and counts, in all and for the bundle of each namespace. CPU,
    memory and network of the machine are left out."""
    return await request.in_turns(_load(request.node))


_OF_BUNDLES: Final = {
    "msgRateIn": "rate_in",
    "msgThroughputIn": "throughput_in",
    "msgRateOut": "rate_out",
    "msgThroughputOut": "throughput_out",
    "consumerCount": "consumers_count",
    "producerCount": "producers_count",
}


def _load(node: Node) -> Generator[None, None, Json]:
    bundles: dict[str, Json] = {}
    for namespace, topics in (yield from _by_namespace(node)).items():
        figures = yield from _figures_in_steps(node, topics)
        sums: Json = {name: _sum(figures, field) for name, field in _OF_BUNDLES.items()}
        bundles[f"{namespace}/{BUNDLE}"] = {**sums, "topics": len(figures), "cacheSize": 0}
    total = {name: sum([each[name] for each in bundles.values()]) for name in (*_OF_BUNDLES, "topics")}
    return {
        "webServiceUrl": node.http_url,
        "webServiceUrlTls": node.http_url_tls,
        "pulsarServiceUrl": node.service_url,
        "pulsarServiceUrlTls": node.service_url_tls,
        "persistentTopicsEnabled": True,
        "nonPersistentTopicsEnabled": True,
        **{name: total[name] for name in ("msgRateIn", "msgThroughputIn", "msgRateOut", "msgThroughputOut")},
        "lastUpdate": node.clock.now_ms(),
        "lastStats": bundles,
        "numTopics": total["topics"],
        "numBundles": len(bundles),
        "numConsumers": total["consumerCount"],
        "numProducers": total["producerCount"],
        "bundles": list(bundles),
        "lastBundleGains": [],
        "lastBundleLosses": [],
        "brokerVersionString": __version__,
        "protocols": {},
        "loadReportType": "LocalBrokerData",
    }


# -- parts that this broker does not have


async def get_allocator(request: AdminRequest) -> object:
    """Arenas of an allocator of Netty's, default or ml-cache: there are none; 406 for another name."""
    if (name := request.part("allocator")) not in _ALLOCATORS:
        raise RefusedError(406, f"there is no allocator {name[:80]!r}; it is {' or '.join(_ALLOCATORS)}")
    counts = ("numDirectArenas", "numHeapArenas", "numThreadLocalCaches")
    sizes = ("normalCacheSize", "smallCacheSize")
    return {**dict.fromkeys((*counts, *sizes), 0), "directArenas": [], "heapArenas": []}


_S: Final = "/admin/v2/broker-stats"

ROUTES: Final = [
    Route(f"{_S}/metrics", get_metrics, needs.SUPERUSER),
    Route(f"{_S}/mbeans", get_mbeans, needs.SUPERUSER),
    Route(f"{_S}/topics", get_topics, needs.SUPERUSER),
    Route(f"{_S}/load-report", get_load, needs.SUPERUSER),
    Route(f"{_S}/allocator-stats/{{allocator}}", get_allocator, needs.SUPERUSER),
]
