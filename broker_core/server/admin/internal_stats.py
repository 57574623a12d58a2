# SPDX-License-Identifier: Apache-2.0
"""The internal statistics of a topic as JSON: what the broker says, and what it never has.

Source: Pulsar docs, "Admin API - topics - get internal stats".
"""

from __future__ import annotations

from typing import Any

import msgspec

from broker_core.broker.internal_stats import internal_stats
from broker_core.broker.topic import Topic
from broker_core.server.admin.absent_features import OF_CURSORS, OF_LEDGERS


def internal_stats_object(topic: Topic) -> dict[str, Any]:
    """Ledgers and cursors of one topic."""
    found: dict[str, Any] = msgspec.to_builtins(internal_stats(topic))
    cursors = {name: {**OF_CURSORS, **each} for name, each in found["cursors"].items()}
    return {**OF_LEDGERS, **found, "cursors": cursors}
