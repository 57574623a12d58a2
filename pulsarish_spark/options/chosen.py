# SPDX-License-Identifier: Apache-2.0
"""What one source or sink was asked for: the whole set of its options, checked together and typed.

Knows nothing of brokers or of Spark's classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker_core.base.clock import SystemClock
from broker_core.base.errors import ConfigError
from broker_core.base.hashing import HASHING_SCHEME_DEFAULT, HashingScheme
from broker_core.base.names import TopicName
from pulsarish_spark.connecting.connection import Address
from pulsarish_spark.options.amounts import Amounts, amounts_of
from pulsarish_spark.options.bounds import check_times, end_of, start_of
from pulsarish_spark.options.connecting import CONNECTING, address_of
from pulsarish_spark.options.filtering import kept_rows_of, key_ranges_of
from pulsarish_spark.options.following import initial_position_of, prefix_of
from pulsarish_spark.options.losing import OnLoss, quarantine_directory_of
from pulsarish_spark.options.option import Side
from pulsarish_spark.options.queueing import QueueOptions, queue_of
from pulsarish_spark.options.refused import OF_A_QUERY
from pulsarish_spark.options.replaying import REPLAY_FILE
from pulsarish_spark.options.securing import SECURING
from pulsarish_spark.options.selecting import DISCOVERY_S, SELECTORS, given_names, selection_of
from pulsarish_spark.options.sending import KeyForm
from pulsarish_spark.options.shaping import TopicNames, columns_of
from pulsarish_spark.options.table import parse_all, texts_of
from pulsarish_spark.places.start_spec import Bound, Word
from pulsarish_spark.places.topics import Selection
from pulsarish_spark.rows.kept_rows import KeptRows
from pulsarish_spark.rows.schema import TopicColumns


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a source was asked for. None: not given. ``now_ms``: from when times count back."""

    address: Address
    selection: Selection
    columns: tuple[str, ...]
    topic_names: TopicNames
    given_names: Mapping[str, str]  # as the user called topics, by their full names
    starting: Bound
    ending: Bound
    now_ms: int
    no_match: str
    kept: KeptRows
    key_ranges: int | None
    amounts: Amounts
    min_partitions: int | None
    input_partitions: int | None
    max_records_per_partition: int | None
    on_loss: OnLoss
    quarantine_directory: str  # empty unless on_loss is quarantine
    subscription: str  # empty: one of its own
    subscription_prefix: str  # of the name of its own; empty: the usual one
    initial_position: Word | None  # where a subscription begins that is not there
    skip_unread: bool
    discovery_s: float
    queue: QueueOptions | None = None  # None: the query reads alone, by positions

    def columns_of(self, topic: str) -> TopicColumns:
        """The columns of a topic's rows, by its full name."""
        if self.topic_names == "full":
            return TopicColumns(self.columns)
        given = self.given_names.get(topic) if self.topic_names == "as-given" else None
        return TopicColumns(self.columns, given or TopicName.parse(topic).short)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a sink was asked for. Zero in a limit, "" in a word: the writer's own default."""

    address: Address
    topic: str
    compression: str
    hashing_scheme: HashingScheme
    key_form: KeyForm
    messages_max: int
    bytes_max: int
    routing_mode: str
    batching_type: str
    in_chunks: bool
    chunk_bytes_max: int
    deliver_after_ms: int
    send_timeout_s: float
    unconfirmed_bytes_max: int
    column_names: str

    def writing(self) -> dict[str, Any]:
        """The arguments of the client's ``write_rows``."""
        chosen: dict[str, Any] = {"compression": self.compression, "hashing_scheme": self.hashing_scheme}
        limits: dict[str, Any] = {
            "batching_max_messages": self.messages_max,
            "batching_max_bytes": self.bytes_max,
            "message_routing_mode": self.routing_mode,
            "batching_type": self.batching_type,
            "chunking_enabled": self.in_chunks,
            "chunk_max_message_size": self.chunk_bytes_max,
            "send_timeout_s": self.send_timeout_s,
            "window_bytes_max": self.unconfirmed_bytes_max,
        }
        return chosen | {name: limit for name, limit in limits.items() if limit}


def option_texts(topic: str | None, options: Mapping[str, object]) -> dict[str, str]:
    """Options that were given as Python values, and the topic beside them, as Spark hands them over."""
    given = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    return given if topic is None else given | {"path": topic}


def names_topics(raw: Mapping[str, str], side: Side = Side.READ) -> bool:
    """Whether ``raw`` says what to read; ConfigError if the source does not have such options."""
    return not parse_all(raw, side).keys().isdisjoint(SELECTORS)


