# SPDX-License-Identifier: Apache-2.0
"""When a message is given up, and the names of its retry topic and its dead letter topic. Pure.

Source: semantics 4.6.2, 4.7.1; Pulsar docs, "Messaging - Dead letter topic" and "Retry letter topic".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec

from broker_core.base.errors import InvalidTopicNameError
from broker_core.base.names import TopicName, shown_name
from broker_core.client.settings.checked_settings import CheckedSettings

RETRY_SUFFIX: Final = "-RETRY"
DEAD_LETTER_SUFFIX: Final = "-DLQ"
MAX_REDELIVER_COUNT_DEFAULT: Final = 16
"""How often a message is redelivered to a consumer with retry enabled and no policy."""

LetterTopicName: TypeAlias = Callable[[str, str, str], str]
"""Makes the name of a retry or dead letter topic from a topic, a subscription and the suffix."""


def letter_topic_name(topic: str, subscription: str, suffix: str) -> str:
    """Pulsar's names: ``<topic>-<subscription>-RETRY`` and ``<topic>-<subscription>-DLQ``."""
    return f"{topic}-{subscription}{suffix}"


class DeadLetterPolicy(CheckedSettings, frozen=True, kw_only=True):
    """When a message is given up, and where its copies go.

    A message is shown ``max_redeliver_count`` + 1 times. Topics that are not named get a name by ``topic_name``.
    ``initial_subscription_name``: created with the dead letter topic, so that its messages are kept for it.
    """

    max_redeliver_count: Annotated[int, msgspec.Meta(ge=1)]
    dead_letter_topic: str | None = None
    retry_letter_topic: str | None = None
    initial_subscription_name: str | None = None
    topic_name: LetterTopicName = letter_topic_name


class LetterTopics(NamedTuple):
    """The dead letter topic and the retry topic of a subscription. ``retry`` None: retry is not enabled."""

    dead: TopicName
    retry: TopicName | None


def letter_topics(topic: TopicName, subscription: str, policy: DeadLetterPolicy, *, retry: bool) -> LetterTopics:
    """Where copies from ``topic`` go. With ``retry`` its partitions share the topics, otherwise each has its own."""
    origin = str(topic.base if retry else topic)

    def named(name: str | None, suffix: str, setting: str) -> TopicName:
        if name is not None:
            return TopicName.parse(name)
        made = policy.topic_name(origin, subscription, suffix)
        try:
            return TopicName.parse(made)
        except InvalidTopicNameError as error:
            raise InvalidTopicNameError(
                f"subscription {shown_name(subscription)} has no default topic {suffix}: {error.message}",
                hint=f"name another topic by {setting}, or choose another subscription name",
            ) from error

    dead = named(policy.dead_letter_topic, DEAD_LETTER_SUFFIX, "dead_letter_topic")
    return LetterTopics(dead, named(policy.retry_letter_topic, RETRY_SUFFIX, "retry_letter_topic") if retry else None)
