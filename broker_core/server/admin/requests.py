# SPDX-License-Identifier: Apache-2.0
"""Reading what an HTTP request asks: names out of the path, JSON out of the body, flags out of the query.

Every failure is a BadRequestError or the name's own error, never anything else: a request is not trusted.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Generator, Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar
from urllib.parse import quote, unquote, urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from broker_core.base.errors import SubscriptionNotFoundError, TopicNotFoundError
from broker_core.base.names import NamespaceName, TopicName, check_subscription_name
from broker_core.base.positions import POSITION_EARLIEST, POSITION_LATEST, Position
from broker_core.broker.broker import Broker
from broker_core.broker.directory.topic_registry import TopicRegistry
from broker_core.broker.subscription import Subscription
from broker_core.broker.topic import Topic
from broker_core.server.admin.answers import BadRequestError, MissingError, Outcome, RefusedError, all_done
from broker_core.server.admin.bodies import decoded
from broker_core.server.admin.routes import Handler, Route
from broker_core.server.admin.turn_queue import TurnQueue
from broker_core.server.session import Node

T = TypeVar("T")

_TOPICS_A_TURN: Final = 8
"""Topics that a request about very many loads and changes in one turn; each takes about a millisecond."""

_NUMBER_MAX: Final = 2**63 - 1
"""The largest number that Pulsar's clients can write: they use it for the latest position."""

_DIGITS_MAX: Final = len(str(_NUMBER_MAX))

_SHOWN_MAX: Final = 80
"""Characters of a part of a path that an error repeats."""

_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")


class MessageIdBody(msgspec.Struct, frozen=True, rename="camel"):
    """A message id as Pulsar's admin clients write it. ``excluded``: the message itself is not wanted any more."""

    ledger_id: int
    entry_id: int
    partition_index: int = -1
    batch_index: int = -1
    excluded: bool = False

    @property
    def position(self) -> Position:
        return Position(self.ledger_id, self.entry_id)


def message_id(topic: Topic, position: Position) -> dict[str, int]:
    """The id of an entry as Pulsar's admin writes it."""
    ids = {"ledgerId": position.ledger, "entryId": position.entry, "partitionIndex": topic.name.partition_index}
    return {**ids, "batchIndex": -1, "batchSize": 0}


_NON_PERSISTENT = "/admin/v2/non-persistent/"

WORDS = {"earliest": POSITION_EARLIEST, "latest": POSITION_LATEST}


def when_loadable(route: Route) -> Route:
    """``route``, whose handler is called once the topic in the path, with all its partitions, can be loaded: a topic
    is recovered from a crash on another thread, and written to its end after it was unloaded."""
    handler: Handler = route.endpoint

    async def loadable_first(request: Request) -> Response:
        if "topic" in request.path_params:
            await _loadable(request, registry_of(request).names_of(topic_name(request)))
        return await handler(request)

    return Route(route.path, loadable_first, methods=sorted(route.methods or ()), statuses=route.statuses)


async def _loadable(request: Request, names: Iterable[TopicName]) -> None:
    """Wait until all these topics can be loaded; the ServerError that says why one of them cannot."""
    outcomes: list[Outcome] = []

    def begin() -> Generator[None, None, None]:
        for name in names:
            outcomes.append(Outcome())
            node_of(request).broker.loader.when_loadable(name, outcomes[-1].on_done)
            yield

    await in_turns(request, begin())
    await all_done(outcomes)


async def used_topics_of_namespace(request: Request) -> AsyncIterator[Topic]:
    """``used_in_turns`` of all topics of the namespace in the path."""
    names = await in_turns(request, registry_of(request).topics_in_steps(namespace_name(request)))
    async for topic in used_in_turns(request, map(TopicName.parse, names)):
        yield topic


async def used_in_turns(request: Request, names: Iterator[TopicName]) -> AsyncIterator[Topic]:
    """The topics of ``names`` that were ever used, loaded one by one; other requests have their turn in between.

    A caller that asks for the next topic must be done with this one, which may be unloaded meanwhile.
    """
    async for some in _a_few_at_a_time(request, names):
        for topic in [topic for name in some for topic in broker_of(request).loader.used_topics(name)]:
            yield topic


