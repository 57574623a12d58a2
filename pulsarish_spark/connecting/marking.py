# SPDX-License-Identifier: Apache-2.0
"""Names and marks of subscriptions that this process makes, so that somebody can tell later who left them.

Spark tells a Python source neither query nor checkpoint, so the mark says what the process itself can know.
"""

from __future__ import annotations

import os
import platform
import uuid
from typing import Final

from broker_core.client.spark_marks import GENERATED_PREFIX, SparkMark

_APPLICATION: Final = "SPARK_APPLICATION_ID"
"""Spark sets it on Kubernetes, and who starts jobs otherwise may set it."""


def generated_name(prefix: str = "") -> str:
    """A new name for the subscription of a query; ``prefix`` instead of the usual beginning."""
    return f"{prefix or GENERATED_PREFIX}-{uuid.uuid4().hex[:12]}"


def new_mark(kind: str, now_ms: int) -> SparkMark:
    """The mark of a subscription that is made now. ``kind``: as in ``SparkMark``."""
    return SparkMark(kind, now_ms, platform.node(), os.environ.get(_APPLICATION, ""))
