# SPDX-License-Identifier: Apache-2.0
"""Rows that failed in a query: copies to the retry topic, to come again later, or to the dead letter topic.

    rows = spark.readStream.format("pulsarish").option("columns", "all")...

    def process(batch, _):
        failed = ...
        pulsarish_spark.retry_later(failed, 60, topic="orders", subscription="work")

For ``foreachBatch`` of a query with a ``subscriptionType``. The copies have Pulsar's names of topics and properties, so
ordinary consumers with retries read those of a query and the other way round; the originals are acknowledged with their
batch. A batch that is run again after a crash sends its copies again: ORIGIN_MESSAGE_ID and RECONSUMETIMES tell.
Source: semantics 4.6, 4.7.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import BinaryType, StringType
from pyspark.sql.utils import is_remote

from broker_core.base.errors import ConfigError
from broker_core.base.names import TopicName
from broker_core.client import DeadLetterPolicy
from broker_core.client.dead_letters.letter_copies import (
    DELAY_TIME,
    ORIGIN_MESSAGE_ID,
    REAL_SUBSCRIPTION,
    REAL_TOPIC,
    RECONSUMETIMES,
)
from broker_core.client.settings.policies import MAX_REDELIVER_COUNT_DEFAULT, letter_topics
from pulsarish_spark.connecting.connection import connected
from pulsarish_spark.options import DELIVER_AFTER_MS_MAX, Side, names_broker, option_texts, write_options

_TIMES_MAX: Final = 2**31 - 2
"""Clients count to one more in 32 bits."""

_NEEDED: Final = ("value", "topic", "message_id", "properties")
_COPIED: Final = ("key", "key_is_bytes", "value", "ordering_key", "event_time")
_RAW: Final = "raw_value"
_READ_WITH: Final = '.option("columns", "key,key_is_bytes,value,topic,message_id,properties,ordering_key,event_time")'


def retry_later(
    rows: DataFrame,
    delay_s: float,
    *,
    topic: str,
    subscription: str,
    max_redeliver: int = MAX_REDELIVER_COUNT_DEFAULT,
    retry_letter_topic: str | None = None,
    dead_letter_topic: str | None = None,
    **options: object,
) -> None:
    """Let ``rows`` come again after ``delay_s``; those that came ``max_redeliver`` times so become dead letters.

    ``rows`` have columns of the source, which its option ``columns`` names: value, topic (full names), message_id and
    properties, and those of key, key_is_bytes, ordering_key and event_time that copies should have. ``topic``: the
    query's, of several the first by name. ``retry_letter_topic`` and ``dead_letter_topic``: other topics than
    ``TOPIC-SUBSCRIPTION-RETRY`` and ``-DLQ``, which a subscription with a slash in its name needs. ``options``: of the
    sink. Rows do not tell where they are from: of a query with an address of its own name it, as
    ``**{"service.url": "pulsar://host:6650"}``. Else copies go to the broker of the environment, or to the embedded
    one, if it has ``topic``. Returns when all copies are stored; ConfigError if it has not, or if a column is missing.
    A copy comes to the consumers that subscribed to the retry topic (``retryEnabled``).
    """
    _check(rows)
    if not 0 <= delay_s * 1000 <= DELIVER_AFTER_MS_MAX:
        raise ConfigError(
            f"a delay of {delay_s:g} s is not possible",
            hint=f"use 0 to {DELIVER_AFTER_MS_MAX // 1000} seconds, which is a century",
        )
    policy = DeadLetterPolicy(
        max_redeliver_count=max_redeliver,
        retry_letter_topic=retry_letter_topic,
        dead_letter_topic=dead_letter_topic,
    )
    topics, delay_ms = letter_topics(TopicName.parse(topic), subscription, policy, retry=True), round(delay_s * 1000)
    times = _number_of(RECONSUMETIMES) + 1
    is_dead = times > max_redeliver
    counts = {RECONSUMETIMES: times.cast("string"), DELAY_TIME: functions.lit(str(delay_ms))}
    extra = {
        "topic": functions.when(is_dead, functions.lit(str(topics.dead))).otherwise(functions.lit(str(topics.retry))),
        "properties": _properties(_first(subscription) | counts),
    }
    if delay_ms:
        due = functions.current_timestamp() + functions.expr(f"make_dt_interval(0, 0, 0, {delay_ms / 1000})")
        extra["deliver_at"] = functions.when(~is_dead, due)
    _check_broker(topic, options)
    _send(rows, extra, options)


def dead_letter(
    rows: DataFrame, *, topic: str, subscription: str, dead_letter_topic: str | None = None, **options: object
) -> None:
    """Give ``rows`` up: copies go to ``dead_letter_topic``, or to ``TOPIC-SUBSCRIPTION-DLQ``. As ``retry_later``
    else."""
    _check(rows)
    policy = DeadLetterPolicy(max_redeliver_count=MAX_REDELIVER_COUNT_DEFAULT, dead_letter_topic=dead_letter_topic)
    # Named after the topic itself, as with retries: of a partition its topic is meant.
    dead = letter_topics(TopicName.parse(topic).base, subscription, policy, retry=False).dead
    _check_broker(topic, options)
    _send(rows, {"topic": functions.lit(str(dead)), "properties": _properties(_first(subscription))}, options)


def _check(rows: DataFrame) -> None:
    missing = [name for name in _NEEDED if name not in rows.columns]
    if missing:
        raise ConfigError(
            f"the rows have no column {' and no '.join(missing)}, which a copy needs",
            hint=f"give the query {_READ_WITH}, which are all that a copy can have, and keep them in the rows",
        )

    if _RAW not in rows.columns and not isinstance(rows.schema["value"].dataType, BinaryType | StringType):
        raise ConfigError(
            "the column value has a type by valueFormat, and a copy needs the bytes of the message",
            hint=f"add {_RAW} to the columns of the query, and keep it in the rows",
        )


def _check_broker(topic: str, options: Mapping[str, object]) -> None:
    """ConfigError where ``options`` name no broker, and the one that copies would go to has no such topic.

    Rows do not tell where they are from. Elsewhere nobody would read the copies, and the originals are acknowledged.
    """
    given = option_texts(None, options)
    if names_broker(given, Side.BATCH_WRITE) or is_remote():  # The embedded broker of a remote session is not ours.
        return
    address = write_options(given, Side.BATCH_WRITE, os.environ).address
    with connected(address) as client:
        if client.existing_partitions(topic) is None:
            where = address.service_url or f"the embedded broker of {address.data_dir}"
            raise ConfigError(
                f"{where} has no topic {topic}, so the rows cannot be from there",
                hint='of a query with an address of its own, name its broker: **{"service.url": "pulsar://host:6650"}',
            )


def _first(subscription: str) -> dict[str, Column]:
    """The first place of a message, which stays the same in every copy."""
    return {
        REAL_TOPIC: functions.coalesce(_property(REAL_TOPIC), functions.col("topic")),
        ORIGIN_MESSAGE_ID: functions.coalesce(_property(ORIGIN_MESSAGE_ID), functions.col("message_id")),
        REAL_SUBSCRIPTION: functions.lit(subscription),
    }


def _property(name: str) -> Column:
    return functions.element_at(functions.col("properties"), name)


def _number_of(name: str) -> Column:
    """A property that counts, as a bigint; 0 where there is none, or none that is a number from 0 up. Anybody can
    write the largest number there is, so the count ends where one more still fits."""
    least, most = (functions.lit(bound).cast("bigint") for bound in (0, _TIMES_MAX))
    counted = functions.coalesce(_property(name).try_cast("bigint"), least)
    return functions.greatest(least, functions.least(counted, most))


def _properties(system: Mapping[str, Column]) -> Column:
    """The message's own, with ``system`` over them."""
    own = functions.map_filter("properties", lambda name, _: ~name.isin(*system))
    pairs = [part for name, value in system.items() for part in (functions.lit(name), value)]
    return functions.coalesce(functions.map_concat(own, functions.create_map(*pairs)), functions.create_map(*pairs))


def _send(rows: DataFrame, extra: Mapping[str, Column], options: Mapping[str, object]) -> None:
    copied = {name: functions.col(name) for name in _COPIED if name in rows.columns}
    if _RAW in rows.columns:
        copied["value"] = functions.col(_RAW)
    if "key_is_bytes" in copied:
        # Null: text where it is UTF-8. Clients in other languages send what is not as text too; a copy has its bytes.
        copied["key_is_bytes"] = functions.when(copied["key_is_bytes"], True)
    letters = rows.select(*(column.alias(name) for name, column in (copied | dict(extra)).items()))
    letters.write.format("pulsarish").options(**option_texts(None, options)).mode("append").save()
