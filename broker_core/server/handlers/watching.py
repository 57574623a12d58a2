# SPDX-License-Identifier: Apache-2.0
"""WATCH_TOPIC_LIST and its end: a client is told which topics match its pattern, and of each that comes or goes.

A watch lives until the client closes it or its connection. Source: PIP-145; semantics 7.12.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from broker_core.base.errors import NotAllowedError
from broker_core.base.names import NamespaceName
from broker_core.broker.directory.topic_watches import TopicWatch
from broker_core.server.session import Session
from broker_core.wire import commands
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand


def handle_watch_topic_list(session: Session, command: BaseCommand) -> Iterator[None]:
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

    watch = TopicWatch(NamespaceName.parse(asked.namespace), asked.topics_pattern, changed)
    _forget(session, number)
    session.watches[number] = watch
    yield from broker.registry.watch_topics(watch)
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
    _forget(session, command.watchTopicListClose.watcher_id)
    session.send(commands.success(command.watchTopicListClose.request_id))


def _forget(session: Session, number: int) -> None:
    watch = session.watches.pop(number, None)
    if watch is not None:
        session.node.broker.registry.watches.remove(watch)
