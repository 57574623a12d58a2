# SPDX-License-Identifier: Apache-2.0
"""Questions that any broker of the cluster answers: who serves a topic, how many partitions, which topics there are.

Owns following redirects, trying the service URL's hosts in turn, and the memory of who served a topic last. Each method
is one attempt; ``retrying`` repeats.
Source: Pulsar docs, "Binary protocol - Service discovery"; PIP-344 for metadata without auto-creation.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker_core.base.errors import (
    ConfigError,
    PartitionUnmadeError,
    PulsarishError,
    RemoteProtocolError,
    ServiceNotReadyError,
    TopicNotFoundError,
)
from broker_core.base.names import NamespaceName, TopicName
from broker_core.client.connecting.connection import Connection
from broker_core.client.connecting.pool import ConnectionPool
from broker_core.client.connecting.service_url import BrokerAddress, address_named_by, parse_service_url
from broker_core.client.settings.config import ClientConfig, RegexSubscriptionMode
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

REDIRECTS_MAX: Final = 20
"""More than any healthy cluster needs; official clients stop at the same number."""

WRITING_CREATES: Final = "writing to a topic creates it"

_MODES: Final[dict[RegexSubscriptionMode, pb.CommandGetTopicsOfNamespace.Mode]] = {
    "persistent": pb.CommandGetTopicsOfNamespace.PERSISTENT,
    "non_persistent": pb.CommandGetTopicsOfNamespace.NON_PERSISTENT,
    "all": pb.CommandGetTopicsOfNamespace.ALL,
}

_LookupAnswer = pb.CommandLookupTopicResponse


class Lookup:
    """Asks the cluster behind the service URL."""

    def __init__(self, pool: ConnectionPool, config: ClientConfig) -> None:
        self._pool = pool
        self._hosts = parse_service_url(config.service_url)
        self._turn = 0
        self._served: dict[TopicName, BrokerAddress] = {}
        self._named_by: dict[BrokerAddress, BrokerAddress] = {}
        """Brokers that a lookup has named, and the broker that answered it: in case they cannot be reached."""

    async def service_connection(self) -> Connection:
        """A connection to some host of the service URL; another one is tried next time if this fails."""
        turn = self._turn
        try:
            return await self._pool.shared(self._hosts[turn % len(self._hosts)])
        except (PulsarishError, asyncio.CancelledError):  # A caller may give up before the connection does.
            if self._turn == turn:  # Once for all who have waited for this host: two steps may lead back to it.
                self._turn += 1
            raise

    async def connect(self, broker: BrokerAddress, *, dedicated: bool = False) -> Connection:
        """A connection to ``broker``, which a lookup or another broker has named; its errors say so."""
        asked = self._named_by.get(broker)
        led = "to which a broker has sent us" if asked is None else f"to which a lookup at {asked} led"
        return await (self._pool.dedicated if dedicated else self._pool.shared)(broker, led)

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        """The number of partitions, 0 if ``topic`` has none.

        ``create``: a missing topic may be created by the broker; else, and for a missing namespace, TopicNotFoundError.
        """
        return await _partitions(await self.service_connection(), topic, create=create)

    async def check_namespace(self, topic: TopicName) -> None:
        """TopicNotFoundError if the namespace of ``topic`` does not exist.

        ``partitions`` without ``create`` fails then too, but an Apache Pulsar does not say in it what is missing.
        """
        try:
            await self._ask(await self.service_connection(), topic, authoritative=False)
        except TopicNotFoundError as error:
            raise _missing(topic, error) from error

    async def tells_missing_topics(self) -> bool:
        """Whether ``partitions`` raises TopicNotFoundError for every topic that does not exist; else it may be 0."""
        connection = await self.service_connection()
        return connection.features.supports_get_partitioned_metadata_without_auto_creation

    async def known_broker_of(self, topic: TopicName) -> BrokerAddress:
        """The broker that served ``topic`` last, else the one that a lookup names.

        It may have moved since; that broker then refuses, or is not there. So what is known serves one attempt: after a
        success ``serves`` is called, and after a failure the cluster is asked.
        """
        return self._served.pop(topic, None) or await self.broker_of(topic)

    def serves(self, topic: TopicName, broker: BrokerAddress) -> None:
        """A producer or consumer has just attached to ``topic`` at ``broker``."""
        self._served[topic] = broker

    async def broker_of(self, topic: TopicName) -> BrokerAddress:
        """The broker to connect to for ``topic``."""
        connection = await self.service_connection()
        authoritative = False
        for _ in range(REDIRECTS_MAX):
            answer = await self._ask(connection, topic, authoritative)
            if answer.response == _LookupAnswer.Failed:
                raise ServiceNotReadyError(f"{connection.address} cannot tell which broker serves {topic}")
            target = _target(answer, connection, topic)
            if answer.proxy_through_service_url:
                target = connection.address._replace(proxied_for=f"{target.host}:{target.port}")
            self._named_by[target] = connection.address
            if answer.response == _LookupAnswer.Connect:
                return target
            connection = await self.connect(target)
            authoritative = answer.authoritative
        raise RemoteProtocolError(f"the lookup of {topic} was redirected {REDIRECTS_MAX} times")

    async def _ask(self, connection: Connection, topic: TopicName, authoritative: bool) -> _LookupAnswer:
        request_id = connection.next_request_id()
        asked = pb.CommandLookupTopic(
            topic=str(topic), request_id=request_id, authoritative=authoritative, advertised_listener_name=""
        )
        command = BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=asked)
        try:
            return (await connection.request(command, request_id)).lookupTopicResponse
        except TopicNotFoundError as error:
            if await names_partition(connection, topic):
                raise unmade(topic) from error
            raise

    async def topics_of(self, namespace: NamespaceName, mode: RegexSubscriptionMode = "persistent") -> list[str]:
        """Full names of the topics of ``namespace``, each partition on its own, sorted."""
        connection = await self.service_connection()
        request_id = connection.next_request_id()
        asked = pb.CommandGetTopicsOfNamespace(request_id=request_id, namespace=str(namespace), mode=_MODES[mode])
        command = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=asked)
        answer = await connection.request(command, request_id)
        return sorted(answer.getTopicsOfNamespaceResponse.topics)


def _target(answer: _LookupAnswer, connection: Connection, topic: TopicName) -> BrokerAddress:
    """The address that ``answer`` names for the same kind of connection: encrypted ones lead to encrypted ones only."""
    if not connection.address.tls:
        return address_named_by(connection.address, answer.brokerServiceUrl)
    if not answer.brokerServiceUrlTls:
        raise ConfigError(
            f"{connection.address} names no address with TLS for the broker of {topic}",
            hint="that broker needs brokerServicePortTls; or connect by pulsar://, unencrypted",
        )
    return address_named_by(connection.address, answer.brokerServiceUrlTls)


async def _partitions(connection: Connection, topic: TopicName, *, create: bool) -> int:
    request_id = connection.next_request_id()
    asked = pb.CommandPartitionedTopicMetadata(topic=str(topic), request_id=request_id)
    if not create and connection.features.supports_get_partitioned_metadata_without_auto_creation:
        asked.metadata_auto_creation_enabled = False
    command = BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata=asked)
    try:
        answer = (await connection.request(command, request_id)).partitionMetadataResponse
    except TopicNotFoundError as error:
        raise _missing(topic, error) from error
    if answer.response == pb.CommandPartitionedTopicMetadataResponse.Failed:
        raise ServiceNotReadyError(f"{connection.address} cannot tell the partitions of {topic}")
    return answer.partitions


async def names_partition(connection: Connection, topic: TopicName) -> bool:
    """Whether ``topic``, which is not there, is a partition that its topic has all the same.

    Apache Pulsar makes a partition when it is first used: the topic is a number of partitions, and no more.
    """
    if topic.partition_index < 0:
        return False
    try:
        return topic.partition_index < await _partitions(connection, topic.base, create=False)
    except TopicNotFoundError:
        return False


def unmade(topic: TopicName) -> PartitionUnmadeError:
    """The error for a partition that is not there though its topic names it."""
    return PartitionUnmadeError(
        f'partition "{topic}" does not exist, though its topic has it',
        hint="it was deleted, or nobody has used it yet; pulsar-admin topics create-missed-partitions makes it",
    )


def _missing(topic: TopicName, answer: TopicNotFoundError) -> TopicNotFoundError:
    """``answer`` in words that are the same for all brokers and requests: it may not say what is missing."""
    if "namespace" in answer.message.lower():
        namespace = topic.namespace_name
        return TopicNotFoundError(
            f"topic {topic} does not exist, nor does its namespace {namespace}",
            hint="create the namespace first, or use public/default",
        )
    return topic_missing(topic)


def topic_missing(topic: TopicName, *, hint: str = f"check the name; {WRITING_CREATES}") -> TopicNotFoundError:
    """The error for a topic that a question is about, and that is not there."""
    return TopicNotFoundError(f"topic {topic} does not exist", hint=hint)


def not_found(topic: TopicName) -> TopicNotFoundError:
    """The error for a topic that a command needs to exist."""
    return TopicNotFoundError(f'topic "{topic}" does not exist', hint="create it, or check the name for a typo")
