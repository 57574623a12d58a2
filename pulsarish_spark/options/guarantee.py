# SPDX-License-Identifier: Apache-2.0
"""The options that say how often a row of a stream may be written (``GUARANTEEING``), and where that is decided."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker_core.base.errors import ConfigError
from broker_core.base.names import TopicName
from pulsarish_spark.options.option import Option, Side, milliseconds, one_of

CONTROL_PREFIX: Final = "__spark_sink_"
"""The beginning of the names of control topics."""

TIMEOUT_S_DEFAULT: Final = 3600.0

_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_HASH_DIGITS: Final = 32
_STREAM_ONLY: Final = "is for streams, and a batch write is at-least-once; write the rows by writeStream, or remove it"


def _transactional_id(text: str) -> str:
    if not _ID.fullmatch(text.strip()):
        raise ValueError("it takes up to 128 letters, digits, points, hyphens and underscores")
    return text.strip()


GUARANTEEING: Final = (
    Option(
        "deliveryGuarantee",
        one_of(("at-least-once", "exactly-once")),
        "exactly-once",
        "exactly-once: the rows of a micro-batch are committed by transactions, once, whatever is killed or run again; "
        "the brokers need transactionCoordinatorEnabled=true. Default at-least-once: a task or micro-batch that is run "
        "again writes its rows again.",
        wrong_side=_STREAM_ONLY,
        sides=Side.STREAM_WRITE,
    ),
    Option(
        "transactionalId",
        _transactional_id,
        "orders-enriched",
        "The stream, where rows are written exactly once: of the drivers that write under one id only the last that "
        "began a batch can commit. Default: the location of the checkpoint, as a hash.",
        wrong_side=_STREAM_ONLY,
        sides=Side.STREAM_WRITE,
    ),
    Option(
        "transactionTimeoutMs",
        milliseconds,
        "3600000",
        "Milliseconds after which the broker aborts a task's transaction: longer than a micro-batch takes, and than "
        "its driver may be away between the decision about a batch and its commit. Of a source with "
        "queueGuarantee lock: those of a batch's lock, which half of it is left to when the batch begins. Default "
        "3600000, an hour.",
        wrong_side=_STREAM_ONLY,
        sides=Side.STREAM_WRITE | Side.STREAM_READ,
    ),
)


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """A stream that is written exactly once: its control topic, and the time limit of its transactions."""

    control: str
    timeout_s: float


def exactly_once_of(given: Mapping[str, Any], checkpoint: str) -> ExactlyOnce | None:
    """Whether, and how, a stream is written exactly once. ``checkpoint``: its location, "" if that is not known."""
    if given.get("deliveryGuarantee") != "exactly-once":
        if alone := [name for name in ("transactionalId", "transactionTimeoutMs") if name in given]:
            raise ConfigError(
                f"option {alone[0]} means nothing without transactions",
                hint='add .option("deliveryGuarantee", "exactly-once"), or remove it',
            )
        return None
    name = given.get("transactionalId")
    if name is None:
        if not checkpoint:
            raise ConfigError(
                "where rows are written exactly once the stream needs a name, and its checkpoint is not known here",
                hint='give .option("checkpointLocation", ...), or .option("transactionalId", ...)',
            )
        name = hashlib.sha256(checkpoint.encode()).hexdigest()[:_HASH_DIGITS]
    namespace = TopicName.parse(given.get("topic", "public/default/t")).namespace_name
    return ExactlyOnce(
        f"persistent://{namespace}/{CONTROL_PREFIX}{name}", given.get("transactionTimeoutMs", TIMEOUT_S_DEFAULT)
    )
