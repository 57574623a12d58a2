# SPDX-License-Identifier: Apache-2.0
"""Names, keys, values and properties that want to drive the terminal of the one who looks at them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from tests.cli.conftest import Pulsarish
from tests.cli.test_terminal import at_a_terminal

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202etxt.exe\u2066\u2028\x7f\rforged\n1:1  k  forged"
_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]|\x1b\]")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
TOPIC, SUBSCRIPTION = "hostile", "s\x9b31m\u202etxt.exe\u2066\u2028forged"  # brokers refuse the usual controls in it


@pytest.fixture(scope="module")
def hostile(broker: RunningBroker) -> RunningBroker:
    """A broker with one topic full of it."""
    with Client(broker.service_url) as client:
        client.subscribe(TOPIC, SUBSCRIPTION, consumer_name=HOSTILE).close()
        with client.create_producer(TOPIC, name=HOSTILE) as producer:
            producer.send(HOSTILE.encode(), key=HOSTILE, properties={HOSTILE: HOSTILE})
    return broker


@pytest.mark.parametrize(
    "command",
    [
        *(("consume", TOPIC, "--exit", "-o", form) for form in ("text", "raw", "jsonl")),
        *(("sub", "peek", TOPIC, SUBSCRIPTION, "-o", form) for form in ("text", "raw", "jsonl")),
        ("topic", "examine", TOPIC),
        *(("sub", "list", TOPIC, "-o", form) for form in ("table", "json", "jsonl")),
        *(("topic", "list", "-o", form) for form in ("table", "json", "jsonl")),
        *(("topic", "stats", TOPIC, "-o", form) for form in ("table", "json", "jsonl")),
        ("topic", "stats", TOPIC, "--internal"),
        ("sub", "stats", TOPIC, SUBSCRIPTION, "-o", "json"),
        ("sub", "stats", TOPIC, HOSTILE),
        ("--debug", "sub", "stats", TOPIC, HOSTILE),
        ("sub", "skip", TOPIC, SUBSCRIPTION, "-n", "1", "-y"),
        ("sub", "reset", TOPIC, SUBSCRIPTION, "--to", "earliest", "-y"),
    ],
    ids=lambda command: ascii(" ".join(command[:2] + command[-1:])),
)  # fmt: skip
def test_a_terminal_gets_nothing_that_it_obeys(
    hostile: RunningBroker, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """No title, no cleared screen, no turned text, no forged row; colours of the command itself are all there is."""
    shown = at_a_terminal(tmp_path, *command, PULSARISH_DATA_DIR=str(hostile.data_dir), NO_COLOR="1")
    plain = _COLOUR.sub("", shown) if "table" in command or "examine" in command else shown
    assert not _FORBIDDEN.search(plain.replace("\x1b[1m", "")), ascii(shown)
    assert "\x1b[2J" not in shown
    assert not any(line.startswith("forged") for line in shown.splitlines())


def test_a_pipe_gets_the_exact_text(hostile: RunningBroker, pulsarish: Pulsarish) -> None:
    """JSON escapes mean the same text, and -o raw is the payload as it is."""
    row = json.loads(pulsarish("consume", TOPIC, "--exit", "-o", "jsonl").stdout)
    assert (row["key"], row["value"], row["properties"]) == (HOSTILE, HOSTILE, {HOSTILE: HOSTILE})
    assert pulsarish("consume", TOPIC, "--exit", "-o", "raw").stdout == HOSTILE.encode() + b"\n"
    listed = pulsarish("sub", "list", TOPIC, "-o", "json").stdout
    assert [row["subscription"] for row in json.loads(listed)] == [SUBSCRIPTION]
