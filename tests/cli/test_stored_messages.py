# SPDX-License-Identifier: Apache-2.0
"""``pulsarish sub peek`` and ``pulsarish topic examine``."""

from __future__ import annotations

import json

from tests.cli.conftest import Pulsarish


def _backlog(pulsarish: Pulsarish, topic: str) -> int:
    backlog: int = json.loads(pulsarish("sub", "stats", topic, "s").stdout)["msgBacklog"]
    return backlog


def test_what_a_subscription_waits_for_is_peeked_at(pulsarish: Pulsarish, topic: str) -> None:
    """7.15 Whole batches, in order, without what is acknowledged; and nothing is taken."""
    for value in ("one", "two", "three"):
        pulsarish("produce", topic, "-m", value, "-k", "grün")
    pulsarish("produce", topic, "-m", "four", "-m", "five", "-m", "six")
    pulsarish("consume", topic, "-s", "s", "-n", "1")
    assert pulsarish("sub", "peek", topic, "s", "-o", "raw").stdout == b"two\n"
    shown = pulsarish("sub", "peek", topic, "s", "-n", "9", "-o", "raw")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, b"two\nthree\nfour\nfive\nsix\n", b"")
    first = json.loads(pulsarish("sub", "peek", topic, "s").stdout)
    assert (first["value"], first["key"], first["topic"].endswith(topic)) == ("two", "grün", True)
    assert _backlog(pulsarish, topic) == 3
    pulsarish("sub", "clear", topic, "s", "-y")
    assert pulsarish("sub", "peek", topic, "s") == (0, b"", b"")


def test_a_message_of_a_topic_is_examined(pulsarish: Pulsarish, topic: str) -> None:
    """From either end, acknowledged or not; beyond the other end it is the last one there."""
    for text in ("one", "two", "three"):
        pulsarish("produce", topic, "-m", text)
    pulsarish("consume", topic, "-s", "s", "-n", "3")
    for options, value in (
        ((), b"three\n"),
        (("-n", "2"), b"two\n"),
        (("--from", "earliest"), b"one\n"),
        (("--from", "earliest", "-n", "2"), b"two\n"),
        (("--from", "earliest", "-n", "99"), b"three\n"),
    ):
        assert pulsarish("topic", "examine", topic, "-o", "raw", *options) == (0, value, b"")


def test_a_large_message_is_looked_at_whole(pulsarish: Pulsarish, topic: str) -> None:
    """5.1.5 At its first chunk; a later one is named, as it holds no message."""
    large = b"x" * (6 << 20)
    pulsarish("topic", "create", topic)
    pulsarish("sub", "create", topic, "s")
    assert pulsarish("produce", topic, "--chunking", stdin=large).returncode == 0
    shown = pulsarish("sub", "peek", topic, "s", "-n", "2", "-o", "raw")
    assert (shown.returncode, shown.stdout == large + b"\n") == (0, True)
    assert b"is a part of a large message that begins before it" in shown.stderr


def test_what_cannot_be_looked_at_is_said(pulsarish: Pulsarish, topic: str) -> None:
    """What is not there has code 3; of a partitioned topic one looks at a partition."""
    pulsarish("topic", "create", topic, "-p", "2")
    pulsarish("sub", "create", topic, "s")
    for command in (("sub", "peek", topic, "s"), ("topic", "examine", topic)):
        done = pulsarish(*command)
        assert (done.returncode, done.stdout, b"name one of its partitions" in done.stderr) == (1, b"", True)
    empty = pulsarish("topic", "examine", f"{topic}-partition-1")
    assert (empty.returncode, b"has no messages to examine" in empty.stderr) == (1, True)
    pulsarish("produce", f"{topic}-partition-1", "-m", "x")
    assert pulsarish("topic", "examine", f"{topic}-partition-1", "-o", "raw").stdout == b"x\n"
    assert pulsarish("sub", "peek", f"{topic}-partition-1", "s", "-o", "raw").stdout == b"x\n"
