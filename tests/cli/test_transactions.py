# SPDX-License-Identifier: Apache-2.0
"""Open transactions with ``pulsarish txn``, against a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from broker_core.base.clock import SystemClock
from broker_core.cli import sub
from broker_core.testing.raw_client import must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.heads import TxnId
from tests.cli.conftest import Pulsarish
from tests.cli.test_terminal import at_a_terminal
from tests.server.transaction_client import INVALID_STATUS, TransactionClient, entry


class Opened(NamedTuple):
    """A transaction that has sent one message, and whose topic has an ordinary one behind it."""

    client: TransactionClient
    name: TxnId

    @property
    def text(self) -> str:
        return f"({self.name.most_bits},{self.name.least_bits})"


class AnHourAhead(SystemClock):
    """A wall clock to which what has just begun is old."""

    def now_ms(self) -> int:
        return super().now_ms() + 3_600_000


@pytest.fixture
def opened(broker: RunningBroker, topic: str) -> Iterator[Opened]:
    with TransactionClient(broker.service_url) as client:
        must_succeed(client.open_producer(f"persistent://public/default/{topic}"))
        name = client.new(2)
        client.send_in(name, "a0")
        client.send_entry(0, 1, entry("n0", 1))
        client.next_command()
        yield Opened(client, name)
        client.end(name, commit=False)


def _objects(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_what_is_open_and_what_it_blocks(pulsarish: Pulsarish, opened: Opened, topic: str) -> None:
    """9.9.1: since when, whose, on which topics, whose readers wait, and how many messages."""
    (row,) = _objects(pulsarish("txn", "list").stdout)
    assert row.pop("since") < row.pop("abortedAt")
    assert row == {
        "txnId": opened.text,
        "status": "OPEN",
        "owner": None,
        "topics": [topic],
        "subscriptions": [],
        "holdsBack": [topic],
        "messagesHeldBack": 2,
    }
    (whole,) = _objects(pulsarish("txn", "show", opened.text).stdout)
    assert whole["txnId"] == opened.text
    table = pulsarish("txn", "show", opened.text.strip("()"), "-o", "table")
    assert [table.stdout.split()[0], table.stdout.split()[5]] == [b"TOPIC", topic.encode()]
    assert f"transaction {opened.text} is OPEN since ".encode() in table.stderr


def test_a_list_of_subscriptions_names_what_holds_them_back(
    pulsarish: Pulsarish, opened: Opened, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """9.9.3: once it has lasted for a minute; the list itself stays what it is for tools."""
    assert pulsarish("sub", "list", topic).stderr == b""
    monkeypatch.setattr(sub, "SystemClock", AnHourAhead)
    told = pulsarish("sub", "list", topic)
    assert told.stdout == b""
    assert f"readers of persistent://public/default/{topic} wait for the end of".encode() in told.stderr
    assert f"transaction {opened.text}, open for 3,6".encode() in told.stderr
    assert told.stderr.endswith(f"pulsarish txn show {opened.text[1:-1]}\n".encode())


def test_an_abort_is_asked_for(broker: RunningBroker, pulsarish: Pulsarish, opened: Opened) -> None:
    """9.9.2: nothing is aborted unasked; afterwards it is not there, and its owner is told."""
    asked = pulsarish("txn", "abort", opened.text)
    assert (asked.returncode, b"add --yes" in asked.stderr) == (2, True)
    assert pulsarish("txn", "abort", opened.text, "-y").stderr == f"aborted transaction {opened.text}\n".encode()
    assert pulsarish("txn", "list").stdout == b""
    for command in (("show", opened.text), ("abort", opened.text, "-y")):
        gone = pulsarish("txn", *command)
        assert (gone.returncode, b"does not exist, or was over long ago" in gone.stderr) == (3, True)
    assert opened.client.end(opened.name, commit=True).code == INVALID_STATUS


def test_ids_are_checked(pulsarish: Pulsarish) -> None:
    """9.1.1: two numbers that fit the admin REST."""
    for text in ("x", "1", "(1,2,3)", "1,-2", f"0,{2**63}"):
        wrong = pulsarish("txn", "show", "--", text)
        assert (wrong.returncode, b"is not the id of a transaction" in wrong.stderr) == (2, True)


def test_a_person_is_told_that_nothing_is_open(broker: RunningBroker, tmp_path: Any) -> None:
    """9.9.1: on a terminal an empty table would say nothing."""
    shown = at_a_terminal(tmp_path, "txn", "list", PULSARISH_DATA_DIR=str(broker.data_dir))
    assert shown.splitlines() == ["no open transactions", "", "0"]
