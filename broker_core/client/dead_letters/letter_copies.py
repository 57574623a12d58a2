# SPDX-License-Identifier: Apache-2.0
"""Copies of messages in a retry topic or a dead letter topic. Pure.

Invariants: the first topic and the first id of a message stay the same in every copy, however often it is copied;
properties of the application survive. Source: semantics 4.6.4, 4.7.6; Pulsar docs, "Messaging - Retry letter topic".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker_core.client.messages.message import Message
from broker_core.client.messages.outgoing import MessageFields

REAL_TOPIC: Final = "REAL_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
REAL_SUBSCRIPTION: Final = "REAL_SUBSCRIPTION"
RECONSUMETIMES: Final = "RECONSUMETIMES"
DELAY_TIME: Final = "DELAY_TIME"

_COUNT_MAX: Final = 2**63 - 1
"""The largest count that can be read, as for a query: no client counts further. Python refuses thousands of digits."""


def reconsume_times(message: Message) -> int:
    """Count of ``reconsume_later`` calls for this message."""
    text = message.properties.get(RECONSUMETIMES, "")
    count = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_COUNT_MAX)) else 0
    return count if count <= _COUNT_MAX else 0


def dead_letter(message: Message, origin: str) -> MessageFields:
    """Everything but the value of a copy of ``message`` for the dead letter topic. ``origin``: its first topic."""
    return _copy(message, origin, {}, {})


def retry_letter(
    message: Message, origin: str, times: int, delay_ms: int, properties: Mapping[str, str]
) -> MessageFields:
    """Everything but the value of a copy for the retry topic, the ``times``-th of this message. ``properties`` overlay
    the message's own."""
    return _copy(message, origin, properties, {RECONSUMETIMES: str(times), DELAY_TIME: str(delay_ms)})


def _copy(message: Message, origin: str, custom: Mapping[str, str], system: Mapping[str, str]) -> MessageFields:
    own = message.properties
    first = {
        REAL_TOPIC: own.get(REAL_TOPIC, origin),
        ORIGIN_MESSAGE_ID: own.get(ORIGIN_MESSAGE_ID, str(message.message_id)),
    }
    return {
        "key": message.key_to_send,
        "ordering_key": message.ordering_key,
        "properties": {**own, **custom, **first, **system},
        "event_time_ms": message.event_time_ms,
    }
