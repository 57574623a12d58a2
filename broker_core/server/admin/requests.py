# SPDX-License-Identifier: Apache-2.0
"""``AdminRequest``: an HTTP request to the admin REST, and how its path, query and body are read. ``Route``: a path
with the handler that answers it.

A part that cannot be read is a BadRequestError or the name's own error, never anything else: a request is not trusted.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote, unquote, urlsplit

import msgspec
from starlette import routing
from starlette.requests import Request
from starlette.responses import Response

from broker_core.base.errors import PulsarishError, SubscriptionNotFoundError, TopicNotFoundError
from broker_core.base.names import NamespaceName, TopicName, check_subscription_name
from broker_core.base.positions import POSITION_EARLIEST, POSITION_LATEST, Position
from broker_core.broker.broker import Broker
from broker_core.broker.subscription import Subscription
from broker_core.broker.topic import Topic
from broker_core.server.admin.answers import (
    BadRequestError,
    MissingError,
    RefusedError,
    begun,
    json_answer,
    refusal,
    results_of,
    status_of,
)
from broker_core.server.admin.bodies import decoded
from broker_core.server.admin.border import let_pass
from broker_core.server.admin.middleware import RequestTurns
from broker_core.server.security.rights import CLUSTER, About, Need, Resource, Right
from broker_core.server.session import Node
from broker_core.wire.heads import TxnId

T = TypeVar("T")

_TOPICS_A_TURN: Final = 8
"""Topics that a request about very many loads and changes in one turn; each takes about a millisecond."""

_NUMBER_MAX: Final = 2**63 - 1
"""The largest number that Pulsar's clients can write: they use it for the latest position."""

_DIGITS_MAX: Final = len(str(_NUMBER_MAX))

_SHOWN_MAX: Final = 80
"""Characters of a part of a path that an error repeats."""

_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")

_NON_PERSISTENT: Final = ("/admin/v2/non-persistent/", "/lookup/v2/topic/non-persistent/")

WORDS: Final = {"earliest": POSITION_EARLIEST, "latest": POSITION_LATEST}


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


class TopicInBody(msgspec.Struct, frozen=True):
    """A topic of a request that is about several; its other fields are its handler's."""

    topic: str


def namespace_of(topics: Sequence[TopicInBody]) -> NamespaceName:
    """The one namespace of topics in a body; a refusal if there are several, or none."""
    found = {TopicName.parse(each.topic).namespace_name for each in topics}
    if len(found) != 1:
        raise RefusedError(400, f"the request names topics of {len(found)} namespaces; name topics of one")
    return found.pop()


def message_id(topic: Topic, position: Position) -> dict[str, int]:
    """The id of an entry as Pulsar's admin writes it."""
    ids = {"ledgerId": position.ledger, "entryId": position.entry, "partitionIndex": topic.name.partition_index}
    return {**ids, "batchIndex": -1, "batchSize": 0}


