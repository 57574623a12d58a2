# SPDX-License-Identifier: Apache-2.0
"""The options of the sink: how rows become messages (``MAKING``), and the settings of the client's writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from broker_core.base.hashing import HashingScheme
from pulsarish_spark.options.option import Option, Side, count, flag, milliseconds, one_of

KeyForm = Literal["auto", "text", "bytes"]
HASHING_SCHEMES: Final[dict[str, HashingScheme]] = {
    "JavaStringHash": "java",
    "Murmur3_32Hash": "murmur3",
    "BoostHash": "boost",
    "GoStringHash": "go",
}
"""Pulsar's names of what the client calls otherwise."""
ROUTING_MODES: Final = {"RoundRobinPartition": "round_robin", "SinglePartition": "single_partition"}
DELIVER_AFTER_MS_MAX: Final = 100 * 365 * 24 * 60 * 60 * 1000
"""A century: a longer delay is a mistake, of its unit for example."""


def _delay_ms(text: str) -> int:
    if (delay := count(text)) > DELIVER_AFTER_MS_MAX:
        raise ValueError(f"it takes milliseconds up to {DELIVER_AFTER_MS_MAX}, which is a century")
    return delay


MAKING: Final = (
    Option(
        "keyForm",
        one_of(("auto", "text", "bytes")),
        "bytes",
        "How keys go out: text, or bytes (base64-encoded on their way, with a flag). Default auto: as the column "
        "key_is_bytes says, else as text where they are UTF-8. The forms of one key may go to different partitions.",
        fills="key_form",
        sides=Side.WRITE,
    ),
    Option(
        "deliverAfterMs",
        _delay_ms,
        "60000",
        "Milliseconds after sending before which Shared and Key_Shared consumers do not get a row. The columns "
        "deliver_at and deliver_after beat it where they are not null. Default: rows are delivered at once.",
        fills="deliver_after_ms",
        sides=Side.WRITE,
    ),
)


def _setting(name: str, parse: Callable[[str], Any], example: str, meaning: str, fills: str, alias: str = "") -> Option:
    """A setting of the writer, which pulsar-spark calls ``alias``, or pulsar.producer and the same name."""
    return Option(name, parse, example, meaning, (alias or f"pulsar.producer.{name}",), fills=fills, sides=Side.WRITE)


SENDING: Final = (
    _setting(
        "hashingScheme",
        one_of(HASHING_SCHEMES),
        "BoostHash",
        "How the key chooses the partition. Default JavaStringHash, as in the Java client; the default of the C++ and "
        "Python clients is BoostHash (of Boost 1.82 or newer, in Python from 3.6 on), that of the Go client "
        "GoStringHash (Go calls it JavaStringHash); those of Java, Go and C++ also have Murmur3_32Hash.",
        "hashing_scheme",
    ),
    _setting(
        "messageRoutingMode",
        one_of(ROUTING_MODES),
        "SinglePartition",
        "Where rows without a key go; a key decides always. RoundRobinPartition (default): to all partitions in turn; "
        "SinglePartition: those of one task to one of them. The column partition beats both.",
        "message_routing_mode",
    ),
    Option(
        "batchingType",
        one_of(("default", "key_based")),
        "key_based",
        "What an entry may hold: default, any rows; key_based, rows of one key, so that Key_Shared consumers get each "
        "key in order. Rows of other keys may then be stored in another order than they came in.",
        fills="batching_type",
        sides=Side.WRITE,
    ),
    _setting(
        "sendTimeoutMs",
        milliseconds,
        "30000",
        "How long a row may wait for the broker's confirmation before its task fails; whether the row is stored is not "
        "known then, and the error says so. Default operationTimeoutMs. It cannot be for ever, which 0 is in Java.",
        "send_timeout_s",
    ),
    _setting(
        "memoryLimitBytes",
        count,
        "8388608",
        "Bytes that a task may have sent and not confirmed, over all its topics and partitions; it waits for room, and "
        "sends an entry that is larger alone. Default 33554432.",
        "window_bytes_max",
        "pulsar.client.memoryLimitBytes",
    ),
    _setting(
        "chunkingEnabled",
        flag,
        "true",
        "Send a value that is larger than the broker takes at once in chunks. Default false: an error.",
        "chunking_enabled",
    ),
    _setting(
        "chunkMaxMessageSize",
        count,
        "1048576",
        "Bytes of one chunk at most. Default what the broker takes.",
        "chunk_max_message_size",
    ),
    _setting(
        "compression",
        one_of(("none", "lz4", "zlib", "zstd", "snappy")),
        "lz4",
        "Codec of the entries written. Default none.",
        "compression",
        "pulsar.producer.compressionType",
    ),
    _setting(
        "batchingMaxMessages",
        count,
        "1000",
        "Messages of one entry at most. Default 4096.",
        "batching_max_messages",
    ),
    _setting(
        "batchingMaxBytes",
        count,
        "131072",
        "Payload bytes of one entry at most, before compression. Default 524288.",
        "batching_max_bytes",
    ),
)
