# SPDX-License-Identifier: Apache-2.0
"""``/metrics``: the figures of the broker and of all loaded topics as OpenMetrics text. docs/metrics.md lists them.

A scrape takes turns with all other work, a topic or subscription in each step. An answer about very many topics is
long, so few are made or read at a time.
Source: Pulsar docs, "Pulsar metrics".
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator, Mapping
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from broker_core.base.metrics import Metric, metrics_of
from broker_core.base.names import NamespaceName
from broker_core.broker.metrics import (
    CompactionFigures,
    NamespaceFigures,
    SubscriptionFigures,
    TopicFigures,
    observe_compaction,
    observe_passing_subscription,
    observe_passing_topic,
    observe_subscription,
    observe_topic,
)
from broker_core.broker.non_persistent.topic import NonPersistentTopic
from broker_core.broker.topic import Topic
from broker_core.server.admin.answers import RefusedError
from broker_core.server.admin.openmetrics import MEDIA_TYPE, Exposition, Table, label
from broker_core.server.admin.requests import AdminRequest, Route
from broker_core.server.figures import BrokerFigures, Figures
from broker_core.server.security import needs
from broker_core.server.session import Node

READERS_MAX: Final = 4
"""Clients that are answered at a time; of 10,000 topics with a subscription each, an answer is 40 MB."""

LABELS: Final[Mapping[type[Any], tuple[str, ...]]] = {
    NamespaceFigures: ("cluster", "namespace"),
    TopicFigures: ("cluster", "namespace", "topic"),
    CompactionFigures: ("cluster", "namespace", "topic"),
    SubscriptionFigures: ("cluster", "namespace", "topic", "subscription"),
    BrokerFigures: ("cluster",),
}
"""The labels of every class of figures."""

METRICS: Final[Mapping[type[Any], tuple[Metric, ...]]] = {figures: metrics_of(figures) for figures in LABELS}


class Scrape:
    """One scrape of ``node``."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._exposition = Exposition(METRICS)
        self._topics = self._exposition[TopicFigures]
        self._compactions = self._exposition[CompactionFigures]
        self._subscriptions = self._exposition[SubscriptionFigures]
        self._cluster = label("cluster", node.settings.cluster_name)
        self._counted: Counter[NamespaceName] = Counter()

    def in_steps(self) -> Generator[None, None, list[bytes]]:
        """The text, in pieces."""
        for topic in self._node.broker.registry.loaded_topics():
            if not topic.closed:
                yield from self._add_topic(topic)
        for passing in self._node.broker.non_persistent.all():
            yield from self._add_passing(passing)
        for namespace, count in self._counted.items():
            labels = f"{self._cluster},{label('namespace', str(namespace))}"
            self._exposition[NamespaceFigures].add(labels, NamespaceFigures(count))
        self._exposition[BrokerFigures].add(self._cluster, observe_broker(self._node))
        return (yield from self._exposition.pieces_in_steps())

    def _add_topic(self, topic: Topic) -> Generator[None, None, None]:
        labels = self._labels_of(topic)
        found: list[SubscriptionFigures] = []
        for name, subscription in list(topic.subscriptions.items()):
            figures = observe_subscription(subscription)
            found.append(figures)
            yield from self._add_subscription(labels, name, figures)
        if topic.compaction.has_cursor:
            yield from self._add(self._compactions, labels, observe_compaction(topic.compaction))
        if not topic.closed:
            yield from self._add(self._topics, labels, observe_topic(topic, found, self._node.figures.backlog_ages))

    def _add_passing(self, topic: NonPersistentTopic) -> Generator[None, None, None]:
        labels = self._labels_of(topic)
        for name, subscription in list(topic.subscriptions.items()):
            yield from self._add_subscription(labels, name, observe_passing_subscription(subscription))
        yield from self._add(self._topics, labels, observe_passing_topic(topic))

    def _add_subscription(self, labels: str, name: str, figures: SubscriptionFigures) -> Generator[None, None, None]:
        return self._add(self._subscriptions, f"{labels},{label('subscription', name)}", figures)

    def _add(
        self, table: Table, labels: str, figures: TopicFigures | CompactionFigures | SubscriptionFigures
    ) -> Generator[None, None, None]:
        table.add(labels, figures)
        if table.is_full:
            yield from table.packed_in_steps()
        yield

    def _labels_of(self, topic: Topic | NonPersistentTopic) -> str:
        namespace = topic.name.namespace_name
        self._counted[namespace] += 1
        return f"{self._cluster},{label('namespace', str(namespace))},{label('topic', str(topic.name))}"


def observe_broker(node: Node) -> BrokerFigures:
    commits, loop, damages = node.figures.commits, node.figures.loop, node.broker.damages
    return BrokerFigures(
        commits.seconds,
        commits.size_bytes,
        commits.answers,
        commits.syncs,
        loop.lag_s,
        loop.clock_steps,
        sum([each.places for each in damages]),
        sum([each.entries for each in damages]),
        node.publish_budget.in_flight_bytes,
        node.authentication.failed_attempts.total,
    )


class MetricsAnswer(Response):
    """The pieces of one scrape, sent one by one. While it is read, ``figures`` count a reader."""

    def __init__(self, pieces: list[bytes], figures: Figures, media_type: str) -> None:
        self._pieces, self._figures = pieces, figures
        size = sum(map(len, pieces))
        super().__init__(headers={"content-length": str(size), "content-type": media_type})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for piece in self._pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                await asyncio.sleep(0)  # send() does not wait while the client reads fast: others have their turn here
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._figures.readers -= 1


async def metrics(request: AdminRequest) -> object:
    """Figures of the broker, loaded topics and their subscriptions as OpenMetrics text ([metrics.md](metrics.md))."""
    return await in_pieces(request, Scrape(request.node).in_steps(), MEDIA_TYPE)


async def in_pieces(request: AdminRequest, steps: Generator[None, None, list[bytes]], media_type: str) -> MetricsAnswer:
    """The answer whose pieces ``steps`` make; 503 if that many are being read already."""
    figures = request.node.figures
    if figures.readers >= READERS_MAX:
        raise RefusedError(503, f"{figures.readers} clients are reading the metrics, which are long; try again later")
    figures.readers += 1
    try:
        pieces = await request.in_turns(steps)
    except BaseException:
        figures.readers -= 1
        raise
    return MetricsAnswer(pieces, figures, media_type)


ROUTES = [Route("/metrics", metrics, needs.FREE), Route("/metrics/", metrics, needs.FREE)]
