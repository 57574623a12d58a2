# SPDX-License-Identifier: Apache-2.0
"""The options that say how often a row may be written (``GUARANTEEING``), and where that is decided."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from broker_core.base.errors import ConfigError
from broker_core.base.names import SPARK_SINK_PREFIX, NamespaceName, TopicName
from pulsarish_spark.options.option import Option, Side, milliseconds, one_of

TIMEOUT_S_DEFAULT: Final = 3600.0

AT_LEAST_ONCE: Final = '.option("deliveryGuarantee", "at-least-once")'
"""The way out where transactions cannot be used."""

_INTENTS: Final = f"{SPARK_SINK_PREFIX}~intents"
"""No id has that letter."""

_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_HASH_DIGITS: Final = 32
_OF_LOCKS: Final = "a batch read acknowledges nothing; remove it"
_OF_TRANSACTIONS: Final = ("transactionalId", "transactionTimeoutMs", "onUnknownTransaction")


class TransactionalId(NamedTuple):
    """The name of a stream or job, and the namespace of its control topic; "": that of the topic."""

    name: str
    namespace: str = ""


def _transactional_id(text: str) -> TransactionalId:
    namespace, _, name = text.strip().rpartition("/")
    if not _ID.fullmatch(name):
        raise ValueError(
            "it takes up to 128 letters, digits, points, hyphens and underscores, behind tenant/namespace/ if wanted"
        )
    return TransactionalId(name, str(NamespaceName.parse(namespace)) if namespace else "")


GUARANTEEING: Final = (
    Option(
        "deliveryGuarantee",
        one_of(("exactly-once", "at-least-once")),
        "at-least-once",
        "exactly-once: the rows of a micro-batch, or of a batch write, are committed by transactions, once, whatever "
        "is killed or run again; an error where the brokers have none. at-least-once: a task or micro-batch that is "
        "run again writes its rows again. Default exactly-once where the brokers have transactions "
        "(transactionCoordinatorEnabled), else at-least-once, with a warning.",
        sides=Side.WRITE,
    ),
    Option(
        "transactionalId",
        _transactional_id,
        "load-2026-11-28",
        "The name of a stream or of a batch write that is written exactly once, which it asks for. Of the drivers that "
        "write under one id only the last that began can commit. A batch write whose id was committed before writes "
        "nothing. Its control topic is in the namespace of the topic; tenant/namespace/ before the id names another. "
        "Default: of a stream the location of its checkpoint, as a hash; a batch write has no id. A source with "
        "queueGuarantee lock that has the id of its query's sink is acknowledged by the sink's decisions "
        "([exactly-once.md](exactly-once.md#from-a-queue-to-a-sink-in-one-decision)).",
        wrong_side=_OF_LOCKS,
        sides=Side.WRITE | Side.STREAM_READ,
    ),
    Option(
        "transactionTimeoutMs",
        milliseconds,
        "3600000",
        "Milliseconds after which the broker aborts a task's transaction: longer than a micro-batch or batch write "
        "takes, and than its driver may be away between the decision about it and its commit. Of a source with "
        "queueGuarantee lock: those of a batch's lock, which half of it is left to when the batch begins. Default "
        "3600000, an hour.",
        wrong_side="a batch read locks nothing; remove it",
        sides=Side.WRITE | Side.STREAM_READ,
    ),
    Option(
        "onUnknownTransaction",
        one_of(("fail", "assumeCommitted")),
        "assumeCommitted",
        "Where a driver was away for longer than transactionTimeoutMs between a decision and its commit, an Apache "
        "Pulsar does not tell whether transactions were committed. Default fail: the query stops and names them. "
        "assumeCommitted: it goes on with a warning, and rows may be missing. Transactions that are known to be "
        "aborted fail it always.",
        sides=Side.WRITE,
    ),
)


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """How rows are written exactly once, where the brokers have transactions.

    ``control``: the control topic; "" for a batch write without an id, and for a stream whose name is not known.
    ``intents``: the topic in which the tasks of batch writes without ids tell of their transactions.
    ``is_asked_for``: by the user, so that it is an error where it cannot be had; else it is the default.
    """

    control: str = ""
    timeout_s: float = TIMEOUT_S_DEFAULT
    is_asked_for: bool = False
    assumes_committed: bool = False
    intents: str = ""


def exactly_once_of(given: Mapping[str, Any], side: Side, checkpoint: str) -> ExactlyOnce | None:
    """How rows are written exactly once; None: at least once. ``checkpoint``: its location, "" if not known."""
    topic = TopicName.parse(given.get("topic", "public/default/t"))
    alone = [name for name in _OF_TRANSACTIONS if name in given]
    is_asked_for = given.get("deliveryGuarantee") == "exactly-once" or "transactionalId" in given
    if given.get("deliveryGuarantee") == "at-least-once":
        if alone:
            raise ConfigError(
                f"option {alone[0]} means nothing without transactions",
                hint="remove it, or the option deliveryGuarantee=at-least-once",
            )
        return None
    if not topic.persistent:
        if is_asked_for:
            raise ConfigError(f"{topic} keeps nothing, so no row is there exactly once", hint=f"use {AT_LEAST_ONCE}")
        return None
    control = _control_topic(given, topic, side, checkpoint, is_asked_for=is_asked_for)
    return ExactlyOnce(
        control,
        given.get("transactionTimeoutMs", TIMEOUT_S_DEFAULT),
        is_asked_for,
        given.get("onUnknownTransaction") == "assumeCommitted",
        "" if control or side is Side.STREAM_WRITE else f"persistent://{topic.namespace_name}/{_INTENTS}",
    )


def control_topic(named: TransactionalId, namespace: str) -> str:
    """The control topic of a stream or job that writes a topic of ``namespace``."""
    return f"persistent://{named.namespace or namespace}/{SPARK_SINK_PREFIX}{named.name}"


def _control_topic(
    given: Mapping[str, Any], topic: TopicName, side: Side, checkpoint: str, *, is_asked_for: bool
) -> str:
    """The control topic, "" if there is none."""
    named: TransactionalId | None = given.get("transactionalId")
    if named is None and side is Side.STREAM_WRITE and checkpoint:
        named = TransactionalId(hashlib.sha256(checkpoint.encode()).hexdigest()[:_HASH_DIGITS])
    if named is not None:
        return control_topic(named, str(topic.namespace_name))
    if side is Side.STREAM_WRITE and is_asked_for:
        raise ConfigError(
            "where rows are written exactly once the stream needs a name, and its checkpoint is not known here",
            hint='give .option("checkpointLocation", ...), or .option("transactionalId", ...)',
        )
    return ""
