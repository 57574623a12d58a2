# SPDX-License-Identifier: Apache-2.0
"""``pulsarish consume --type key_shared``."""

from __future__ import annotations

from tests.cli.conftest import Pulsarish


def test_consuming_by_key(pulsarish: Pulsarish, topic: str) -> None:
    """2.6, 2.9 A lone Key_Shared consumer gets all keys, in order."""
    pulsarish("produce", topic, "-m", "one", "-m", "two", "-k", "k")
    pulsarish("produce", topic, "-m", "three")
    shown = pulsarish("consume", topic, "-s", "s", "--type", "key_shared", "-n", "3", "-o", "raw")
    assert (shown.returncode, shown.stdout) == (0, b"one\ntwo\nthree\n")