async def used_topics(request: Request) -> AsyncIterator[Topic]:
    """``used_in_turns`` of the topic in the path; of a partitioned one of its partitions: none is made."""
    async for topic in used_in_turns(request, registry_of(request).names_of(existing_topic(request))):
        yield topic


async def all_topics(request: Request) -> AsyncIterator[Topic]:
    """As ``used_topics``, but all partitions, which are made where they do not exist.

    For changes that must also hold on partitions that are first used later. Apache Pulsar makes all partitions of a
    topic with its first subscription, here as by the protocol (4.2.4), and most of them when it is created.
    """
    broker = broker_of(request)
    async for some in _a_few_at_a_time(request, broker.registry.names_of(existing_topic(request))):
        for topic in [broker.topic(name) for name in some]:
            yield topic


async def _a_few_at_a_time(request: Request, names: Iterator[TopicName]) -> AsyncIterator[list[TopicName]]:
    """Some of ``names`` at a time, which can be loaded; other requests have their turn in between."""
    queue: TurnQueue = request.app.state.turns
    while some := list(islice(names, _TOPICS_A_TURN)):
        await _loadable(request, some)
        yield some
        await queue.turn()


async def in_turns(request: Request, steps: Generator[None, None, T]) -> T:
    """The result of ``steps``, between which other requests are served."""
    queue: TurnQueue = request.app.state.turns
    return await queue.in_turns(steps)


def node_of(request: Request) -> Node:
    """The node that serves the request."""
    node: Node = request.app.state.node
    return node


def broker_of(request: Request) -> Broker:
    """The broker that serves the request."""
    return node_of(request).broker


def registry_of(request: Request) -> TopicRegistry:
    """Which topics the broker has."""
    return node_of(request).broker.registry


def part(request: Request, name: str) -> str:
    """One decoded part of the path; a plus sign is a plus sign."""
    return _decoded(request.path_params[name])


def _name_part(request: Request, name: str) -> str:
    """A part of the path that is the name of a topic or subscription, in which a plus sign is a blank.

    Pulsar's admin clients write a blank so, and a plus sign as %2B. Apache Pulsar reads it so too, but for
    subscriptions in the path of a namespace, where its own client then names another one than the one that was meant.
    """
    return _decoded(request.path_params[name].replace("+", " "))


def _decoded(text: str) -> str:
    """``text`` without its percent-encoding; a refusal if it has none that can be read."""
    if _BAD_ESCAPE.search(text):
        raise BadRequestError(f"{text[:_SHOWN_MAX]!r} in the path has a % that is not written as %25")
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise BadRequestError(f"{text[:_SHOWN_MAX]!r} in the path is not UTF-8 text") from None


def namespace_name(request: Request) -> NamespaceName:
    """The namespace in the path."""
    return NamespaceName.parse(f"{part(request, 'tenant')}/{part(request, 'namespace')}")


def topic_name(request: Request) -> TopicName:
    """The topic in the path, which also names its domain."""
    domain = "non-persistent" if request.scope["path"].startswith(_NON_PERSISTENT) else "persistent"
    return TopicName.parse(f"{domain}://{namespace_name(request)}/{_name_part(request, 'topic')}")


def existing_topic(request: Request) -> TopicName:
    """The topic in the path, which may be partitioned; TopicNotFoundError if it, or its namespace, does not exist."""
    broker, name = broker_of(request), topic_name(request)
    broker.namespaces.require(name.namespace_name)
    if not broker.registry.exists(name):
        raise TopicNotFoundError(f"topic {name} does not exist", hint="create it first")
    return name


