# SPDX-License-Identifier: Apache-2.0
"""Putting a query in queue mode together: its topics, its consumers, what it holds, its driver."""

from __future__ import annotations

from broker_core.base.clock import SystemClock
from broker_core.base.errors import ConfigError, InvalidTopicNameError
from broker_core.base.names import TopicName
from broker_core.base.spark_marks import hold_name
from broker_core.client import Client, DeadLetterPolicy
from broker_core.client.settings.dead_letter_policy import MAX_REDELIVER_COUNT_DEFAULT, letter_topics
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.options import QueueOptions, ReadOptions
from pulsarish_spark.places.topics import Selection
from pulsarish_spark.queue.hold_cursors import HoldCursors
from pulsarish_spark.queue.intake import Consumers
from pulsarish_spark.queue.queue_driver import QueueDriver


def open_queue(options: ReadOptions, queue: QueueOptions, client: Client) -> QueueDriver:
    """The driver of a query that shares its subscription. Nothing is subscribed before the first batch."""
    selection = options.selection
    if queue.retry:
        selection = _with_retry_topic(selection, options.subscription, client)
    if queue.dead_letter_topic and selection.wants_some_of(queue.dead_letter_topic):
        raise ConfigError(
            f"option deadLetterTopic names {queue.dead_letter_topic}, which the query reads: an entry that cannot be "
            "decoded would come again for ever",
            hint="name another topic",
        )
    clock = SystemClock()
    consumers = Consumers(
        client,
        selection,
        options.subscription,
        queue,
        limit=options.amounts.messages_max,
        discovery_s=options.discovery_s,
        policy=LossPolicy.of(options),
        clock=clock,
    )
    holds = None
    if queue.guarantee == "claim":
        name = hold_name(options.subscription, queue.consumer_name)
        holds = HoldCursors(client, name, consumers.mark_deletes, clock)
    return QueueDriver(options, queue, consumers, holds, clock)


def _with_retry_topic(selection: Selection, subscription: str, client: Client) -> Selection:
    """Clients with retries name the retry topic after their first topic, and make it when they subscribe."""
    policy = DeadLetterPolicy(max_redeliver_count=MAX_REDELIVER_COUNT_DEFAULT)
    try:
        retry = letter_topics(TopicName.parse(selection.names[0]), subscription, policy, retry=True).retry
    except InvalidTopicNameError as error:
        raise ConfigError(
            f"retryEnabled: {error.message}",
            hint="leave retryEnabled out and name the retry topic as one of the topics; copies go there by "
            "retry_later(..., retry_letter_topic=..., dead_letter_topic=...)",
        ) from error
    assert retry is not None
    if client.existing_partitions(str(retry)) is None:
        client.create_producer(str(retry)).close()
    return Selection((*selection.topics, (str(retry), None)))
