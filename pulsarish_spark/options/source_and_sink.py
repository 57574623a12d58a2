# SPDX-License-Identifier: Apache-2.0
"""The options of one source or sink: the whole set of them, checked together and typed.

Knows nothing of brokers or of Spark's classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from broker_core.base.clock import SystemClock
from broker_core.base.errors import ConfigError
from broker_core.base.names import TopicName
from pulsarish_spark.connecting.connection import Address
from pulsarish_spark.options.batch_limits import DIVIDING, Amounts, amounts_of
from pulsarish_spark.options.connecting import CONNECTING, SECURING, address_of
from pulsarish_spark.options.data_loss import LOSING, OnLoss, check_losing
from pulsarish_spark.options.guarantee import ExactlyOnce, exactly_once_of
from pulsarish_spark.options.option import Side, filled
from pulsarish_spark.options.rows import FILTERING, SHAPING, TopicNames, check_key_ranges, columns_of, kept_rows_of
from pulsarish_spark.options.sending import MAKING, SENDING, KeyForm
from pulsarish_spark.options.start_and_end import BOUNDS, check_times, end_of, start_of
from pulsarish_spark.options.subscriptions import FOLLOWING, QueueOptions, check_following, queue_of
from pulsarish_spark.options.table import OF_A_QUERY, parse_all, texts_of
from pulsarish_spark.options.topics import (
    DISCOVERY_S,
    READ_COMPACTED,
    REPLAY_FILE,
    SELECTING,
    SELECTORS,
    given_names,
    selection_of,
)
from pulsarish_spark.options.value_writing import ValueWriting, value_writing_of
from pulsarish_spark.options.values import ValueOptions, values_of
from pulsarish_spark.places.start_spec import Bound, Word
from pulsarish_spark.places.topics import Selection
from pulsarish_spark.rows.kept_rows import KeptRows
from pulsarish_spark.rows.schema import TopicColumns
from pulsarish_spark.rows.typed_values import TypedValues


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of a source; the values here are the defaults. ``now_ms``: from when times count back.

    ``dividing``: those of ``TaskOptions``, which has their defaults.
    """

    address: Address
    selection: Selection
    columns: tuple[str, ...]
    topic_names: TopicNames = "full"
    given_names: Mapping[str, str]  # as the user called topics, by their full names
    starting: Bound
    ending: Bound
    now_ms: int
    no_match: str = "error"
    kept: KeptRows
    key_ranges: int | None = None
    amounts: Amounts
    dividing: Mapping[str, int]
    on_loss: OnLoss = "fail"
    quarantine_directory: str = ""  # empty unless on_loss is quarantine
    subscription: str = ""  # empty: one of its own
    subscription_prefix: str = ""  # of the name of its own; empty: the usual one
    initial_position: Word | None = None  # where a subscription begins that is not there
    skip_unread: bool = False
    discovery_s: float = DISCOVERY_S
    compacted: bool = False
    queue: QueueOptions | None = None  # None: the query reads alone, by positions
    values: ValueOptions = field(default_factory=ValueOptions)
    typed: TypedValues | None = None  # None: values are bytes, or nobody has asked for the topic's schema yet

    def columns_of(self, topic: str) -> TopicColumns:
        """The columns of a topic's rows, by its full name."""
        if self.topic_names == "full":
            return TopicColumns(self.columns, typed=self.typed)
        given = self.given_names.get(topic) if self.topic_names == "as-given" else None
        return TopicColumns(self.columns, given or TopicName.parse(topic).short, self.typed)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a sink. ``writing``: those that are settings of the client's writer, which has their defaults."""

    address: Address
    topic: str
    column_names: str
    key_form: KeyForm = "auto"
    deliver_after_ms: int = 0
    values: ValueWriting
    writing: Mapping[str, Any]
    once: ExactlyOnce | None = None  # None: at least once


_READING: Final = (*SELECTING, *SHAPING, *BOUNDS, *FILTERING, *LOSING, *FOLLOWING)


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
    check_key_ranges(given)
    check_losing(given)
    check_following(given)
    selection = selection_of(given)
    return ReadOptions(
        # A stream reads the log as well.
        address=replace(
            address_of(given, environment), compacted=side is Side.BATCH_READ and given.get(READ_COMPACTED, False)
        ),
        selection=selection,
        columns=columns_of(given),
        given_names=given_names(texts_of(raw)),
        starting=start_of(given, side),
        ending=end_of(given, side),
        now_ms=now_ms,
        kept=kept_rows_of(given, now_ms),
        amounts=amounts_of(given, selection),
        dividing=filled(DIVIDING, given),
        queue=queue_of(given, selection.namespace),
        values=values_of(given),
        **filled(_READING, given),
    )


def write_options(raw: Mapping[str, str], side: Side, environment: Mapping[str, str]) -> WriteOptions:
    """Check ``raw`` for ``side`` and give it types; ConfigError says what is wrong."""
    sparks_own = OF_A_QUERY if side is Side.STREAM_WRITE else frozenset()
    given = parse_all({key: text for key, text in raw.items() if key.lower() not in sparks_own}, side)
    checkpoint = {key.lower(): text for key, text in raw.items()}.get("checkpointlocation", "").rstrip("/")
    return WriteOptions(
        address=address_of(given, environment),
        topic=given.get("topic", ""),
        column_names=given.get("columnNames", "pulsarish"),
        values=value_writing_of(given),
        writing=filled(SENDING, given),
        once=exactly_once_of(given, side, checkpoint),
        **filled(MAKING, given),
    )
