# SPDX-License-Identifier: Apache-2.0
"""What ``docs/limits.md`` promises of memory, as numbers: how much at the most, and how much when the clients are gone.

Knows the parts of the sum and what each attack opens; nothing of how memory is measured.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker_core.base.limits import FRAME_SLACK_BYTES
from broker_core.base.settings import Settings

MIB: Final = 1024 * 1024

PROCESS_MIB: Final = 100
INPUT_OF_A_CONNECTION_KIB: Final = 2
OUTPUT_OF_A_CONNECTION_KIB: Final = 128
SCHEMAS_TIMES: Final = 6
SCHEMAS_MIB: Final = 150
SCHEMAS_LEFT_MIB: Final = 64
"""Left of large schemas that were parsed: objects of others lie between."""
HTTP_CONNECTIONS: Final = 128
HTTP_BODY_KIB: Final = 256
CONNECTION_KIB: Final = 16
CONSUMER_KIB: Final = 16
PRODUCER_KIB: Final = 24
SUBSCRIPTION_KIB: Final = 72
TOPIC_KIB: Final = 80
MESSAGE_OUT_KIB: Final = 0.5

ENCRYPTED_KIB: Final = 64
ENCRYPTED_INPUT_KIB: Final = 128
HANDSHAKE_KIB: Final = 192

KEPT_BY_THE_ALLOCATOR_MIB: Final = 32
"""Twice the 16 MiB that the broker teaches the allocator to keep for its reads (``base.allocator``)."""

_OF_WHAT_WAS_OPEN: Final = 0.1
"""So much of what the table grants to what is open may be left: topics and durable subscriptions stay, and take about
as much as a rule; of what was closed some memory lies between things that are in use, and cannot go back."""


class Opens(NamedTuple):
    """What is open at a time, at the most, while an attack of full size is made."""

    connections: int = 4
    consumers: int = 2
    producers: int = 2
    subscriptions: int = 2
    topics: int = 2
    messages_out: int = 0
    large_frames: int = 4
    encrypted: int = 0
    """How many of the connections have TLS."""
    handshakes: int = 0
    schemas_mib: int = 0
    """Schemas that stay; some are large."""


OPENS: Final[dict[str, Opens]] = {
    "making_10_000_topics": Opens(producers=10_000, topics=10_000),
    "watching_10_000_topics": Opens(producers=10_000, topics=10_100),
    "administration_of_10_000_partitions": Opens(topics=10_100, subscriptions=10_000),
    "making_4_000_subscriptions": Opens(consumers=4_000, subscriptions=4_000),
    "joining_key_shared_1_500_times": Opens(consumers=1_500),
    "key_shared_joins_among_100_000_messages": Opens(consumers=120, messages_out=100_000),
    "consumers_that_leave_with_their_messages": Opens(consumers=200, messages_out=100_000),
    "passing_over_100_000_messages": Opens(messages_out=100_000),
    "a_message_to_4_000_subscriptions": Opens(consumers=4_000, subscriptions=4_000),
    "a_thousand_connections_that_end_at_once": Opens(connections=1_000, consumers=1_000, producers=1_000),
    "a_thousand_connections_that_are_reset_at_once": Opens(connections=1_000, consumers=1_000, producers=1_000),
    "permits_without_end": Opens(messages_out=100_000),
    "nacks_of_50_000": Opens(messages_out=50_000),
    "consumers_of_5_mb_of_metadata": Opens(connections=150, consumers=150),
    "frames_that_never_end": Opens(connections=200),
    "large_sends_of_many": Opens(connections=200, producers=200, large_frames=200),
    "answers_that_nobody_reads": Opens(connections=40, producers=1_000, topics=1_000),
    "messages_that_nobody_reads": Opens(connections=60, consumers=60, subscriptions=60, messages_out=30_000),
    "stats_in_a_loop": Opens(consumers=1_000, subscriptions=50),
    "partitions_made_and_deleted": Opens(producers=10_000, topics=10_000),
    "partitions_told_to_watches": Opens(),
    "schemas_of_a_mib_of_every_shape": Opens(topics=9, schemas_mib=18),
    "schemas_of_a_mib_of_100_clients": Opens(connections=100, schemas_mib=8),
    "schemas_until_no_more_are_kept": Opens(topics=16, schemas_mib=24),
    "schemas_that_nobody_reads": Opens(connections=40, schemas_mib=1),
    "handshakes_at_once": Opens(handshakes=100),
    "handshakes_that_never_begin": Opens(handshakes=100),
    "encrypted_messages_that_nobody_reads": Opens(
        connections=60, consumers=60, subscriptions=60, messages_out=2_400, encrypted=60
    ),
}
"""By the name of the attack; any other opens a few of each."""


def bound_mib(settings: Settings, opens: Opens, size: float = 1.0) -> float:
    """The sum of the table, for what is open during an attack of that ``size``."""
    frame_mib = (settings.max_message_size + FRAME_SLACK_BYTES) / MIB
    of_settings = (
        settings.max_unfinished_input_size_in_mb
        + 2 * settings.max_message_publish_buffer_size_in_mb
        + settings.managed_ledger_cache_size_mbytes
        + settings.max_unsent_output_size_in_mb
        + SCHEMAS_MIB
        + SCHEMAS_TIMES * settings.max_schema_bytes_in_all / MIB
    )
    http_mib = HTTP_CONNECTIONS * HTTP_BODY_KIB / 1024
    return PROCESS_MIB + of_settings + _scaled(opens.large_frames, size) * frame_mib + http_mib + _open_mib(opens, size)


def left_mib_max(settings: Settings, opens: Opens, size: float = 1.0) -> float:
    """How much more than before an attack there may be a minute after its clients have gone."""
    kept = KEPT_BY_THE_ALLOCATOR_MIB + settings.managed_ledger_cache_size_mbytes
    if opens.schemas_mib:
        kept += SCHEMAS_LEFT_MIB + int(SCHEMAS_TIMES * opens.schemas_mib)
    return kept + _OF_WHAT_WAS_OPEN * _open_mib(opens, size)


def _open_mib(opens: Opens, size: float) -> float:
    of_a_connection = INPUT_OF_A_CONNECTION_KIB + OUTPUT_OF_A_CONNECTION_KIB + CONNECTION_KIB
    kib = (
        _scaled(opens.connections, size) * of_a_connection
        + _scaled(opens.consumers, size) * CONSUMER_KIB
        + _scaled(opens.producers, size) * PRODUCER_KIB
        + _scaled(opens.subscriptions, size) * SUBSCRIPTION_KIB
        + _scaled(opens.topics, size) * TOPIC_KIB
        + _scaled(opens.messages_out, size) * MESSAGE_OUT_KIB
        + opens.encrypted * (ENCRYPTED_KIB + ENCRYPTED_INPUT_KIB)
        + opens.handshakes * HANDSHAKE_KIB
    )
    return kib / 1024


def _scaled(number: int, size: float) -> float:
    return max(4.0, number * size)
