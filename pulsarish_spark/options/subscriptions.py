# SPDX-License-Identifier: Apache-2.0
"""The options of a stream's subscription: its own, by positions, or one that is shared with others, in queue mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from broker_core.base.errors import ConfigError
from pulsarish_spark.options.guarantee import TIMEOUT_S_DEFAULT, control_topic
from pulsarish_spark.options.option import Option, Side, count, filled, flag, milliseconds, one_of
from pulsarish_spark.options.start_and_end import STARTS
from pulsarish_spark.places.start_spec import OffsetSpec, Word
from pulsarish_spark.places.topics import kept_name, parse_subscription, parse_topic

FOLLOWING: Final = (
    Option(
        "subscriptionName",
        parse_subscription,
        "my-query",
        "Durable subscription that follows the checkpoint; one for each query. On one that is there a new query begins "
        "where it stands. Default: a new one of its own, called pulsarish-spark-..., which the checkpoint remembers.",
        ("predefinedSubscription", "kafka.group.id"),
        wrong_side="a batch read leaves no trace on the broker; remove it",
        fills="subscription",
        sides=Side.STREAM_READ,
    ),
    Option(
        "subscriptionPrefix",
        parse_subscription,
        "nightly",
        "What the name of the subscription begins with if subscriptionName is not given: nightly-..., a new one for "
        "each new query. A query with a checkpoint keeps the one that it has. Default pulsarish-spark.",
        ("groupIdPrefix",),
        wrong_side="a batch read leaves no trace on the broker; remove it",
        fills="subscription_prefix",
        sides=Side.STREAM_READ,
    ),
    Option(
        "subscriptionInitialPosition",
        one_of(("earliest", "latest")),
        "Earliest",
        "Where a query without a checkpoint begins if its subscription is not there yet: Latest (default) or Earliest. "
        "On one that is there it begins where that stands. startingOffsets says it too, and more; then leave this out.",
        ("pulsar.consumer.subscriptionInitialPosition",),
        wrong_side='a batch read has no subscription; say where it begins: .option("startingOffsets", "earliest")',
        fills="initial_position",
        sides=Side.STREAM_READ,
    ),
    Option(
        "skipUnread",
        flag,
        "true",
        "Whether startingOffsets or startingTimestamp may pass over what the subscription of a new query has not "
        "acknowledged, and acknowledge it unread. Default false: an error.",
        wrong_side="a batch read acknowledges nothing; remove it",
        fills="skip_unread",
        sides=Side.STREAM_READ,
    ),
)


def check_following(given: Mapping[str, Any]) -> None:
    """ConfigError where two options name the subscription, or say where it begins and differ."""
    if "subscriptionPrefix" in given and "subscriptionName" in given:
        raise ConfigError(
            f'options subscriptionPrefix, "{given["subscriptionPrefix"]}", and subscriptionName, '
            f'"{given["subscriptionName"]}", both name the subscription',
            hint="give the prefix for a name that is generated, or the whole name",
        )
    position = given.get("subscriptionInitialPosition")
    other = next((name for name in STARTS if name in given), None)
    if position is None or other is None or given[other] == OffsetSpec(position):
        return
    raise ConfigError(
        f"options subscriptionInitialPosition, {position}, and {other} both say where a new query begins, and differ",
        hint="give one of them; subscriptionInitialPosition leaves a subscription that is there where it stands",
    )


DEAD_LETTER_TOPIC: Final = "deadLetterTopic"

QueueType = Literal["shared", "key_shared"]
Guarantee = Literal["commit", "claim", "lock"]

QUIET_S_DEFAULT: Final = 1.0

_NO_QUEUE: Final = "only a stream shares a subscription; read with spark.readStream, or remove it"

_REFUSED: Final = {
    "minPartitions": "the driver divides a batch by its size over the cores",
    "inputPartitions": "which task reads what follows from what the broker gives",
    "maxRecordsPerPartition": "maxOffsetsPerTrigger bounds a batch, which is divided over the cores",
    "subscriptionPrefix": "a subscription that is shared has a name; give subscriptionName",
    "skipUnread": "a query takes what the subscription has not acknowledged",
    "startingTimestamp": "a subscription that is there says where it begins, and a new one begins earliest or latest",
    "startingOffsetsByTimestamp": "as startingTimestamp, it names places",
    "startingOffsetsByTimestampStrategy": "there is no startingTimestamp",
    "endingOffsets": "what the broker gives has no order, so it has no end; stop the query, or use availableNow",
    "endingTimestamp": "what the broker gives has no order, so it has no end; stop the query, or use availableNow",
    "endingOffsetsByTimestamp": "what the broker gives has no order, so it has no end; stop the query",
    "maxBytesPerTrigger": "maxOffsetsPerTrigger bounds a batch",
    "minOffsetsPerTrigger": "a batch takes what the broker gives, which others would wait for",
    "maxTriggerDelay": "there is no minOffsetsPerTrigger",
    "keyRanges": "give subscriptionType Key_Shared, which divides the keys among queries",
    "keyHashRange": "the broker says which messages come, and what comes is not dropped",
    "startingEventTime": "what comes is not dropped; filter on event_time",
    "endingEventTime": "what comes is not dropped; filter on event_time",
    "readCompacted": "brokers give the view of a compacted topic to one consumer alone",
    "topicWeights": "the broker says which messages come",
}
"""Options of a stream by positions, and why they mean nothing here."""


def _subscription_type(text: str) -> QueueType:
    types: dict[str, QueueType] = {"shared": "shared", "key_shared": "key_shared"}
    word = text.strip().lower()
    if word in ("exclusive", "failover"):
        raise ValueError(
            "a query that reads alone needs no type: without this option it goes by positions, which is exactly-once "
            "and faster"
        )
    if word not in types:
        raise ValueError("it takes Shared or Key_Shared")
    return types[word]


def _guarantee(text: str) -> Guarantee:
    guarantees: dict[str, Guarantee] = {"commit": "commit", "claim": "claim", "lock": "lock"}
    word = text.strip().lower()
    if word not in guarantees:
        raise ValueError("it takes commit, claim or lock")
    return guarantees[word]


def _priority(text: str) -> int:
    if not text.strip().isdecimal() or int(text) > 2**31 - 1:
        raise ValueError("it takes a whole number from 0 up")
    return int(text)


def _option(name: str, parse: Callable[[str], Any], example: str, meaning: str, fills: str) -> Option:
    return Option(name, parse, example, meaning, wrong_side=_NO_QUEUE, fills=fills, sides=Side.STREAM_READ)


QUEUEING: Final = (
    _option(
        "subscriptionType",
        _subscription_type,
        "Shared",
        "Shared or Key_Shared: the query is one consumer among others of subscriptionName "
        "([queues.md](queues.md)). Without it a query reads alone, by positions.",
        "type",
    ),
    _option(
        "queueGuarantee",
        _guarantee,
        "claim",
        "When a query with a subscriptionType acknowledges: commit (default), after the batch; claim, when Spark has "
        "noted what is in it, so that nobody else gets it while a killed query is away; or lock, before that and in a "
        "transaction, so that nobody else ever does. lock needs brokers with transactionCoordinatorEnabled=true.",
        "guarantee",
    ),
    _option(
        "queueConsumers",
        count,
        "4",
        "Consumers of such a query for each partition. A broker gives each so many messages that are not acknowledged "
        "(50000 by default), and by turns as much as any other consumer. Default: as many as maxOffsetsPerTrigger "
        "needs, at most 3; 1 without it.",
        "consumers",
    ),
    _option(
        "consumerName",
        kept_name,
        "spark",
        "Name of such a query's consumers in the broker's statistics; with claim also of its hold subscription, so "
        "that several queries on one subscription need several.",
        "consumer_name",
    ),
    _option(
        "priorityLevel",
        _priority,
        "1",
        "Priority of such a query's consumers: the broker serves lower levels first. Default 0.",
        "priority_level",
    ),
    _option(
        "availableNowQuietMs",
        milliseconds,
        "1000",
        "Such a query ends under AvailableNow when the broker has given nothing for so long. Default "
        f"{QUIET_S_DEFAULT * 1000:.0f}. What is delayed and not due is not waited for.",
        "quiet_s",
    ),
    Option(
        DEAD_LETTER_TOPIC,
        parse_topic,
        "orders-work-DLQ",
        "Where a query with a subscriptionType puts entries that cannot be decoded (encrypted, damaged), each as it is "
        "stored, before their batch is done; they are no losses then. Without it failOnDataLoss says what becomes of "
        "them. Any read with onBadRecord=dead-letter puts its bad records there. For rows that fail there is "
        "dead_letter ([queues.md](queues.md#rows-that-failed)).",
        fills="dead_letter_topic",
    ),
    _option(
        "retryEnabled",
        flag,
        "true",
        "Such a query also takes what is in the retry topic, TOPIC-SUBSCRIPTION-RETRY, and makes it if it is not "
        "there; as clients do that enable retries. Default false.",
        "retry",
    ),
)


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """The subscription that a query shares. ``consumers``: for each partition; None: as many as the limit needs."""

    type: QueueType
    guarantee: Guarantee = "commit"
    consumers: int | None = None
    consumer_name: str = ""
    priority_level: int = 0
    quiet_s: float = QUIET_S_DEFAULT
    retry: bool = False
    dead_letter_topic: str = ""  # for entries that cannot be decoded; empty: they are losses
    start: Word | None = None  # where the subscription must begin; None: not said
    new_start: Word = "latest"  # where it begins if it is not there
    lock_timeout_s: float = TIMEOUT_S_DEFAULT
    control: str = ""  # the control topic of the sink that acknowledges; empty: none does


def queue_of(given: Mapping[str, Any], namespace: str) -> QueueOptions | None:
    """None for a stream by positions; ConfigError for options that do not go together."""
    for name in ("transactionTimeoutMs", "transactionalId"):
        if name in given and given.get("queueGuarantee") != "lock":
            raise ConfigError(
                f"option {name} means nothing without transactions",
                hint='add .option("queueGuarantee", "lock"), or remove it',
            )
    if "subscriptionType" not in given:
        only = [option.name for option in QUEUEING if option.name in given and not _is_of_bad_records(option, given)]
        if only:
            raise ConfigError(
                f"option {only[0]} is for a query that shares its subscription",
                hint='give .option("subscriptionType", "Shared"), or remove it',
            )
        return None
    for name, why in _REFUSED.items():
        if name in given:
            raise ConfigError(f"option {name} does not work with subscriptionType: {why}", hint="remove it")
    if not given.get("subscriptionName"):
        raise ConfigError(
            "subscriptionType needs the name of the subscription that is shared",
            hint='example: .option("subscriptionName", "work")',
        )
    start = _start_of(given.get("startingOffsets"))
    if given.get("retryEnabled") and "topicsPattern" in given:
        raise ConfigError(
            "retryEnabled does not work with topicsPattern: a retry topic is named after the first topic",
            hint="name the topics, and the retry topic as one of them",
        )
    new_start = start or given.get("subscriptionInitialPosition", "latest")
    lock_timeout_s = given.get("transactionTimeoutMs", TIMEOUT_S_DEFAULT)
    named = given.get("transactionalId")
    return QueueOptions(
        start=start,
        new_start=new_start,
        lock_timeout_s=lock_timeout_s,
        control="" if named is None else control_topic(named, namespace),
        **filled(QUEUEING, given),
    )


def _is_of_bad_records(option: Option, given: Mapping[str, Any]) -> bool:
    return option.name == DEAD_LETTER_TOPIC and given.get("onBadRecord") == "dead-letter"


def _start_of(starting: OffsetSpec | None) -> Word | None:
    """The start of a new subscription; None: not said."""
    if starting is None:
        return None
    word = starting.everywhere
    if starting.topics or starting.partitions or (word != "earliest" and word != "latest"):
        raise ConfigError(
            "startingOffsets with places does not work with subscriptionType: a new subscription begins earliest or "
            "latest",
            hint="make the subscription where you want it (pulsarish sub create), and remove startingOffsets",
        )
    return word
