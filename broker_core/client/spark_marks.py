# SPDX-License-Identifier: Apache-2.0
"""How a durable subscription that the Spark source made is known again: by properties, or by a name it generated.

The source marks what it makes; who tidies up finds it. A property is proof, as brokers keep properties from the first
SUBSCRIBE on. A generated name is proof too: nobody writes one by hand. Knows nothing of Spark and of brokers.
"""

from __future__ import annotations

import os
import platform
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

GENERATED_PREFIX: Final = "pulsarish-spark"
"""The names of subscriptions that the user does not name begin so."""

_KIND: Final = "pulsarish.spark"
_CREATED: Final = "pulsarish.spark.created"
_HOST: Final = "pulsarish.spark.host"
_APPLICATION: Final = "pulsarish.spark.application"

_APPLICATION_ID: Final = "SPARK_APPLICATION_ID"
"""The variable that Spark sets on Kubernetes; other starters of jobs may set it too."""

_HOLD: Final = ".spark-hold"
_CHUNK_HOLD: Final = ".spark-chunks"
_GENERATED_NAME: Final = re.compile(
    rf"{GENERATED_PREFIX}-[0-9a-f]{{12}}|.+{re.escape(_HOLD)}(\..+)?|.+{re.escape(_CHUNK_HOLD)}"
)


@dataclass(frozen=True, slots=True)
class SparkMark:
    """Who made a subscription for Spark, and when; "" and None where that is not known."""

    kind: str = ""
    """``stream``: it follows a checkpoint; ``hold``: it keeps what a query in queue mode has taken; ``chunks``: it
    keeps the first chunks of messages that a query by positions has not read whole."""
    created_ms: int | None = None
    host: str = ""
    application: str = ""

    @classmethod
    def of_this_process(cls, kind: str, now_ms: int) -> SparkMark:
        """The mark of a subscription that is made now. Spark tells a Python source neither query nor checkpoint."""
        return cls(kind, now_ms, platform.node(), os.environ.get(_APPLICATION_ID, ""))

    def properties(self) -> dict[str, str]:
        """As a broker keeps it, readable in statistics."""
        created = "" if self.created_ms is None else _text_of(self.created_ms)
        written = {_KIND: self.kind, _CREATED: created, _HOST: self.host, _APPLICATION: self.application}
        return {name: text for name, text in written.items() if text}


def generated_name(prefix: str = "") -> str:
    """A new name for the subscription of a query; ``prefix`` instead of the usual beginning."""
    return f"{prefix or GENERATED_PREFIX}-{uuid.uuid4().hex[:12]}"


def hold_name(subscription: str, consumer_name: str) -> str:
    """How the hold of a query is called: several queries on one subscription have several."""
    return f"{subscription}{_HOLD}" + (f".{consumer_name}" if consumer_name else "")


def chunk_hold_name(subscription: str) -> str:
    """How the subscription is called that keeps first chunks for the query of ``subscription``."""
    return f"{subscription}{_CHUNK_HOLD}"


def mark_of(name: str, properties: Mapping[str, str]) -> SparkMark | None:
    """The mark of a subscription of Spark's, as far as it is known; None for one that an application made."""
    if kind := properties.get(_KIND):
        created_ms = _ms_of(properties.get(_CREATED, ""))
        return SparkMark(kind, created_ms, properties.get(_HOST, ""), properties.get(_APPLICATION, ""))
    return SparkMark() if _GENERATED_NAME.fullmatch(name) else None


def _text_of(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _ms_of(text: str) -> int | None:
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None  # Somebody has changed it by hand.
