# SPDX-License-Identifier: Apache-2.0
"""The hashes against published vectors."""

import pytest

from broker_core.base.hashing import java_string_hash_31, murmur3_31, murmur3_unsigned, partition_of_key

MURMUR3 = {
    "Order-3459134": (3112179635, 964695987, 6067),
    "": (0, 0, 0),
    "a": (1009084850, 1009084850, 27058),
    "abc": (3017643002, 870159354, 37882),
    "hello": (613153351, 613153351, 64071),
    "key1": (2610364709, 462881061, 293),
    "key-0": (3812096191, 1664612543, 63679),
    "key-1": (2561742240, 414258592, 5536),
    "key-2": (4093138188, 1945654540, 21772),
    "key-5": (512346046, 512346046, 51134),
    "日本": (3302619458, 1155135810, 63810),
    "NONE_KEY": (2652225187, 504741539, 48803),
    "orders-aggregator-pod-2345-consumer100": (320276078, 320276078, 320276078 % 65536),
}


@pytest.mark.parametrize("text", MURMUR3)
def test_murmur3_gives_the_published_values(text: str) -> None:
    """2.5.1: unsigned 32 bit, the low 31 bits, and the slot are those of the table."""
    unsigned, masked, slot = MURMUR3[text]
    data = text.encode()
    assert (murmur3_unsigned(data), murmur3_31(data), murmur3_31(data) % 65536) == (unsigned, masked, slot)


@pytest.mark.parametrize(
    ("text", "value"),
    [("hello", 99162322), ("key-0", 101943362), ("key-1", 101943363), ("Order-3459134", 1082638286)],
)
def test_java_hash_gives_the_published_values(text: str, value: int) -> None:
    """1.2.3: the Java client's default routing hash."""
    assert java_string_hash_31(text) == value


def test_java_hash_counts_utf16_units() -> None:
    """1.2.3: a character outside the basic plane counts as its two surrogates, as in Java."""
    assert java_string_hash_31("😀") == (31 * 0xD83D + 0xDE00) & 0x7FFFFFFF


@pytest.mark.parametrize(("key", "partition"), [("hello", 3), ("key-0", 3), ("key-1", 0), ("Order-3459134", 3)])
def test_a_key_goes_to_the_published_partition(key: str, partition: int) -> None:
    """1.2.3: murmur3 mod 4, where it is asked for."""
    assert partition_of_key(key, 4, "murmur3") == partition


@pytest.mark.parametrize(("key", "partition"), [("hello", 2), ("key-0", 2), ("key-1", 3), ("Order-3459134", 2)])
def test_the_default_is_that_of_the_java_client(key: str, partition: int) -> None:
    """1.2.3: String.hashCode mod 4."""
    assert partition_of_key(key, 4) == partition
