# SPDX-License-Identifier: Apache-2.0
"""Policies of a consumer: dead letters, the sharing of keys, the backoff of redeliveries. Pure.

Source: semantics 2.2.4, 2.6 to 2.9, 4.2.6, 4.3.3, 4.6.2, 4.7.1; Pulsar docs, "Messaging - Dead letter topic", "Retry
letter topic", "Negative acknowledgment", "Acknowledgment timeout" (MultiplierRedeliveryBackoff), "Key_Shared"; PIP-106.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import msgspec

from broker_core.base.errors import ConfigError, InvalidTopicNameError
from broker_core.base.names import TopicName, shown_name
from broker_core.client.settings.checked_settings import CheckedSettings
from broker_core.wire.proto import pulsar_api_pb2 as pb

RETRY_SUFFIX: Final = "-RETRY"
DEAD_LETTER_SUFFIX: Final = "-DLQ"
MAX_REDELIVER_COUNT_DEFAULT: Final = 16
"""Redeliveries of a message to a consumer with retry enabled and no policy."""

LetterTopicName: TypeAlias = Callable[[str, str, str], str]
"""Makes the name of a retry or dead letter topic from a topic, a subscription and the suffix."""


def letter_topic_name(topic: str, subscription: str, suffix: str) -> str:
    """Pulsar's names: ``<topic>-<subscription>-RETRY`` and ``<topic>-<subscription>-DLQ``."""
    return f"{topic}-{subscription}{suffix}"


class DeadLetterPolicy(CheckedSettings, frozen=True, kw_only=True):
    """Limit at which a message is given up, and where its copies go.

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
    """Topics of the copies from ``topic``. With ``retry`` its partitions share them, otherwise each has its own."""
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


KeySharedMode = Literal["auto_split", "sticky"]

SLOT_MAX: Final = 65_535


class KeySharedPolicy(CheckedSettings, frozen=True, kw_only=True):
    """Sharing of the keys of a subscription, as a consumer wants it.

    With ``mode`` auto_split the broker decides which keys a consumer gets; with sticky the consumer brings ranges of
    slots (``sticky_ranges``: pairs of first and last slot, both included, each 0 to 65535, without overlaps). The slot
    of a key is murmur3(key) modulo 65,536. On an Exclusive subscription sticky ranges are a filter: entries outside of
    them are not delivered and count as acknowledged. ``allow_out_of_order_delivery``: a new consumer gets its keys at
    once, though another one may still be busy with older messages of them.
    """

    mode: KeySharedMode = "auto_split"
    sticky_ranges: tuple[tuple[int, int], ...] = ()
    allow_out_of_order_delivery: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.mode == "sticky") is not bool(self.sticky_ranges):
            raise ConfigError(
                f"key_shared mode {self.mode} has {len(self.sticky_ranges)} sticky ranges",
                hint="give sticky_ranges if and only if the mode is sticky",
            )
        below = -1
        for start, end in sorted(self.sticky_ranges):
            if not 0 <= start <= end <= SLOT_MAX:
                raise ConfigError(
                    f"sticky range ({start}, {end}) is no range of slots",
                    hint=f"give (first, last) with first not above last, both from 0 to {SLOT_MAX}",
                )
            if start <= below:
                raise ConfigError(
                    f"sticky range ({start}, {end}) overlaps with another one", hint="both ends are included"
                )
            below = end

    def check_type(self, subscription_type: str) -> None:
        """ConfigError if a subscription of that type has no use for this policy."""
        if subscription_type == "key_shared" or (subscription_type == "exclusive" and self.mode == "sticky"):
            return
        raise ConfigError(
            f"key_shared_policy does not go with the subscription type {subscription_type!r}",
            hint="use the type key_shared, or exclusive with sticky ranges as a filter",
        )

    def meta(self) -> pb.KeySharedMeta:
        """The policy as a field of the SUBSCRIBE command."""
        return pb.KeySharedMeta(
            keySharedMode=self.mode.upper(),
            hashRanges=[pb.IntRange(start=start, end=end) for start, end in self.sticky_ranges],
            allowOutOfOrderDelivery=self.allow_out_of_order_delivery,
        )


class RedeliveryBackoff(CheckedSettings, frozen=True, kw_only=True):
    """The wait of a message before it is asked for again: ``min_s`` after the first delivery, ``multiplier`` times as
    long after each further one, at most ``max_s``."""

    min_s: Annotated[float, msgspec.Meta(ge=0)] = 10.0
    max_s: float = 600.0
    multiplier: Annotated[float, msgspec.Meta(ge=1)] = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.min_s <= self.max_s:
            raise ConfigError(f"min_s {self.min_s!r} is above max_s {self.max_s!r}", hint="use min_s <= max_s")

    def delay_s(self, redelivery_count: int) -> float:
        """The delay of a message that the broker had delivered ``redelivery_count`` times before."""
        if redelivery_count <= 0:
            return self.min_s
        try:
            return min(self.min_s * self.multiplier**redelivery_count, self.max_s)
        except OverflowError:
            return self.max_s
