# SPDX-License-Identifier: Apache-2.0
"""The options of the sink: how rows become entries."""

from __future__ import annotations

from typing import Final, Literal

from broker_core.base.hashing import HashingScheme
from pulsarish_spark.options.option import Option, Side
from pulsarish_spark.options.parsing import count, one_of

KeyForm = Literal["auto", "text", "bytes"]
KEY_FORMS: Final[tuple[KeyForm, ...]] = ("auto", "text", "bytes")
HASHING_SCHEMES: Final[dict[str, HashingScheme]] = {
    "JavaStringHash": "java",
    "Murmur3_32Hash": "murmur3",
    "BoostHash": "boost",
    "GoStringHash": "go",
}
"""Pulsar's names of what the client calls otherwise."""
COMPRESSIONS: Final = ("none", "lz4", "zlib", "zstd", "snappy")


def _hashing_scheme(text: str) -> HashingScheme:
    by_word = {name.lower(): scheme for name, scheme in HASHING_SCHEMES.items()}
    if (scheme := by_word.get(text.strip().lower())) is None:
        raise ValueError(f"it takes one of {', '.join(HASHING_SCHEMES)}")
    return scheme


SENDING: Final = (
    Option(
        "hashingScheme",
        Side.WRITE,
        _hashing_scheme,
        "BoostHash",
        "How the key chooses the partition. Default JavaStringHash, as in the Java client; the default of the C++ and "
        "Python clients is BoostHash (of Boost 1.82 or newer, in Python from 3.6 on), that of the Go client "
        "GoStringHash (Go calls it JavaStringHash); those of Java, Go and C++ also have Murmur3_32Hash.",
    ),
    Option(
        "keyForm",
        Side.WRITE,
        one_of(*KEY_FORMS),
        "bytes",
        "How keys go out: text, or bytes (base64-encoded on their way, with a flag). Default auto: as the column "
        "key_is_bytes says, else as text where they are UTF-8. The forms of one key may go to different partitions.",
    ),
    Option("compression", Side.WRITE, one_of(*COMPRESSIONS), "lz4", "Codec of the entries written. Default none."),
    Option(
        "batchingMaxMessages",
        Side.WRITE,
        count,
        "1000",
        "Messages of one entry at most.",
    ),
    Option("batchingMaxBytes", Side.WRITE, count, "131072", "Payload bytes of one entry at most, before compression."),
)