def plain_topic(request: Request, what: str) -> Topic:
    """The topic in the path, loaded; a refusal (405) if it is partitioned, for ``what`` needs one log."""
    broker, name = broker_of(request), existing_topic(request)
    if broker.partitions_of(name):
        raise RefusedError(405, f"{what} is not possible on the partitioned topic {name}; name one of its partitions")
    return broker.topic(name)


def plain_subscription(request: Request, what: str) -> tuple[Topic, Subscription]:
    """The subscription in the path with its topic, which must not be partitioned, as for ``plain_topic``."""
    topic = plain_topic(request, what)
    subscription = topic.subscriptions.get(subscription_name(request))
    if subscription is None:
        raise missing_subscription(request)
    return topic, subscription


def missing_subscription(request: Request) -> SubscriptionNotFoundError:
    """The error if the topic in the path exists, and its subscription does not."""
    name, topic = subscription_name(request), existing_topic(request)
    return SubscriptionNotFoundError(f"subscription {name!r} of {topic} does not exist")


def single_topic(request: Request) -> Topic:
    """The topic in the path, loaded; as in Pulsar a partitioned one is not found here, only its partitions are."""
    broker, name = broker_of(request), existing_topic(request)
    if broker.partitions_of(name):
        raise TopicNotFoundError(
            f"{name} is partitioned", hint="ask for one of its partitions, or for partitioned-stats"
        )
    return broker.topic(name)


def partitions_count(request: Request) -> int:
    """How many partitions the topic in the path has; TopicNotFoundError if it is not partitioned."""
    name = existing_topic(request)
    count = broker_of(request).partitions_of(name)
    if not count:
        raise TopicNotFoundError(f"{name} is not a partitioned topic")
    return count


def broker_id(request: Request) -> str:
    """Host and HTTP port of this broker, by which Pulsar's brokers name each other."""
    return urlsplit(node_of(request).http_url).netloc


def existing_cluster(request: Request) -> str:
    """The cluster in the path, of which there is one."""
    cluster = part(request, "cluster")
    ours = node_of(request).settings.cluster_name
    if cluster != ours:
        raise MissingError(f"cluster {cluster[:80]!r} does not exist; this broker is the cluster {ours!r}")
    return cluster


def subscription_name(request: Request) -> str:
    """The subscription in the path of a topic, where it is encoded twice: Apache Pulsar decodes it twice, the second
    time with a plus sign as a blank, and its admin clients count on that."""
    once = part(request, "subscription")
    if _BAD_ESCAPE.search(once):
        twice = quote(quote(once[:_SHOWN_MAX], safe=""), safe="")
        raise BadRequestError(
            f"{once[:_SHOWN_MAX]!r} in the path has a % that is encoded once only; in the path of a topic the name of "
            f"a subscription is encoded twice: {twice}"
        )
    return check_subscription_name(_decoded(once.replace("+", " ")))


def subscription_of_namespace(request: Request) -> str:
    """The subscription in the path of a namespace, where it is encoded once."""
    return check_subscription_name(_name_part(request, "subscription"))


def number(request: Request, name: str) -> int:
    """A part of the path that is a number of up to 63 bits, not negative."""
    text = part(request, name)
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX and int(text) <= _NUMBER_MAX):
        raise BadRequestError(f"{text[:80]!r} in the path is not a number")
    return int(text)


def query_number(request: Request, name: str, absent: int) -> int:
    """A query parameter that is a number; ``absent`` if it is not given."""
    text = request.query_params.get(name)
    if text is None:
        return absent
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= _DIGITS_MAX):
        raise BadRequestError(f"{text[:80]!r} is no number for {name}")
    return int(text)


def flag(request: Request, name: str) -> bool:
    """A query parameter that is true or absent."""
    return request.query_params.get(name, "false").lower() == "true"


async def body(request: Request, kind: type[T], empty: T) -> T:
    """The JSON body as ``kind``; ``empty`` if there is none."""
    content = await request.body()
    if not content.strip():
        return empty
    try:
        read: T = decoded(content, kind)
        return read
    except msgspec.DecodeError as error:
        raise BadRequestError(f"the request body cannot be read: {error}") from error