class AdminRequest(Request):
    """One request, as handlers read it. It has 35 methods: one for each thing that several paths, queries or bodies
    have in common."""

    # -- the broker that serves it

    @property
    def node(self) -> Node:
        node: Node = self.app.state.node
        return node

    @property
    def broker(self) -> Broker:
        return self.node.broker

    @property
    def cluster(self) -> str:
        """The name of the one cluster."""
        return self.node.settings.cluster_name

    @property
    def broker_id(self) -> str:
        """Host and HTTP port of this broker, by which Pulsar's brokers name each other."""
        return urlsplit(self.node.http_url or self.node.http_url_tls).netloc

    # -- rights

    async def resource(self, about: About) -> Resource:
        """The thing in the path, or in the body, that a right of this kind is about."""
        match about:
            case About.NAMESPACE_IN_BODY:
                return Resource.of_namespace(namespace_of(await self.body_as(list[TopicInBody], [])))
            case About.TENANT:
                return Resource(tenant=self.part("tenant"))
            case About.NAMESPACE:
                return Resource.of_namespace(self.namespace_name)
            case About.NAMESPACE_SUBSCRIPTION:
                return Resource.of_namespace(self.namespace_name, self.subscription_of_namespace)
            case About.NAMESPACE_SUBSCRIPTIONS:
                return Resource.of_namespace(self.namespace_name, every_subscription=True)
            case About.TOPIC:
                return Resource.of_topic(self.topic_name)
            case About.SUBSCRIPTION:
                return Resource.of_topic(self.topic_name, self.subscription_name)
            case About.SUBSCRIPTIONS:
                return Resource.of_topic(self.topic_name, every_subscription=True)
        return CLUSTER

    # -- turns

    async def in_turns(self, steps: Generator[None, None, T]) -> T:
        """The result of ``steps``, between which other requests are served."""
        return await self._turns.in_turns(steps)

    @property
    def _turns(self) -> RequestTurns:
        turns: RequestTurns = self.app.state.turns
        return turns

    # -- path

    def part(self, name: str) -> str:
        """One decoded part of the path; a plus sign is a plus sign."""
        return _decoded(self.path_params[name])

    def _name_part(self, name: str) -> str:
        """A part of the path that is the name of a topic or subscription, in which a plus sign is a blank.

        Pulsar's admin clients write a blank so, and a plus sign as %2B. Apache Pulsar reads it so too, but for
        subscriptions in the path of a namespace, where its own client then names another one than was meant.
        """
        return _decoded(self.path_params[name].replace("+", " "))

    def number(self, name: str) -> int:
        """A part of the path that is a number of up to 63 bits, not negative."""
        text = self.part(name)
        if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX and int(text) <= _NUMBER_MAX):
            raise BadRequestError(f"{text[:80]!r} in the path is not a number")
        return int(text)

    @property
    def position(self) -> Position:
        """The ledger and the entry in the path."""
        return Position(self.number("ledger"), self.number("entry"))

    @property
    def transaction_id(self) -> TxnId:
        """The id of the transaction in the path."""
        return TxnId(self.number("most"), self.number("least"))

    @property
    def owner_of_transaction(self) -> str | None:
        """The role that began the transaction in the path; None if it is nobody's, or not open."""
        found = self.broker.open_transactions.get(self.transaction_id)
        return None if found is None else found.owner

    @property
    def is_persistent(self) -> bool:
        """Whether the path is of topics that are stored."""
        return not str(self.scope["path"]).startswith(_NON_PERSISTENT)

    @property
    def namespace_name(self) -> NamespaceName:
        """The namespace in the path."""
        return NamespaceName.parse(f"{self.part('tenant')}/{self.part('namespace')}")

    def existing_namespace(self) -> NamespaceName:
        """The namespace in the path; an error if it does not exist."""
        self.broker.namespaces.require(self.namespace_name)
        return self.namespace_name

    def existing_cluster(self) -> str:
        """The cluster in the path, of which there is one."""
        cluster = self.part("cluster")
        if cluster != self.cluster:
            raise MissingError(f"cluster {cluster[:80]!r} does not exist; this broker is the cluster {self.cluster!r}")
        return cluster

    # -- topic in the path

    @property
    def topic_name(self) -> TopicName:
        """The topic in the path, which also names its domain."""
        domain = "persistent" if self.is_persistent else "non-persistent"
        return TopicName.parse(f"{domain}://{self.namespace_name}/{self._name_part('topic')}")

    def existing_topic(self) -> TopicName:
        """The topic in the path, which may be partitioned; TopicNotFoundError if it, or its namespace, is missing."""
        name = self.topic_name
        self.broker.namespaces.require(name.namespace_name)
        if not self.broker.registry.exists(name):
            raise TopicNotFoundError(f"topic {name} does not exist", hint="create it first")
        return name

    def plain_topic(self, what: str) -> Topic:
        """The topic in the path, loaded; a refusal (405) if it is partitioned, for ``what`` needs one log."""
        name = self.existing_topic()
        if self.broker.partitions_of(name):
            raise RefusedError(
                405, f"{what} is not possible on the partitioned topic {name}; name one of its partitions"
            )
        return self.broker.topic(name)

    def single_topic(self) -> Topic:
        """The topic in the path, loaded; as in Pulsar a partitioned one is not found here, only its partitions are."""
        name = self.existing_topic()
        if self.broker.partitions_of(name):
            raise TopicNotFoundError(
                f"{name} is partitioned", hint="ask for one of its partitions, or for partitioned-stats"
            )
        return self.broker.topic(name)

    def partitions_count(self) -> int:
        """How many partitions the topic in the path has; TopicNotFoundError if it is not partitioned."""
        name = self.existing_topic()
        count = self.broker.partitions_of(name)
        if not count:
            raise TopicNotFoundError(f"{name} is not a partitioned topic")
        return count

    # -- subscription in the path

    @property
    def subscription_name(self) -> str:
        """The subscription in the path of a topic, where it is encoded twice: Apache Pulsar decodes it twice, the
        second time with a plus sign as a blank, and its admin clients count on that."""
        once = self.part("subscription")
        if _BAD_ESCAPE.search(once):
            twice = quote(quote(once[:_SHOWN_MAX], safe=""), safe="")
            raise BadRequestError(
                f"{once[:_SHOWN_MAX]!r} in the path has a % that is encoded once only; in the path of a topic the name "
                f"of a subscription is encoded twice: {twice}"
            )
        return check_subscription_name(_decoded(once.replace("+", " ")))

    @property
    def subscription_of_namespace(self) -> str:
        """The subscription in the path of a namespace, where it is encoded once."""
        return check_subscription_name(self._name_part("subscription"))

    def plain_subscription(self, what: str) -> tuple[Topic, Subscription]:
        """The subscription in the path with its topic, which must not be partitioned, as for ``plain_topic``."""
        topic = self.plain_topic(what)
        subscription = topic.subscriptions.get(self.subscription_name)
        if subscription is None:
            raise self.missing_subscription()
        return topic, subscription

    def missing_subscription(self) -> SubscriptionNotFoundError:
        """The error if the topic in the path exists, and its subscription does not."""
        name, topic = self.subscription_name, self.existing_topic()
        return SubscriptionNotFoundError(f"subscription {name!r} of {topic} does not exist")

    # -- many topics, a few in a turn

    async def used_topics_of_namespace(self) -> AsyncIterator[Topic]:
        """``used_in_turns`` of all topics of the namespace in the path."""
        names = await self.in_turns(self.broker.registry.topics_in_steps(self.namespace_name))
        async for topic in self.used_in_turns(map(TopicName.parse, names)):
            yield topic

    async def used_topics(self) -> AsyncIterator[Topic]:
        """``used_in_turns`` of the topic in the path; of a partitioned one of its partitions: none is made."""
        async for topic in self.used_in_turns(self.broker.registry.names_of(self.existing_topic())):
            yield topic

    async def used_in_turns(self, names: Iterator[TopicName]) -> AsyncIterator[Topic]:
        """The topics of ``names`` that were ever used, loaded one by one; other requests have their turn in between.

        A caller that asks for the next topic must be done with this one, which may be unloaded meanwhile.
        """
        async for some in self._a_few_at_a_time(names):
            for topic in [topic for name in some for topic in self.broker.loader.used_topics(name)]:
                yield topic

    async def all_topics(self) -> AsyncIterator[Topic]:
        """As ``used_topics``, but all partitions, which are made where they do not exist.

        For changes that must also hold on partitions that are first used later. Apache Pulsar makes all partitions of
        a topic with its first subscription, here as by the protocol (4.2.4), and most of them when it is created.
        """
        async for some in self._a_few_at_a_time(self.broker.registry.names_of(self.existing_topic())):
            for topic in [self.broker.topic(name) for name in some]:
                yield topic

    async def _a_few_at_a_time(self, names: Iterator[TopicName]) -> AsyncIterator[list[TopicName]]:
        """Some of ``names`` at a time, which can be loaded; other requests have their turn in between."""
        while some := list(islice(names, _TOPICS_A_TURN)):
            await self.loadable(some)
            yield some
            await self._turns.turn()

    async def loadable(self, names: Iterable[TopicName]) -> None:
        """Wait until all these topics can be loaded: a topic is recovered from a crash on another thread, and written
        to its end after it was unloaded. The ServerError says why one of them cannot."""
        changes: list[asyncio.Future[None]] = []

        def begin() -> Generator[None, None, None]:
            for name in names:
                changes.append(begun(partial(self.broker.loader.when_loadable, name)))
                yield

        await self.in_turns(begin())
        await results_of(changes)

    # -- query and body

    def query_number(self, name: str, absent: int) -> int:
        """A query parameter that is a number; ``absent`` if it is not given."""
        text = self.query_params.get(name)
        if text is None:
            return absent
        if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= _DIGITS_MAX):
            raise BadRequestError(f"{text[:80]!r} is no number for {name}")
        return int(text)

    def flag(self, name: str) -> bool:
        """A query parameter that is true or absent."""
        return self.query_params.get(name, "false").lower() == "true"

    async def body_as(self, kind: Any, empty: Any = None) -> Any:
        """The JSON body as ``kind``, which may be a union; ``empty`` if there is none."""
        content = await self.body()
        if not content.strip():
            return empty
        try:
            return decoded(content, kind)
        except msgspec.DecodeError as error:
            raise BadRequestError(f"the request body cannot be read: {error}") from error