def names_broker(raw: Mapping[str, str], side: Side) -> bool:
    """Whether ``raw`` itself says which broker; ConfigError if ``side`` does not have such options."""
    return not parse_all(raw, side).keys().isdisjoint({"service.url", "data.dir"})


def replay_file(raw: Mapping[str, str]) -> str:
    """The exported batch that is to be read instead of a topic; "" if none is. ConfigError if more is asked for."""
    if REPLAY_FILE.lower() not in map(str.lower, raw):
        return ""
    given = parse_all(raw, Side.READ)
    if others := sorted(given.keys() - {REPLAY_FILE}):
        raise ConfigError(
            f"option {others[0]} means nothing beside {REPLAY_FILE}",
            hint="a replay has the rows and the columns of the exported batch; remove it",
        )
    path: str = given[REPLAY_FILE]
    return path


def exported_options(raw: Mapping[str, str]) -> dict[str, str]:
    """``raw``, by proper names, without what says who connects."""
    secret = {option.name for option in SECURING}
    return {name: text for name, text in texts_of(raw).items() if name not in secret}


def address_options(raw: Mapping[str, str], environment: Mapping[str, str]) -> Address:
    """The broker that ``raw`` names, which may say nothing else; ConfigError if it does, or says it wrong."""
    given = parse_all(raw, Side.BATCH_READ)
    names = [option.name for option in (*CONNECTING, *SECURING)]
    if others := sorted(given.keys() - {*names}):
        raise ConfigError(f"option {others[0]} does not say which broker", hint=f"those that do are {', '.join(names)}")
    return address_of(given, environment)


def read_options(raw: Mapping[str, str], side: Side, environment: Mapping[str, str]) -> ReadOptions:
    """Check ``raw`` for ``side`` (READ: not known yet which of both) and give it types; ConfigError if it is wrong."""
    given = parse_all(raw, side)
    if REPLAY_FILE in given:
        raise ConfigError(f"option {REPLAY_FILE} works in spark.read alone", hint="use pulsarish_spark.replay(path)")
    now_ms = SystemClock().now_ms()
    check_times(given, now_ms)
    selection = selection_of(given)
    return ReadOptions(
        address=address_of(given, environment),
        selection=selection,
        columns=columns_of(given),
        topic_names=given.get("topicNames", "full"),
        given_names=given_names(texts_of(raw)),
        starting=start_of(given, side),
        ending=end_of(given, side),
        now_ms=now_ms,
        no_match=given.get("startingOffsetsByTimestampStrategy", "error"),
        kept=kept_rows_of(given, now_ms),
        key_ranges=key_ranges_of(given),
        amounts=amounts_of(given, selection),
        min_partitions=given.get("minPartitions"),
        input_partitions=given.get("inputPartitions"),
        max_records_per_partition=given.get("maxRecordsPerPartition"),
        on_loss=given.get("failOnDataLoss", "fail"),
        quarantine_directory=quarantine_directory_of(given),
        subscription=given.get("subscriptionName", ""),
        subscription_prefix=prefix_of(given),
        initial_position=initial_position_of(given),
        skip_unread=given.get("skipUnread", False),
        discovery_s=given.get("partitionDiscoveryIntervalMs", DISCOVERY_S),
        queue=queue_of(given),
    )


def write_options(raw: Mapping[str, str], side: Side, environment: Mapping[str, str]) -> WriteOptions:
    """Check ``raw`` for ``side`` and give it types; ConfigError says what is wrong."""
    sparks_own = OF_A_QUERY if side is Side.STREAM_WRITE else frozenset()
    given = parse_all({key: text for key, text in raw.items() if key.lower() not in sparks_own}, side)
    return WriteOptions(
        address=address_of(given, environment),
        topic=given.get("topic", ""),
        compression=given.get("compression", "none"),
        hashing_scheme=given.get("hashingScheme", HASHING_SCHEME_DEFAULT),
        key_form=given.get("keyForm", "auto"),
        messages_max=given.get("batchingMaxMessages", 0),
        bytes_max=given.get("batchingMaxBytes", 0),
        routing_mode=given.get("messageRoutingMode", ""),
        batching_type=given.get("batchingType", ""),
        in_chunks=given.get("chunkingEnabled", False),
        chunk_bytes_max=given.get("chunkMaxMessageSize", 0),
        deliver_after_ms=given.get("deliverAfterMs", 0),
        send_timeout_s=given.get("sendTimeoutMs", 0.0),
        unconfirmed_bytes_max=given.get("memoryLimitBytes", 0),
        column_names=given.get("columnNames", "pulsarish"),
    )
