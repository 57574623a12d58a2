# SPDX-License-Identifier: Apache-2.0
"""Lookup of topics: PARTITIONED_METADATA, LOOKUP, GET_TOPICS_OF_NAMESPACE, and watches of topics.

One broker owns every topic, so LOOKUP always answers with its own URL. A client compares that text with the URL it
connected to and opens a second connection if they differ, so it must be the URL that was announced.
Source: Pulsar docs, "Binary protocol - Service discovery".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from broker_core.base.errors import (
    AuthorizationError,
    MetadataServerError,
    NotAllowedError,
    ServerError,
    ServiceNotReadyError,
)
from broker_core.base.names import NamespaceName, TopicName
from broker_core.broker.directory.topic_registry import TopicsMode
from broker_core.broker.directory.topic_watches import TopicWatch
from broker_core.server.session import Session
from broker_core.wire import commands
from broker_core.wire.commands import error_code
from broker_core.wire.proto.pulsar_api_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
)


def handle_partitioned_metadata(session: Session, command: BaseCommand, name: TopicName) -> None:
    """How many partitions a topic has; 0 for a plain one."""
    asked = command.partitionMetadata
    partitions = session.node.broker.partitions_of(name, create=asked.metadata_auto_creation_enabled)
    answer = BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE)
    result = answer.partitionMetadataResponse
    result.request_id = asked.request_id
    result.partitions = partitions
    result.response = CommandPartitionedTopicMetadataResponse.Success
    session.send(answer)


def partitioned_metadata_refusal(request_id: int, error: ServerError) -> BaseCommand:
    """The answer to a PARTITIONED_METADATA that is refused."""
    answer = BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE)
    result = answer.partitionMetadataResponse
    result.request_id = request_id
    result.response = CommandPartitionedTopicMetadataResponse.Failed
    result.error = error_code(error)
    result.message = str(error)
    return answer


def handle_lookup(session: Session, command: BaseCommand, name: TopicName) -> None:
    """Which broker serves a topic: this one, for every valid name in a namespace that exists; once the topic is
    recovered from a crash. A name for the broker's addresses is refused with Pulsar's code: there are no such names."""
    asked = command.lookupTopic

    def ready(error: ServerError | None) -> None:
        if error is not None:
            session.send(lookup_refusal(asked.request_id, error))
            return
        answer = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
        result = answer.lookupTopicResponse
        result.request_id = asked.request_id
        result.brokerServiceUrl = session.node.service_url
        if session.node.service_url_tls:
            result.brokerServiceUrlTls = session.node.service_url_tls
        result.authoritative = True
        result.response = CommandLookupTopicResponse.Connect
        session.send(answer)

    broker = session.node.broker
    if name.is_coordinator:
        broker.transactions.require(name.partition_index)
    else:
        broker.namespaces.require(name.namespace_name)
    if asked.advertised_listener_name:
        raise ServiceNotReadyError(
            f"this broker has no listener {asked.advertised_listener_name[:80]!r}",
            hint="connect without a listener name",
        )
    broker.loader.when_ready(name, ready)


def lookup_refusal(request_id: int, error: ServerError) -> BaseCommand:
    """The answer to a LOOKUP that is refused."""
    answer = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
    result = answer.lookupTopicResponse
    result.request_id = request_id
    result.response = CommandLookupTopicResponse.Failed
    result.error = error_code(error)
    result.message = str(error)
    return answer


def handle_get_topics_of_namespace(session: Session, command: BaseCommand, namespace: NamespaceName) -> Iterator[None]:
    """All topics of a namespace, in steps; the partitions of a partitioned one singly.

    As in Pulsar a namespace that is not there has none, and is an error where topics that are not stored are asked for.
    """
    asked = command.getTopicsOfNamespace
    broker, mode = session.node.broker, TopicsMode(asked.mode)
    if broker.namespaces.exists(namespace):
        topics = yield from broker.registry.topics_in_steps(namespace, mode)
    elif mode is TopicsMode.PERSISTENT:
        topics = []
    else:
        raise MetadataServerError(f"namespace {str(namespace)!r} does not exist", hint="create it first")
    answer = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE)
    result = answer.getTopicsOfNamespaceResponse
    result.request_id = asked.request_id
    result.topics.extend(topics)
    session.send(answer)


# -- watches: a client is told which topics match its pattern, and of each that comes or goes (PIP-145)


def handle_watch_topic_list(session: Session, command: BaseCommand, namespace: NamespaceName) -> Iterator[None]:
    """Begin a watch; one of the same number ends. What the client knows already is not listed again."""
    asked = command.watchTopicList
    most = session.node.settings.subscription_pattern_max_length
    if len(asked.topics_pattern) > most:
        raise NotAllowedError(f"Unable to create topic list watcher: topicsPattern longer than maximum: {most}")
    number = asked.watcher_id
    broker = session.node.broker

    def changed(new: Sequence[str], gone: Sequence[str]) -> None:
        update = BaseCommand(type=BaseCommand.WATCH_TOPIC_UPDATE)
        update.watchTopicUpdate.watcher_id = number
        update.watchTopicUpdate.new_topics.extend(new)
        update.watchTopicUpdate.deleted_topics.extend(gone)
        update.watchTopicUpdate.topics_hash = watch.topics_hash
        session.send(update)

    watch = TopicWatch(namespace, asked.topics_pattern, changed)
    session.end_watch(number)
    session.watches[number] = watch
    yield from broker.registry.watch_topics(watch)
    if session.watches.get(number) is not watch:
        raise AuthorizationError("Proxy Client is not authorized to watchTopicList")  # any more
    answer = BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST_SUCCESS)
    result = answer.watchTopicListSuccess
    result.request_id = asked.request_id
    result.watcher_id = number
    result.topics_hash = watch.topics_hash
    if asked.topics_hash != result.topics_hash:
        result.topic.extend(watch.topics)
    session.send(answer)


def handle_watch_topic_list_close(session: Session, command: BaseCommand) -> None:
    """End a watch; harmless if there is none."""
    session.end_watch(command.watchTopicListClose.watcher_id)
    session.send(commands.success(command.watchTopicListClose.request_id))