def _decoded(text: str) -> str:
    """``text`` without its percent-encoding; a refusal if it has none that can be read."""
    if _BAD_ESCAPE.search(text):
        raise BadRequestError(f"{text[:_SHOWN_MAX]!r} in the path has a % that is not written as %25")
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise BadRequestError(f"{text[:_SHOWN_MAX]!r} in the path is not UTF-8 text") from None


def _refusal(error: RefusedError | PulsarishError, statuses: Mapping[type[PulsarishError], int]) -> Response:
    status = error.status if isinstance(error, RefusedError) else status_of(error, statuses)
    return refusal(status, str(error))


Handler: TypeAlias = Callable[[AdminRequest], Awaitable[object]]
"""The answer to a request: a Response, None for 204 without a body, or a value that is sent as JSON."""

_NO_STATUSES: Final[Mapping[type[PulsarishError], int]] = MappingProxyType({})


class Route(routing.Route):
    """A path with its handler, called once the topic in the path, with all its partitions, can be loaded.

    ``need``: the right without which the handler never sees the request.
    ``statuses``: of errors that the broker raises meanwhile. Pulsar answers the same kind of error with different
    statuses on different paths; all other errors have the usual status of their kind (``answers``).
    ``loads``: False where the topic itself is not needed, so that nobody waits until it can be loaded.
    """

    def __init__(
        self,
        path: str,
        handler: Handler,
        need: Need,
        *,
        methods: Sequence[str] | None = None,
        statuses: Mapping[type[PulsarishError], int] = _NO_STATUSES,
        loads: bool = True,
    ) -> None:
        async def answered(request: AdminRequest) -> Response:
            try:
                if loads and "topic" in request.path_params:
                    await request.loadable(request.broker.registry.names_of(request.topic_name))
                answer = await handler(request)
            except (RefusedError, PulsarishError) as error:
                return _refusal(error, statuses)
            if isinstance(answer, Response):
                return answer
            return Response(status_code=204) if answer is None else json_answer(answer)

        async def respond(http: Request) -> Response:
            request = AdminRequest(http.scope, http.receive)
            gate = request.node.gate
            if gate is None:
                return await answered(request)
            try:
                resource = await request.resource(need.about)
                owner = request.owner_of_transaction if need.right is Right.OWNER else None
            except (RefusedError, PulsarishError) as error:
                return _refusal(error, statuses)
            return await let_pass(gate, need, resource, request, answered, owner=owner)

        super().__init__(path, respond, methods=methods)
        self.endpoint = handler
        self.need = need
